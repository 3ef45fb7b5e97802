"""Two studies never write one folder at the same time; readers and later studies are not held up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.lock import sole_writer

HOLD = """
import sys
from pathlib import Path
from sim.lock import sole_writer
with sole_writer(Path(sys.argv[1]), "--out"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_study_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match="which another command is writing"),
            sole_writer(tmp_path, "--out"),
        ):
            pass
    finally:
        first.kill()  # however it ends
        first.communicate()
    with sole_writer(tmp_path, "--out"):
        assert list(tmp_path.iterdir()) == []
