"""What several commands read off their options."""

from __future__ import annotations

from pathlib import Path

from sim.config.paths import is_path
from sim.errors import InputError, Problem


def files_named(names: dict[str, str]) -> dict[str, Path | None]:
    """Arguments that are paths rather than bare names, by what the user typed them for."""
    return {argument: Path(name) for argument, name in names.items() if is_path(name)}


def fraction(text: str | None) -> float | None:
    """``--until``: ``0.2%`` or ``0.002``. Raises InputError."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise InputError(
            Problem("--until", f'"{text}"', "a relative half-width between 0 and 100 %, as 0.2%")
        )
    return value
