"""Costs that say a duration is below zero where they claim to be valid.

Checked at the corners of ``valid_range`` and, of a table over batch, at every batch in it: between them a cost is a
straight line. What a cost does outside its range is nobody's claim (:class:`~sim.machine.costs.CostBook` counts it
as 0 there and says so); a cost that falls with something and states no range claims to be valid everywhere, which
cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from sim.config.checked import dotted
from sim.config.profile import Cost, DeviceProfile, at_batch, held_outside
from sim.errors import Problem

#: of a duration, in ns: what rounding the entries of a file may leave below zero
ROUNDING_NS = 0.5


@dataclass(frozen=True)
class Lowest:
    """Where a cost is least in its range: ``value`` in its unit at ``batch`` rows, ``filled`` of which are."""

    value: float
    batch: float
    filled: float
    tokens: float
    context: float

    def __str__(self) -> str:
        empty = f", {self.filled:g} of them filled" if self.filled != self.batch else ""
        return f"batch {self.batch:g}{empty}, {self.tokens:g} tokens and context {self.context:g}"


def problems(profile: DeviceProfile, file: str) -> list[Problem]:
    """Every cost of ``profile`` that is below zero in its valid range, or falls without stating one."""
    return problems_of(profile.costs, f"{file}: costs")


def problems_of(costs: Mapping[str, Cost], where: str) -> list[Problem]:
    """The same of the costs at ``where`` (``"file.toml: costs"``)."""
    return [p for name, cost in costs.items() for p in _of(cost, f"{where}.{dotted((name,))}")]


def _of(cost: Cost, where: str) -> Iterator[Problem]:
    falls = {
        "batch": ("per_batch", cost.batch is None and cost.per_batch < 0),
        "tokens": ("per_token", cost.per_token < 0),
        "context": ("per_context", min(_entries(cost.per_context)) < 0),
    }
    endless = [
        (argument, key) for argument, (key, yes) in falls.items() if yes and argument not in cost.valid_range
    ]
    for argument, key in endless:
        yield Problem(
            where,
            f"{key} below 0 and no valid_range of {argument}, so that the cost is below 0 somewhere",
            f"valid_range = {{ {argument} = [low, high] }}, in which the cost stays at 0 or above",
        )
    found = lowest(cost)
    if not endless and found.value * cost.ns_per_unit < -ROUNDING_NS:
        yield Problem(
            where,
            f"{found.value:.6g} {cost.unit} at {found}",
            "0 or above everywhere in its valid_range",
            "Correct the cost, or narrow valid_range to where it was obtained.",
        )


def lowest(cost: Cost) -> Lowest:
    """The least of a cost at the corners of its valid range and at the batches it lists there."""
    batches = [float(b) for b in cost.batch or () if b >= 1] or [1.0]
    if "batch" in cost.valid_range:
        low, high = cost.valid_range["batch"]
        low = max(low, 1.0)
        batches = [low, *(b for b in batches if low < b < high), high] if low <= high else batches
    corners = product(
        batches,
        (False, True),
        cost.valid_range.get("tokens", (0.0,)),
        cost.valid_range.get("context", (0.0,)),
    )
    return min(
        (
            _at(cost, batch, 1.0 if emptied else batch, tokens, context)
            for batch, emptied, tokens, context in corners
        ),
        key=lambda found: found.value,
    )


def _at(cost: Cost, batch: float, filled: float, tokens: float, context: float) -> Lowest:
    base = at_batch(cost.value, cost.batch, batch) + cost.per_batch * batch + cost.per_token * tokens
    floor = held_outside(cost.context_floor, cost.batch, batch)
    slope = at_batch(cost.per_context, cost.batch, batch) * max(floor, filled / batch)
    empty = at_batch(cost.per_empty, cost.batch, batch) * (batch - filled)
    return Lowest(base + empty + slope * context, batch, filled, tokens, context)


def _entries(given: float | tuple[float, ...]) -> tuple[float, ...]:
    return given if isinstance(given, tuple) else (given,)
