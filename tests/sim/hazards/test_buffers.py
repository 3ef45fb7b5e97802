"""Buffers and columns as step programs write them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sim.program.buffers import Access, Column, parse_access
from sim.program.step_program import Kind, Operation, Phase


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("pinned_mirror", Access("pinned_mirror")),
        ("future_map.tokens[rows]", Access("future_map.tokens", True)),
        ("t[0:seq]", Access("t", True, Column(0), Column(0, (("seq", 1),)))),
        ("t[seq]", Access("t", True, Column(0, (("seq", 1),)), Column(1, (("seq", 1),)))),
        (
            "t[allocated:committed+2B]",
            Access("t", True, Column(0, (("allocated", 1),)), Column(0, (("committed", 1), ("B", 2)))),
        ),
        (
            "t[seq-B-4:3+prompt]",
            Access("t", True, Column(-4, (("seq", 1), ("B", -1))), Column(3, (("prompt", 1),))),
        ),
    ],
)
def test_an_access_is_read(text: str, access: Access) -> None:
    assert parse_access(text) == access


@pytest.mark.parametrize(
    "text",
    ["", "t[", "t]", "t[]", "t[x:seq]", "t[seq B]", "t[1:2:3]", "9t", "t[seq*2]", "t[rows]x", "t[2seqs]"],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|more than one"):
        parse_access(text)


def test_a_step_program_with_an_unreadable_buffer_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(ValidationError, match=r"t\[seqs\].*not a sum"):
        Operation(phase=Phase.FORWARD, name="x", kind=Kind.KERNEL, reads=("t[seqs]",))


def test_fresh_and_slot_addressed_buffers_are_told_by_their_names() -> None:
    assert parse_access("batch.seq_lens").fresh
    assert parse_access("draft_kv.3[0:seq]").by_slot
    assert not parse_access("kvx[0:seq]").by_slot
