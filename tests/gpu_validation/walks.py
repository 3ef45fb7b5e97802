"""The suite's commands as a user types them, with process starts that stay in the test's own process."""

from __future__ import annotations

import gc
import os
import signal
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
import torch

from gpu_validation import child, starts
from sim.cli import main


def status(*arguments: str) -> int:
    """Exit status of ``overlapsim gpu`` with these arguments."""
    with pytest.raises(SystemExit) as ended:
        main(["gpu", *arguments])
    code = ended.value.code
    return 0 if code is None else int(code)


class InProcess:
    """In place of :class:`subprocess.Popen` for process starts: saves the seconds that importing torch takes."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]):
        assert command[1:3] == ["-m", "gpu_validation.child"]
        self._status = start(*command[3:])

    def wait(self) -> int:
        return self._status


def start(*arguments: str) -> int:
    """Exit status of one process start, run here; what it sets for its process is put back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    cores = os.sched_getaffinity(0)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(sys, "argv", ["gpu_validation.child", *arguments])
        try:
            child.main()
        except SystemExit as ended:
            return int(ended.code or 0)
        finally:
            os.sched_setaffinity(0, cores)
            gc.unfreeze()
            gc.enable()
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return 0


@contextmanager
def starts_in_process() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "subprocess", types.SimpleNamespace(Popen=InProcess))
        yield patch
