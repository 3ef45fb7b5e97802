"""The cost profile of a device: ``configs/devices/<profile>.toml``, checked.

A cost is a duration as a function of the batch (rows), the tokens of the step (rows × block) and the context
(mean committed tokens a request, prompt included):

    duration = value(batch) + per_batch·batch + per_token·tokens + per_context(batch)·context

``value`` and ``per_context`` are numbers, or lists over ``batch`` (piecewise linear between the given batches,
extended with the slope of the last two). Nowhere in its ``valid_range`` is it below zero
(:mod:`sim.config.below_zero`); where extending it leads there, it counts as 0 and the result says so.

A draw multiplies it by a factor of mean one with relative standard deviation ``within_sd`` (from iteration to
iteration) and, between boots, ``boot_sd``; host costs share the boot factor of :class:`HostState` instead.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from sim.units import NS_PER_UNIT

Semantics = Literal[
    "publish_wait_on_stream",
    "result_copy_stream",
    "stream_wait_holds_host",
    "graph_launch_holds_host",
    "record_joins_streams",
]
#: probabilities whose host states bound the states of a new boot in `pi95`
NEW_BOOT = (0.025, 0.975)
Status = Literal["measured", "scaled", "assumed", "published", "fitted", "exact"]
#: of a duration, in its unit
Amount = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Amounts = Annotated[tuple[Amount, ...], Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
#: a relative standard deviation
Spread = Annotated[float, Field(ge=0, le=100)]


def _probability(text: str) -> str:
    if re.fullmatch(r"0?\.[0-9]{1,12}", text) is None:
        raise PydanticCustomError(
            "refused", "probability", {"expected": 'a probability as a key, as "0.975"'}
        )
    return text


#: as a key
Probability = Annotated[str, AfterValidator(_probability)]
#: what a duration is multiplied by
Factor = Annotated[float, Field(gt=0, le=1e6)]


class Cost(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    value: Amount | Amounts
    unit: Literal["ns", "us", "ms", "s"] = "us"
    #: batches the list values belong to, ascending; omitted for scalars
    batch: tuple[Annotated[int, Field(ge=1, lt=2**31)], ...] | None = None
    per_batch: Amount = 0.0
    per_token: Amount = 0.0
    per_context: Amount | Amounts = 0.0
    #: share of the context slope below which a graph does not get however few of its rows are filled: rows side by
    #: side take as long as one of them until they fill the device
    context_floor: Share | tuple[Share, ...] = 0.0
    #: what a row of a graph costs more when it is empty than when it is filled, context aside
    per_empty: Amount | Amounts = 0.0
    #: by what share a graph is shorter on a device that idles for the share ``relief_at`` of its time; in proportion
    #: below, no more above. A device at its power or current limit clocks down under work without a pause
    relief: Share | tuple[Share, ...] = 0.0
    relief_at: Share | tuple[Share, ...] = 1.0
    #: relative standard deviations
    within_sd: Spread = 0.0
    boot_sd: Spread = 0.0
    #: {"batch": [lo, hi], "context": [lo, hi], "tokens": [lo, hi]}: outside, the answer is `extrapolated`
    valid_range: dict[Literal["batch", "context", "tokens"], tuple[Amount, Amount]] = {}
    status: Status = "assumed"
    source: str = ""

    @model_validator(mode="after")
    def lists_match_batches(self) -> Cost:
        for name in ("value", "per_context", "context_floor", "per_empty", "relief", "relief_at"):
            given = getattr(self, name)
            if isinstance(given, tuple) and (self.batch is None or len(given) != len(self.batch)):
                raise ValueError(
                    f"{name} lists {len(given)} entries but batch lists {len(self.batch or ())}; give one a batch"
                )
        if self.batch is not None and list(self.batch) != sorted(set(self.batch)):
            raise ValueError("batch must be ascending without repeats")
        for argument, (low, high) in self.valid_range.items():
            if low > high:
                raise ValueError(
                    f"valid_range of {argument} runs from {low:g} down to {high:g}; low comes first"
                )
        return self

    def reading(self, rows: int, filled: int) -> float:
        """Share of the context slope that counts in a graph of ``rows`` rows, ``filled`` of which are."""
        return max(held_outside(self.context_floor, self.batch, rows), filled / rows)

    def emptiness(self, rows: int, filled: int) -> float:
        """What the empty rows of a graph of ``rows`` rows add, in the cost's unit."""
        return at_batch(self.per_empty, self.batch, rows) * (rows - filled)

    def relieved(self, rows: int, idle_share: float) -> float:
        """Factor on a graph of ``rows`` rows on a device that idles for a share of its time."""
        relief = held_outside(self.relief, self.batch, rows)
        if not relief or not idle_share:
            return 1.0
        at = held_outside(self.relief_at, self.batch, rows)
        return 1.0 - relief * (min(1.0, idle_share / at) if at else 1.0)

    def scaled(self, factor: float) -> Cost:
        """The same cost, ``factor`` times as long."""

        def times(x: float | tuple[float, ...]) -> float | tuple[float, ...]:
            return tuple(v * factor for v in x) if isinstance(x, tuple) else x * factor

        return self.model_copy(
            update={
                "value": times(self.value),
                "per_batch": self.per_batch * factor,
                "per_token": self.per_token * factor,
                "per_context": times(self.per_context),
                "per_empty": times(self.per_empty),
            }
        )

    @property
    def ns_per_unit(self) -> int:
        return NS_PER_UNIT[self.unit]


