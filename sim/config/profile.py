"""The cost profile of a device: ``configs/devices/<profile>.toml``, checked.

A cost is a duration as a function of the batch (rows), the tokens of the step (rows × block) and the context
(mean committed tokens a request, prompt included):

    duration = value(batch) + per_batch·batch + per_token·tokens + per_context(batch)·context

``value`` and ``per_context`` are numbers, or lists over ``batch`` (piecewise linear between the given batches,
extended with the slope of the last two). A draw multiplies it by a factor of mean one with relative standard
deviation ``within_sd`` (from iteration to iteration) and, between boots, ``boot_sd``; host costs share the boot
factor of :class:`HostState` instead.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim.units import NS_PER_UNIT

Status = Literal["measured", "scaled", "assumed", "published", "fitted", "exact"]


class Cost(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float | tuple[float, ...]
    unit: Literal["ns", "us", "ms", "s"] = "us"
    #: batches the list values belong to, ascending; omitted for scalars
    batch: tuple[int, ...] | None = None
    per_batch: float = 0.0
    per_token: float = 0.0
    per_context: float | tuple[float, ...] = 0.0
    #: relative standard deviations
    within_sd: float = Field(default=0.0, ge=0)
    boot_sd: float = Field(default=0.0, ge=0)
    #: {"batch": [lo, hi], "context": [lo, hi], "tokens": [lo, hi]}: outside, the answer is `extrapolated`
    valid_range: dict[Literal["batch", "context", "tokens"], tuple[float, float]] = {}
    status: Status = "assumed"
    source: str = ""

    @model_validator(mode="after")
    def lists_match_batches(self) -> Cost:
        for name in ("value", "per_context"):
            given = getattr(self, name)
            if isinstance(given, tuple) and (self.batch is None or len(given) != len(self.batch)):
                raise ValueError(
                    f"{name} lists {len(given)} entries but batch lists {len(self.batch or ())}; give one a batch"
                )
        if self.batch is not None and list(self.batch) != sorted(set(self.batch)):
            raise ValueError("batch must be ascending without repeats")
        return self

    @property
    def ns_per_unit(self) -> int:
        return NS_PER_UNIT[self.unit]


class HostState(BaseModel):
    """One factor moves all host costs of a boot together.

    ``quantiles`` maps probabilities to the factor, relative to the state the costs are stated at (factor 1).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    quantiles: dict[str, float] = {"0.025": 1.0, "0.5": 1.0, "0.975": 1.0}
    #: relative standard deviation of one common host factor from iteration to iteration
    within_sd: float = Field(default=0.0, ge=0)
    source: str = ""


class DeviceProfile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    description: str = ""
    #: "measured here" | "published, not measured" | "assumed" | "exact": shown with every result
    status: Literal["measured", "published", "assumed", "exact"]
    platform: Literal["cuda", "hip"] = "cuda"
    #: engine whose programs a scenario means when it names none
    engine: str
    #: device, driver, engine commit, date, command, host
    provenance: dict[str, str] = {}
    host_state: HostState = HostState()
    #: relative spread between boots of all device costs together
    device_boot_sd: float = Field(default=0.0, ge=0)
    #: host: {"host." and "call." costs}; device: everything else, see `Cost`
    costs: dict[str, Cost]
