"""One command at a time writes a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.errors import InputError, Problem

try:
    import fcntl
except ImportError:  # a platform without such locks: there the second command meets the first one's tables
    fcntl = None  # type: ignore[assignment]


@contextmanager
def sole_writer(folder: Path, where: str) -> Iterator[None]:
    """Holds ``folder``, which exists, while its results and report are written.

    The lock is of the folder itself, so that nothing is left behind, whatever ends the process. Readers need none.
    Raises InputError, located at ``where``, where another process holds it.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = f'"{folder}", which another command is writing'
            raise InputError(
                Problem(where, found, "a folder of its own", "Wait for the other one to end.")
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)
