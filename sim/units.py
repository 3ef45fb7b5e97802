"""Simulated time is integer nanoseconds; this file is the only place that converts.

Durations in files are microseconds unless a unit is written beside them.
"""

from __future__ import annotations

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

#: nanoseconds in one of each unit a file may name
NS_PER_UNIT = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}


def us_to_ns(us: float) -> int:
    """Microseconds to the nearest nanosecond."""
    return round(us * NS_PER_US)


def format_ns(ns: float) -> str:
    """A duration for people, four significant digits: ``7.768 ms``, ``48.00 us``, ``2.302 s``."""
    for unit in ("s", "ms", "us"):
        scale = NS_PER_UNIT[unit]
        if abs(ns) >= scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns:.4g} ns"
