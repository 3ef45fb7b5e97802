"""Scheduler, relay, barrier and machine ask what a worker needs, never what it is called.

Identifiers and string literals (documentation strings included) are searched; comments are exempt.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = [
    "sim/relay",
    "sim/barrier",
    "sim/host_lengths",
    "sim/machine",
    "sim/loops",
    "sim/serving",
    "gpu_validation/relay",
    "gpu_validation/barrier",
    "gpu_validation/loops",
]
FILES = ["sim/program/expand.py", "sim/program/primitives.py", "sim/run.py", "sim/replication.py"]
NAMES = re.compile(
    r"dflash|eagle|n_?gram|standalone|medusa|lookahead|\bmtp\b|nvidia|\bamd\b|rocm|geforce|hopper|blackwell"
    r"|\bh100|\bh200|\bb200|mi3\d\d",
    re.IGNORECASE,
)


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))
    yield from (ROOT / name for name in FILES)


def words(text: str) -> Iterator[tuple[int, str]]:
    wanted = {tokenize.NAME, tokenize.STRING}
    if hasattr(tokenize, "FSTRING_MIDDLE"):
        wanted.add(tokenize.FSTRING_MIDDLE)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in wanted:
            yield token.start[0], token.string


def named(text: str) -> list[str]:
    return [f"{line}: {word.strip()[:60]}" for line, word in words(text) if NAMES.search(word)]


@pytest.mark.parametrize("path", list(sources()), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_algorithm_or_vendor_is_named(path: Path) -> None:
    assert not named(path.read_text())


@pytest.mark.parametrize(
    "code",
    [
        "if worker.is_dflash(): pass",
        'kind = "eagle"',
        "def ngram_wait(): ...",
        'f"{x} on rocm"',
        "NVIDIA = 1",
    ],
)
def test_the_search_finds_names(code: str) -> None:
    assert named(code)


def test_comments_are_exempt() -> None:
    assert not named("x = 1  # as in DFLASH\n")
