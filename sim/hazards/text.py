"""Findings in words, from their JSON form: one sentence of verdict and one line a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.hazards.rules import Severity


def harmful(hazards: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [h for h in hazards or () if h["severity"] == Severity.HARMFUL]


def verdict(hazards: Sequence[dict[str, Any]] | None) -> str:
    """``UNSAFE``, ``safe`` or that nobody looked."""
    if hazards is None:
        return "not checked"
    bad, good = len(harmful(hazards)), len(hazards) - len(harmful(hazards))
    if bad:
        return f"UNSAFE: {_conflicts(bad, 'harmful')} that nothing orders"
    return (
        f"safe: {_conflicts(good, 'benign')} and no harmful one"
        if good
        else "safe: every shared access is ordered"
    )


def line(hazard: dict[str, Any]) -> str:
    """What meets what, how often, how close, and why it matters or does not."""
    first, second = hazard["first"], hazard["second"]
    margin = hazard["margin_us"]
    close = f"overlapping by up to {-margin:g} µs" if margin < 0 else f"{margin:g} µs apart at the closest"
    return (
        f"{hazard['severity']}: {hazard['kind']} on {hazard['buffer']}, {second['operation']} ({second['lane']}) "
        f"against {first['operation']} ({first['lane']}), {hazard['count']} times, {close}: {hazard['explanation']}"
    )


def _conflicts(n: int, what: str) -> str:
    return f"{n} {what} conflict" + ("" if n == 1 else "s")
