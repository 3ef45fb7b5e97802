"""A study small enough to run in a fraction of a second, on the exact toy profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = """
title = "Small"
question = "What does the barrier cost?"
scenario = "toy_dF"
reference = "as declared"
sections = ["cells"]

[set]
"run.replications" = 2

[[factors]]
name = "concurrency"
keys = ["workload.concurrency", "workload.requests"]
values = [1, 2]

[[variants]]
name = "as declared"

[[variants]]
name = "coarse"
set = { barrier = "coarse" }

[[variants]]
name = "exact"
set = { host_lengths = "exact" }

[timeline]
at = { concurrency = 2 }
first = 1
"""


@pytest.fixture
def write_study(tmp_path: Path) -> Callable[..., str]:
    """Writes ``small.toml`` with replacements made and returns its path."""

    def write(*replacements: tuple[str, str], more: str = "") -> str:
        text = SMALL
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "small.toml"
        path.write_text(text + more)
        return str(path)

    return write
