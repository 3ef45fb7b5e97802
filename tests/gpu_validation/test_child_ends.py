"""How a process start ends that is told to, or whose parent is gone: at once, silently, with nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_validation.starts import INTERRUPTED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals of a parent's death are Linux's")
REPOSITORY = Path(__file__).resolve().parents[2]
#: busy in destructors, where an exception would be printed and forgotten; lets go of the interpreter, as work of the
#: device does, or else a signal that a library's thread has taken is noticed late (Python 3.11)
BUSY = """
import sys, time
from pathlib import Path
from gpu_validation.child import Ending, end_with_parent
class Falling:
    def __del__(self):
        sum(range(50))
        time.sleep(0)
end_with_parent()
ending = Ending()
print("ready", flush=True)
until = time.time() + 20
while time.time() < until:
    Falling()
"""
#: told to end while it writes
WRITING = """
import os, signal, sys
from pathlib import Path
from gpu_validation import child
write = child.write_atomically
def slowly(path, text):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(100):
        pass
    write(path, text)
child.write_atomically = slowly
child.Ending().write(Path(sys.argv[1]), "whole")
print("went on")
"""
#: a parent that is killed; its child says who it is
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {BUSY!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(20)
"""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_storm_of_signals_ends_it_without_a_word() -> None:
    """Ctrl-C goes to the whole process group, and the parent sends its own."""
    process = started(BUSY)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(5):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.killpg(process.pid, number)
    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == INTERRUPTED


def test_a_piece_that_is_being_written_is_finished(tmp_path: Path) -> None:
    process = started(WRITING, str(tmp_path / "piece"))
    assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == INTERRUPTED
    assert [p.name for p in tmp_path.iterdir()] == ["piece"]
    assert (tmp_path / "piece").read_text() == "whole"


def test_it_does_not_outlive_a_parent_that_was_killed() -> None:
    parent = started(PARENT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate(timeout=10)
    until = time.time() + 5
    while running(child):
        assert time.time() < until, "still measuring for nobody"
        time.sleep(0.02)


def running(process: int) -> bool:
    """Whether it is there and not only waiting to be noticed dead."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_without_such_a_signal_the_next_piece_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_validation.child import Ending

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ending = Ending()
        assert not ending.orphaned
        monkeypatch.setattr(os, "getppid", lambda: 1)
        assert ending.orphaned
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
