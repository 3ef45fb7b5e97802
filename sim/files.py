"""Files appear whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.errors import InputError, Problem

#: bytes; file systems take 255, and what is written first has a longer name
_LONGEST_NAME = 230


def unreadable(error: Exception) -> str:
    """What was found in place of a file's content, in the words of a message."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, OSError) and error.strerror:
        return f"nothing readable ({error.strerror[0].lower()}{error.strerror[1:]})"
    return str(error)


def check_writable(path: Path | None, where: str) -> None:
    """Raises InputError, located at ``where``, if ``path`` cannot become a file; for use before long work."""
    if path is None:
        return
    folder = path.parent
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise InputError(Problem(where, f'"{path.name[:40]}…"', f"a name of at most {_LONGEST_NAME} bytes"))
    if path.is_dir():
        raise InputError(Problem(where, f'"{path}", which is a folder', "the path of a file to write"))
    if not folder.is_dir():
        raise InputError(Problem(where, f'"{path}", in no existing folder', "a path in a folder that exists"))
    if path.exists() and not path.is_file():
        # Replacing a device or a pipe would take it away from everybody else.
        raise InputError(
            Problem(
                where, f'"{path}", a device or a pipe', "the path of a file to write", "Leave the option out."
            )
        )
    if not os.access(folder, os.W_OK):
        raise InputError(Problem(where, f'"{path}", in a folder not writable', "a path in a writable folder"))


def write_atomically(path: Path, text: str) -> None:
    """Writes beside the target, then replaces it: a reader sees the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's own mode shuts everybody else out
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def json_text(content: Mapping[str, Any]) -> str:
    """JSON in the order given, one final newline; NaN and infinity, which JSON lacks, raise ValueError."""
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
