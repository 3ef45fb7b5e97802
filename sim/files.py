"""Files appear whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
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
    if os.path.isdir(path):
        raise InputError(Problem(where, f'"{path}", which is a folder', "the path of a file to write"))
    if not os.path.isdir(folder):
        raise InputError(Problem(where, f'"{path}", in no existing folder', "a path in a folder that exists"))
    if os.path.exists(path) and not os.path.isfile(path):
        # Replacing a device or a pipe would take it away from everybody else.
        raise InputError(
            Problem(
                where, f'"{path}", a device or a pipe', "the path of a file to write", "Leave the option out."
            )
        )
    if not _takes_files(folder):
        raise InputError(Problem(where, f'"{path}", in a folder not writable', "a path in a writable folder"))


def check_folder(
    folder: Path | None, where: str, files: Iterable[str] = (), folders: Iterable[str] = ()
) -> None:
    """As :func:`check_writable` for a folder that is made where it is not there yet.

    ``files`` and ``folders`` are what will be written into it: nothing else may have their names.
    """
    if folder is None:
        return
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not os.path.isdir(nearest):
        found = f'"{folder}": {nearest} is no folder'
        raise InputError(Problem(where, found, "a folder, or a path for one"))
    if not _takes_files(nearest) or any(len(os.fsencode(part)) > _LONGEST_NAME for part in folder.parts):
        raise InputError(Problem(where, f'"{folder}", not writable', "a path in a writable folder"))
    problems = [
        Problem(where, f'"{folder / name}", which is a folder', "a folder where a file of this name can go")
        for name in files
        if os.path.isdir(folder / name)
    ]
    for name in folders:
        inner = folder / name
        if os.path.lexists(inner) and not (os.path.isdir(inner) and _takes_files(inner)):
            found = f'"{inner}", no writable folder'
            problems.append(Problem(where, found, "a folder where one of this name can go"))
    if problems:
        raise InputError(problems)


def check_distinct(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None
) -> None:
    """Raises InputError where two options would write one file, or one would write over what is read.

    Both map what the user typed (``--json``, ``TRACE``) to a path; None is left out.
    """
    taken = {os.path.realpath(path): name for name, path in (inputs or {}).items() if path is not None}
    problems = []
    for option, path in outputs.items():
        if path is None:
            continue
        other = taken.setdefault(os.path.realpath(path), option)
        if other != option:
            problems.append(Problem(option, f'"{path}", which is {other} too', "a path of its own"))
    if problems:
        raise InputError(problems)


def _takes_files(folder: Path) -> bool:
    """Found out by making one without a name: permissions do not say what a file system refuses."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


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
