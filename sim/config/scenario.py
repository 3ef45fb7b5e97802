"""The scenario a user writes: ``configs/scenarios/<scenario>.toml``, checked.

Every policy key may be left out; :mod:`sim.config.resolve` then fills it from what the step program declares
and says why. Only ``device`` has no default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from sim.capabilities import Barrier, BarrierPlacement, HostLengths, PrepStream, Relay

Count = Annotated[int, Field(ge=1, lt=2**31)]
#: of a batch: tables over the batch reach as far, and so does the request pool
Rows = Annotated[int, Field(ge=1, le=65_536)]
Scale = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
#: requests a second; rarer ones would come after more nanoseconds than are counted
Rate = Annotated[float, Field(gt=1e-9, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Mean = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LogNormal(_Table):
    """Lengths drawn from a log-normal with this mean (tokens) and coefficient of variation."""

    distribution: Literal["lognormal"]
    mean: Annotated[float, Field(ge=1, lt=2**31, allow_inf_nan=False)]
    cv: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class _Listed(_Table):
    """Values listed in a file, which the loader reads into ``values``; given those, it is not read."""

    file: str | None = None

    @model_validator(mode="after")
    def file_or_values(self) -> _Listed:
        if self.file is None and not getattr(self, "values", None):
            raise PydanticCustomError(
                "refused",
                "no values",
                {"found": "neither file nor values", "expected": 'file = "<path>" or values = [...]'},
            )
        return self


class ListedLengths(_Listed):
    """Lengths of request 0, 1, …, in tokens; repeated from the start when there are more requests."""

    values: tuple[Count, ...] | None = None


def _length_tag(value: Any) -> str:
    """Which of the three forms of a length was meant, for messages that speak of that form alone."""
    if isinstance(value, LogNormal) or (isinstance(value, dict) and "distribution" in value):
        return "lognormal"
    return "file" if isinstance(value, dict | ListedLengths) else "number"


#: a number of tokens, a distribution of it, or a list
Lengths = Annotated[
    Annotated[Count, Tag("number")]
    | Annotated[LogNormal, Tag("lognormal")]
    | Annotated[ListedLengths, Tag("file")],
    Discriminator(_length_tag),
]


class Serving(_Table):
    max_running_requests: Rows = 64
    page_size: Count = 1
    #: batches with a captured graph; a decode batch is padded to the next, above the last it runs eagerly
    graph_batches: Annotated[tuple[Rows, ...], Field(min_length=1)] = (1, 2, 4, 8, 16, 32, 48, 64)
    #: free slots wanted before a prefill is admitted while something runs; "auto": the engine's rule
    min_free_slots: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"

    @model_validator(mode="after")
    def graph_batches_ascend(self) -> Serving:
        if list(self.graph_batches) != sorted(set(self.graph_batches)):
            raise PydanticCustomError(
                "refused",
                "graph_batches",
                {
                    "key": "graph_batches",
                    "found": str(list(self.graph_batches)),
                    "expected": "batch sizes in ascending order without repeats",
                },
            )
        return self


def _closed_loop_by_default(data: dict[str, Any]) -> int | None:
    return None if data.get("arrival_rate_per_s") is not None else 32


class Workload(_Table):
    """Open loop with Poisson arrivals when ``arrival_rate_per_s`` is given, else closed loop."""

    arrival_rate_per_s: Rate | None = None
    concurrency: Count | None = Field(default_factory=_closed_loop_by_default)
    requests: Count = 128
    prompt_tokens: Lengths = 128
    output_tokens: Lengths = 768
    #: closed loop: time between a client's last token and its next request
    client_delay_us: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def one_loop(self) -> Workload:
        if self.concurrency is not None and self.arrival_rate_per_s is not None:
            raise PydanticCustomError(
                "refused",
                "two loops",
                {
                    "found": "both concurrency and arrival_rate_per_s",
                    "expected": "exactly one: concurrency (closed loop) or arrival_rate_per_s (open loop)",
                },
            )
        return self


class TruncatedGeometric(_Table):
    """Each draft is accepted with the same p; p solves ``sum(p**k for k in 1..block_size-1) = mean``."""

    model: Literal["truncated_geometric"] = "truncated_geometric"
    mean_accepted_drafts: Mean = 5.4


class PerPosition(_Table):
    """The draft at position j is accepted with ``probabilities[j-1]``, given that those before it were."""

    model: Literal["per_position"]
    probabilities: Annotated[tuple[Probability, ...], Field(min_length=1)]


class MatchExpected(_Table):
    """Two-point distribution between floor and ceiling of the mean, whose expectation is exactly the mean."""

    model: Literal["match_expected"]
    mean_accepted_drafts: Mean


class Recorded(_Listed):
    """Accepted drafts as recorded: one row a request, one number a token position; both start over at the end."""

    model: Literal["recorded"]
    values: tuple[Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)], ...] | None = None


def _acceptance_tag(value: Any) -> Any:
    if isinstance(value, dict):
        return value.get("model", "truncated_geometric")
    return getattr(value, "model", None)


Acceptance = Annotated[
    Annotated[TruncatedGeometric, Tag("truncated_geometric")]
    | Annotated[PerPosition, Tag("per_position")]
    | Annotated[MatchExpected, Tag("match_expected")]
    | Annotated[Recorded, Tag("recorded")],
    Discriminator(
        _acceptance_tag,
        custom_error_type="refused",
        custom_error_message="no such model",
        custom_error_context={
            "key": "model",
            "expected": "a model: truncated_geometric, per_position, match_expected or recorded",
        },
    ),
]


class Run(_Table):
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    replications: Annotated[int, Field(ge=1, le=100_000)] = 5


class Scenario(_Table):
    device: Annotated[str, Field(min_length=1)]
    engine: str | None = None
    algorithm: Annotated[str, Field(min_length=1)] = "dflash"
    relay: Relay | None = None
    host_lengths: HostLengths | None = None
    barrier: Barrier | None = None
    barrier_placement: BarrierPlacement = BarrierPlacement.LOOP_TOP
    #: `read_done` where no event was published: fall back to the whole forward (true) or refuse (false)
    barrier_fallback: bool = True
    prep_stream: PrepStream | None = None
    overlap: bool = True
    platform: Literal["cuda", "hip"] | None = None
    #: where exact lengths are copied to the host: a stream of their own, or the schedule stream
    d2h_stream: Literal["private", "schedule"] | None = None
    pinned: bool = True
    host_scale: Scale = 1.0
    device_scale: Scale = 1.0
    block_size: Count | None = None
    draft_steps: Count | None = None
    topk: Count | None = None
    serving: Serving = Serving()
    workload: Workload = Workload()
    acceptance: Acceptance = TruncatedGeometric()
    run: Run = Run()
