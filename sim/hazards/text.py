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
    """What meets what, how often, how close, and why it matters or does not (the last two where the result says)."""
    head = "{severity}: {kind} on {buffer}, {count} times".format(**hazard)
    if "first" not in hazard:
        return head
    first, second = hazard["first"], hazard["second"]
    margin = hazard["margin_us"]
    close = f"overlapping by up to {-margin:g} µs" if margin < 0 else f"{margin:g} µs apart at the closest"
    return (
        f"{head}, {second['operation']} ({second['lane']}) against {first['operation']} ({first['lane']}), {close}: "
        f"{hazard['explanation']}"
    )


def _conflicts(n: int, what: str) -> str:
    return f"{n} {what} conflict" + ("" if n == 1 else "s")
