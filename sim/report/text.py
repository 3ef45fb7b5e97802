"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def number(value: float | None, digits: int = 4) -> str:
    """``digits`` significant digits, thousands grouped, no exponents for the sizes that occur."""
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(share: float | None, digits: int = 2) -> str:
    """A share as signed per cent."""
    if share is None:
        return "–"
    text = f"{100 * share:+.{digits}f}"
    return ("0." + "0" * digits if float(text) == 0 else text).replace("-", "−") + " %"


def span(interval: Sequence[float] | None, digits: int = 4) -> str:
    return "–" if interval is None else f"{number(interval[0], digits)} … {number(interval[1], digits)}"


def percent_span(interval: Sequence[float] | None, digits: int = 2) -> str:
    if interval is None:
        return "–"
    low, high = (percent(end, digits).removesuffix(" %") for end in interval)
    return f"{low} … {high} %"


def microseconds(value: float | None) -> str:
    """A signed difference in µs."""
    if value is None:
        return "–"
    return f"{value:+,.0f}".replace("-", "−")


def place(at: Mapping[str, Any]) -> str:
    """``concurrency 32, host_scale 1``."""
    return ", ".join(f"{name} {short(value)}" for name, value in at.items())


def short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def joined(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