def at_batch(given: float | tuple[float, ...], batches: tuple[int, ...] | None, batch: float) -> float:
    """A scalar, or the piecewise linear value at ``batch``, extended with the slope of the last two entries."""
    if not isinstance(given, tuple):
        return given
    assert batches is not None
    if len(given) == 1:
        return given[0]
    i = min(max(bisect_left(batches, batch), 1), len(batches) - 1)
    b0, b1 = batches[i - 1], batches[i]
    v0, v1 = given[i - 1], given[i]
    return v0 + (v1 - v0) * (batch - b0) / (b1 - b0)


def held_outside(given: float | tuple[float, ...], batches: tuple[int, ...] | None, batch: float) -> float:
    """As :func:`at_batch`, for a share: held outside the listed batches, where a line would leave 0 to 1."""
    if batches is not None:
        batch = min(max(batch, batches[0]), batches[-1])
    return at_batch(given, batches, batch)


class HostState(BaseModel):
    """One factor moves all host costs of a boot together.

    ``quantiles`` maps probabilities to the factor, relative to the state the costs are stated at (factor 1).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    quantiles: dict[Probability, Factor] = {"0.025": 1.0, "0.5": 1.0, "0.975": 1.0}
    #: relative standard deviation of one common host factor from iteration to iteration
    within_sd: Spread = 0.0
    source: str = ""

    @model_validator(mode="after")
    def quantiles_reach_both_ends(self) -> HostState:
        factors = {float(p): factor for p, factor in self.quantiles.items()}
        missing = [end for end in NEW_BOOT if end not in factors]
        found = ""
        if missing:
            found = f"no factor for {' and '.join(map(str, missing))}"
        elif len(factors) < len(self.quantiles):
            found = "a probability twice"
        elif factors[NEW_BOOT[0]] > factors[NEW_BOOT[1]]:
            found = f"{factors[NEW_BOOT[0]]:g} at {NEW_BOOT[0]} and {factors[NEW_BOOT[1]]:g} at {NEW_BOOT[1]}"
        if found:
            raise PydanticCustomError(
                "refused",
                "quantiles",
                {
                    "key": "quantiles",
                    "found": found,
                    "expected": "ascending factors for at least 0.025 and 0.975, between which new boots are",
                    "remedy": "Leave quantiles out where the spread is not known: every factor is then 1.",
                },
            )
        return self


class DeviceProfile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    description: str = ""
    #: "measured here" | "published, not measured" | "assumed" | "exact": shown with every result
    status: Literal["measured", "published", "assumed", "exact"]
    platform: Literal["cuda", "hip"] = "cuda"
    #: where this device's runtime differs from its platform's row: names of
    #: :class:`~sim.program.policies.PlatformSemantics`
    semantics: dict[Semantics, bool] = {}
    #: profile this one starts from: costs it does not state are that one's, scaled, with status "assumed"
    base: str | None = None
    #: of host costs, and of the model's graphs and prefills; what else the device does (hops, small kernels and
    #: copies between them) is bound by latency and taken over as it is
    base_host_scale: Factor = 1.0
    base_model_scale: Factor = 1.0
    #: why the two scales are what they are
    base_source: str = ""
    #: engine whose programs a scenario means when it names none
    engine: str
    #: device, driver, engine commit, date, command, host
    provenance: dict[str, str] = {}
    host_state: HostState = HostState()
    #: relative spread between boots of all device costs together
    device_boot_sd: Spread = 0.0
    #: host: {"host." and "call." costs}; device: everything else, see `Cost`
    costs: dict[str, Cost]

    def over(self, base: DeviceProfile) -> DeviceProfile:
        """This profile with the costs (and the host state) it does not state taken from ``base``, as assumed ones."""
        costs = {name: self._taken_over(name, cost, base.name) for name, cost in base.costs.items()}
        stated: dict[str, object] = {"costs": {**costs, **self.costs}}
        if "host_state" not in self.model_fields_set:
            stated["host_state"] = base.host_state
        return self.model_copy(update=stated)

    def _taken_over(self, name: str, cost: Cost, base: str) -> Cost:
        factor = 1.0
        if is_host_cost(name):
            factor = self.base_host_scale
        elif is_model_cost(name):
            factor = self.base_model_scale
        source = f"{base} times {factor:g}: {self.base_source or 'nothing published'}"
        return cost.scaled(factor).model_copy(update={"status": "assumed", "source": source})


def is_host_cost(name: str) -> bool:
    """Whether a cost is time of the host thread."""
    return name.startswith(("host.", "call."))


def is_model_cost(name: str) -> bool:
    """Whether a cost is the model's own work on the device: its graphs and its prefills."""
    return name.startswith(("graph.", "prefill."))
