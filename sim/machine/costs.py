"""From cost names to integer nanoseconds: the profile at a batch and context, scaled, with keyed noise.

Noise of a cost is drawn from a stream keyed by (run, cost name) and indexed by the iteration, so
two policies that run the same cost in the same iteration see the same draw.
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.config.profile import Cost, DeviceProfile, at_batch
from sim.errors import InputError, Problem
from sim.program.primitives import FIRST_LAUNCH, Act, Primitive, first_launches
from sim.program.step_program import Kind
from sim.randomness import Purpose, RunKey, stream

#: iterations of noise drawn at a time
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Scales:
    host: float = 1.0
    device: float = 1.0


@dataclass(slots=True)
class CostedStep:
    """Costs of a primitive list: ``base + slope·context`` for host and device parts, concatenated (2n entries)."""

    base: NDArray[np.float64]
    slope: NDArray[np.float64]
    columns: NDArray[np.intp]
    names: list[str | None]
    noisy: bool
    fixed: list[int] | None = None
    #: some entry falls with the context, and may fall below zero
    falls: bool = False
    block: int = -1
    factors: NDArray[np.float64] | None = None


class CostBook:
    """Looks up and draws the costs of one run.

    ``noise`` off gives the central costs; ``idle_share``: of the device's time, for graphs that depend on it. Raises
    :class:`InputError` for a name the profile does not have.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        scales: Scales,
        key: RunKey,
        noise: bool = True,
        idle_share: float = 0.0,
    ):
        self.profile = profile
        self.scales = scales
        self._idle_share = idle_share
        self._key = key
        self._noise = noise
        #: noise columns: 0 is "no noise", the others "h:<name>" or "d:<name>" in order of first use
        self._columns: dict[str, int] = {"": 0}
        self._keys = [""]
        self._drawn: list[tuple[int, NDArray[np.float64]]] = [(-1, np.ones(_BLOCK))]
        #: costs used outside their valid range: name → how far outside, in widths of the range
        self.extrapolated: dict[str, float] = {}
        #: costs that came out below zero, which a valid range excludes, and counted as 0
        self.clipped: set[str] = set()
        self.largest_context = 0.0
        self._used: set[str] = set()

    def lookup(self, name: str, where: str) -> Cost:
        cost = self.profile.costs.get(name)
        if cost is None:
            near = difflib.get_close_matches(name, self.profile.costs, n=3)
            raise InputError(
                Problem(
                    f"device profile {self.profile.name}: costs",
                    f'no cost "{name}", which {where} needs',
                    f'an entry [costs."{name}"]' + (f"; near: {', '.join(near)}" if near else ""),
                    "Add it with its value, status and source, or choose a device that has it.",
                )
            )
        return cost

    def evaluate(
        self, name: str, batch: int, tokens: int, where: str, filled: int | None = None
    ) -> tuple[float, float]:
        """(nanoseconds at context 0, nanoseconds a context token) of a cost at a batch, unscaled.

        ``filled``: rows of a graph that hold a request, where not all do.
        """
        cost = self.lookup(name, where)
        unit = cost.ns_per_unit
        base = at_batch(cost.value, cost.batch, batch) + cost.per_batch * batch + cost.per_token * tokens
        slope = at_batch(cost.per_context, cost.batch, batch)
        empty = 0.0 if filled is None else cost.emptiness(batch, filled)
        self._check_range(name, "batch", batch)
        self._check_range(name, "tokens", tokens)
        if base + empty < 0:
            self.clipped.add(name)
            base = empty = 0.0
        return base * unit + empty * unit, slope * unit

    def compile(
        self,
        primitives: Sequence[Primitive],
        batch: int,
        padded: int,
        block_size: int,
        tokens: int | None = None,
    ) -> CostedStep:
        """Costs of a list at ``batch`` rows (graphs at ``padded``); ``tokens`` defaults to rows × block.

        A graph's context slope is shared out over the padded rows, down to its floor: empty rows read nothing.
        """
        n = len(primitives)
        base, slope = np.zeros(2 * n), np.zeros(2 * n)
        columns = np.zeros(2 * n, dtype=np.intp)
        names: list[str | None] = [None] * (2 * n)
        firsts = first_launches(primitives) if FIRST_LAUNCH in self.profile.costs else frozenset()
        for i, p in enumerate(primitives):
            where = f"operation {p.name}"
            row_tokens = batch * block_size if tokens is None else tokens
            if p.host is not None:
                b, s = self.evaluate(p.host, batch, row_tokens, where)
                if i in firsts:
                    b += self.evaluate(FIRST_LAUNCH, batch, row_tokens, where)[0]
                base[i], slope[i] = (x * p.share * self.scales.host for x in (b, s))
                columns[i], names[i] = self._column(p.host, host=True), p.host
            if p.act is Act.LAUNCH and p.device is not None:
                graph = p.kind is Kind.GRAPH
                rows = padded if graph else batch
                device_tokens = rows * block_size if tokens is None else tokens
                b, s = self.evaluate(p.device, rows, device_tokens, where, batch)
                cost = self.profile.costs[p.device]
                scale = self.scales.device * cost.relieved(rows, self._idle_share)
                base[n + i], slope[n + i] = b * scale, s * scale * cost.reading(rows, batch)
                columns[n + i], names[n + i] = self._column(p.device, host=False), p.device
        noisy = self._noise and any(self._is_noisy(name) for name in names if name)
        step = CostedStep(base, slope, columns, names, noisy, falls=bool((slope < 0).any()))
        if not noisy and not slope.any():
            step.fixed = np.rint(base).astype(np.int64).tolist()
        return step

    def scalar(self, name: str, host: bool, batch: int = 1) -> int:
        """A machine constant (wake, hop) in nanoseconds, scaled, without noise."""
        b, _ = self.evaluate(name, batch, 1, "the machine")
        return round(b * (self.scales.host if host else self.scales.device))

    def wakes(self, primitives: Sequence[Primitive], batch: int) -> dict[int, int]:
        """Index of each SYNC whose wake has a cost of its own in the profile → that cost at ``batch`` rows, ns."""
        return {
            i: self.scalar(p.own_wake, host=True, batch=batch)
            for i, p in enumerate(primitives)
            if p.act is Act.SYNC and p.own_wake in self.profile.costs
        }

    def draw(self, step: CostedStep, context: float, iteration: int) -> list[int]:
        """Durations of one iteration: n host entries, then n device entries."""
        if step.fixed is not None:
            return step.fixed
        v = step.base + step.slope * context
        if step.falls and (v < 0).any():
            self.clipped.update(name for name, below in zip(step.names, v < 0, strict=True) if below and name)
            v = np.maximum(v, 0.0)
        if step.noisy:
            block, k = divmod(iteration, _BLOCK)
            if step.block != block or step.factors is None:
                step.factors = np.stack([self._factors(c, block) for c in step.columns], axis=1)
                step.block = block
            v *= step.factors[k]
        if context > self.largest_context:
            self.largest_context = context
        return np.rint(v).astype(np.int64).tolist()

    # -- noise -----------------------------------------------------------------------------------------

    def _is_noisy(self, name: str) -> bool:
        return self.profile.costs[name].within_sd > 0 or self.profile.host_state.within_sd > 0

    def _column(self, name: str, host: bool) -> int:
        key = ("h:" if host else "d:") + name
        if key not in self._columns:
            self._columns[key] = len(self._drawn)
            self._keys.append(key)
            self._used.add(name)
            self._drawn.append((-1, np.ones(_BLOCK)))
        return self._columns[key]

    def _factors(self, column: int, block: int) -> NDArray[np.float64]:
        """Mean-one lognormal factors of one cost for one block of iterations."""
        at, drawn = self._drawn[column]
        if at == block or column == 0:
            return drawn
        key = self._keys[column]
        name = key[2:]
        drawn = _lognormal(self.profile.costs[name].within_sd, zlib.crc32(name.encode()), self._key, block)
        if key[0] == "h" and self.profile.host_state.within_sd > 0:
            drawn = drawn * _lognormal(self.profile.host_state.within_sd, 0, self._key, block)
        self._drawn[column] = (block, drawn)
        return drawn

    def check_context(self) -> None:
        """Adds costs whose valid context range the run left to :attr:`extrapolated`."""
        for name in sorted(self._used):
            self._check_range(name, "context", self.largest_context)

    def _check_range(self, name: str, argument: Literal["batch", "tokens", "context"], value: float) -> None:
        limits = self.profile.costs[name].valid_range.get(argument)
        if limits is None or limits[0] <= value <= limits[1]:
            return
        outside = limits[0] - value if value < limits[0] else value - limits[1]
        width = max(limits[1] - limits[0], 1.0)
        self.extrapolated[name] = max(self.extrapolated.get(name, 0.0), outside / width)


def _lognormal(sd: float, name: int, key: RunKey, block: int) -> NDArray[np.float64]:
    """Factors of mean one and relative standard deviation ``sd``, keyed by run, cost name and block."""
    if sd <= 0:
        return np.ones(_BLOCK)
    sigma2 = float(np.log1p(sd**2))
    z = stream(key, Purpose.COST, name, block).standard_normal(_BLOCK)
    factors: NDArray[np.float64] = np.exp(np.sqrt(sigma2) * z - sigma2 / 2)
    return factors
