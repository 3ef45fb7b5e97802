"""What tells fast from slow: the cycle where all accept alike, else throughput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from sim.stats.paired import RESOLUTION

Quantity = Literal["cycle_us", "throughput_tok_s"]
#: said wherever throughput decides
WHY = "by throughput, since the variants accept different numbers of tokens a step"


def deciding(points: Iterable[Iterable[Mapping[str, Any]]]) -> Quantity:
    """The quantity that results are compared by; ``points``: the results at each point that meet each other.

    Steps of equally many tokens are compared by how long they take. Where the tokens of a step differ by more than
    :data:`RESOLUTION` a short step may bring few of them, and only throughput tells.
    """
    for results in points:
        tokens = [t for r in results if (t := r["accepted_per_step"]["with_bonus"]) is not None]
        if tokens and max(tokens) > min(tokens) * (1 + RESOLUTION):
            return "throughput_tok_s"
    return "cycle_us"
