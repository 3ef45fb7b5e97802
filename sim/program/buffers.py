"""What an operation reads or writes: a buffer by name, and the columns of which rows.

Written in a step program's ``reads`` and ``writes``:

===================  ===================================================================================
``pinned_mirror``    the whole buffer
``tokens[rows]``     the rows of the iteration's batch, all columns
``table[a:b]``       those rows, columns a (inclusive) to b (exclusive)
``table[a]``         those rows, column a
===================  ===================================================================================

A column is a sum of whole numbers and of multiples of the quantities in :data:`QUANTITIES`, as in
``allocated:committed+2B``. Two names mean something: what starts with ``batch.`` is made anew in every iteration,
and buffers in :data:`BY_SLOT` are addressed by KV slot, so that their columns belong to a request and not to a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

#: what a column may be made of, a request's values as they stand when its iteration is launched
QUANTITIES = {
    "seq": "committed tokens on the device, prompt included",
    "committed": "committed tokens whose results the host has processed, prompt included",
    "allocated": "columns that earlier preparations allocated",
    "prompt": "prompt tokens",
    "B": "positions a step verifies (block size)",
}
FRESH = "batch."
BY_SLOT = ("kv", "draft_kv", "swa_map")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_ACCESS = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")
_TERM = re.compile(r"([+-]?)(\d*)([A-Za-z]*)")


class Column(NamedTuple):
    """``constant`` + Σ factor × quantity; quantities in the order of :data:`QUANTITIES`, zeros left out."""

    constant: int
    terms: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """One buffer access. ``low`` and ``high`` are None for the whole buffer and for whole rows."""

    buffer: str
    by_row: bool = False
    low: Column | None = None
    high: Column | None = None

    @property
    def fresh(self) -> bool:
        """A new buffer every iteration: no conflict with other iterations."""
        return self.buffer.startswith(FRESH)

    @property
    def by_slot(self) -> bool:
        return self.buffer.split(".", 1)[0] in BY_SLOT


@lru_cache(maxsize=1024)
def parse_access(text: str) -> Access:
    """The access written as ``text``. Raises ValueError saying what is wrong with it."""
    match = _ACCESS.fullmatch(text.strip())
    if match is None or _NAME.fullmatch(match[1]) is None:
        raise ValueError(f'"{text}" is not a buffer; write "name", "name[rows]" or "name[first:end]"')
    name, columns = match[1], match[2]
    if columns is None:
        return Access(name)
    if columns == "rows":
        return Access(name, by_row=True)
    ends = columns.split(":")
    if len(ends) > 2:
        raise ValueError(f'"{text}" has more than one colon between its brackets')
    low = _column(ends[0], text)
    high = _column(ends[1], text) if len(ends) == 2 else Column(low.constant + 1, low.terms)
    return Access(name, True, low, high)


def _column(text: str, whole: str) -> Column:
    factors = dict.fromkeys(QUANTITIES, 0)
    constant, at = 0, 0
    compact = text.replace(" ", "")
    while at < len(compact):
        match = _TERM.match(compact, at)
        if match is None or match.end() == at or not (match[2] or match[3]) or (at and not match[1]):
            break
        factor = int(match[2] or 1) * (-1 if match[1] == "-" else 1)
        if match[3] and match[3] not in QUANTITIES:
            break
        if match[3]:
            factors[match[3]] += factor
        else:
            constant += factor
        at = match.end()
    if not compact or at < len(compact):
        known = ", ".join(QUANTITIES)
        raise ValueError(f'"{whole}": column "{text}" is not a sum of whole numbers and multiples of {known}')
    return Column(constant, tuple((name, factor) for name, factor in factors.items() if factor))
