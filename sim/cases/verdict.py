"""When a predicted change agrees with a published one: the same sign and the same class of magnitude.

Fixed before any case was predicted. Classes: none (below 0.5 %, what two boots of one server differ by: sglang
28843 and the GH200 document name 0.4 to 1.0 %), below 2 %, 2 to 5 %, 5 to 15 %, above 15 %. A change of class none
has no sign. Where the source repeats its measurement and gives a range, every class the range touches agrees.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum

#: upper ends of the classes in per cent
EDGES = (0.5, 2.0, 5.0, 15.0)
CLASSES = ("none", "< 2 %", "2–5 %", "5–15 %", "> 15 %")


class Verdict(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


def magnitude(change_percent: float) -> str:
    return CLASSES[bisect_right(EDGES, abs(change_percent))]


def signed(change_percent: float) -> int:
    """−4 … 4: the class with its sign, 0 for none."""
    rank = bisect_right(EDGES, abs(change_percent))
    return rank if change_percent > 0 else -rank


def verdict(
    decidable: bool,
    predicted_percent: float | None,
    published_percent: float | None,
    low_percent: float | None = None,
    high_percent: float | None = None,
) -> Verdict:
    """The verdict of a case. A decidable case whose *before* the model cannot show disagrees."""
    if not decidable or published_percent is None:
        return Verdict.UNDECIDED
    if predicted_percent is None:
        return Verdict.DISAGREES
    low = published_percent if low_percent is None else low_percent
    high = published_percent if high_percent is None else high_percent
    return Verdict.AGREES if signed(low) <= signed(predicted_percent) <= signed(high) else Verdict.DISAGREES
