"""What a finished piece holds, by kind: checked where pieces are read, so that what is computed from them needs no
checks of its own.

A piece is written by the suite alone; what does not have its form was changed or damaged since. Older pieces lack
fields that have a default here and hold more than is used now; both are still read. What only the step program knows
(which sections and segments there must be) is checked in :mod:`gpu_validation.calibrate.complete`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from gpu_validation.configurations import CONFIGURATIONS

#: nothing that the suite times takes an hour: a longer time is a broken one
_HOUR_NS = 3_600 * 10**9
_HOUR_US = 3_600.0 * 10**6

Ns = Annotated[int, Field(ge=0, le=_HOUR_NS)]
PositiveNs = Annotated[int, Field(gt=0, le=_HOUR_NS)]
#: a difference of times may be below zero
SignedUs = Annotated[float, Field(ge=-_HOUR_US, le=_HOUR_US)]
Us = Annotated[float, Field(ge=0, le=_HOUR_US)]
PositiveUs = Annotated[float, Field(gt=0, le=_HOUR_US)]
Count = Annotated[int, Field(ge=0, le=10**9)]
PositiveCount = Annotated[int, Field(gt=0, le=10**9)]
#: mean committed tokens a request, prompt included
Context = Annotated[float, Field(gt=0, le=1e9)]
Text = Annotated[str, Field(min_length=1)]

#: primitives that costs are made of (:func:`gpu_validation.calibrate.fit.machine_costs`)
PRIMITIVES = (
    "known_by_polling",
    "known_by_blocking",
    "query_met",
    "hop",
    "copy_h2d_pageable",
    "copy_h2d_pinned",
)
#: what is timed alone (:func:`gpu_validation.calibrate.measure.alone`)
ALONE = (
    "nothing",
    "prepare.copy",
    "prepare.copy+prepare.assign",
    "prepare.copy+prepare.assign+relay.gather_lengths",
    "lengths.copy",
    "result.copy",
)


def _refused(text: str) -> PydanticCustomError:
    return PydanticCustomError("piece", "{text}", {"text": text})


def _need(names: object, wanted: tuple[str, ...], what: str) -> None:
    missing = [name for name in wanted if name not in names]  # type: ignore[operator]
    if missing:
        raise _refused(f"no {what} {', '.join(missing)}")


def _equal_lengths(lists: dict[str, list[Any]]) -> None:
    if len({len(values) for values in lists.values()}) > 1:
        lengths = ", ".join(f"{len(values)} of {name}" for name, values in lists.items())
        raise _refused(f"lists of one length must be equally long, not {lengths}")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class _Whole(BaseModel):
    """A part that is read field by field, so that one more would not be understood."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="forbid")


class Device(_Part):
    """Names and versions; there are more of them."""

    device: Text
    platform: Text


class Piece(_Part):
    """What every piece says of its making."""

    start: Count
    seconds: Annotated[float, Field(ge=0)]
    device: Device
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]


class Primitives(Piece):
    samples: dict[Text, Annotated[list[SignedUs], Field(min_length=1)]]

    @model_validator(mode="after")
    def _complete(self) -> Primitives:
        _need(self.samples, PRIMITIVES, "samples of")
        return self


# -- calibration --------------------------------------------------------------------------------------------------


class Pass(_Part):
    rows: PositiveCount
    prefill: bool
    context: Context
    entered_ns: Ns
    sections: dict[Text, Ns]

    @model_validator(mode="after")
    def _timed(self) -> Pass:
        if not any(self.sections.values()):
            raise _refused("no section of any length")
        return self


class Record(_Whole):
    concurrency: PositiveCount
    duration_ns: PositiveNs
    output_tokens: PositiveCount
    tokens_sha256: Text
    full_sha256: Text
    passes: Annotated[list[Pass], Field(min_length=1)]
    segments_us: list[dict[Text, Us]] = []

    @model_validator(mode="after")
    def _in_order(self) -> Record:
        if any(a.entered_ns >= b.entered_ns for a, b in pairwise(self.passes)):
            raise _refused("passes that do not begin one after the other")
        if len(self.segments_us) > len(self.passes):
            raise _refused(f"{len(self.segments_us)} timed forwards in {len(self.passes)} passes")
        if not all(any(timed.values()) for timed in self.segments_us):
            raise _refused("a timed forward without a segment of any length")
        return self


class ModeRun(_Part):
    mode: Literal["as_is", "ahead", "woken", "fenced", "segments", "roomy", "paused"]
    #: older pieces do not say
    held_us: Us = 0.0
    #: a race's window is predicted from the host's state
    host_us: list[PositiveUs]
    record: Record


class Batch(_Part):
    runs: Annotated[list[ModeRun], Field(min_length=1)]
    alone: dict[Text, Annotated[list[Us], Field(min_length=1)]]

    @model_validator(mode="after")
    def _complete(self) -> Batch:
        _need(self.alone, ALONE, "operation timed alone:")
        return self


class Work(_Whole):
    """As :class:`gpu_validation.runtime.host_work.HostWork`."""

    receive_us: Us = 0.0
    enter_us: Us = 0.0
    process_us: Us = 0.0
    per_row_us: Us = 0.0


class Model(Piece):
    model: Text
    algorithm: Text
    work: Work = Work()
    batches: dict[Annotated[str, Field(pattern=r"^[1-9]\d{0,6}$")], Batch]

    @model_validator(mode="after")
    def _of_their_batch(self) -> Model:
        if not self.batches:
            raise _refused("no batch")
        for batch, content in self.batches.items():
            for run in content.runs:
                if run.record.concurrency != int(batch):
                    raise _refused(f"a run of {run.record.concurrency} requests at batch {batch}")
        return self


# -- validation ---------------------------------------------------------------------------------------------------


class Visit(_Part):
    configuration: Text
    cycles_ns: Annotated[list[PositiveNs], Field(min_length=1)]
    #: 0 where the step has nothing that tells the host's speed
    witness_us: list[Us]
    contexts: list[Context]
    duration_ns: PositiveNs
    output_tokens: PositiveCount
    tokens_sha256: Text
    full_sha256: Text
    sections_ns: dict[Text, Ns] = {}
    host_us: list[PositiveUs] = []

    @model_validator(mode="after")
    def _per_cycle(self) -> Visit:
        if self.configuration not in CONFIGURATIONS:
            raise _refused(f'"{self.configuration}" is no configuration')
        lists: dict[str, list[Any]] = {
            "cycles_ns": self.cycles_ns,
            "witness_us": self.witness_us,
            "contexts": self.contexts,
        }
        _equal_lengths(lists)
        return self


class Spans(_Part):
    forward_us: Annotated[list[PositiveUs], Field(min_length=1)]
    contexts: list[Context]

    @model_validator(mode="after")
    def _per_forward(self) -> Spans:
        _equal_lengths({"forward_us": self.forward_us, "contexts": self.contexts})
        return self


class Cell(Piece):
    """One model at one concurrency."""

    model: Text
    algorithm: Text
    concurrency: PositiveCount
    semantics: Literal["cuda", "hip"]
    visits: list[Visit]
    spans: Spans

    @model_validator(mode="after")
    def _complete(self) -> Cell:
        _need({visit.configuration for visit in self.visits}, tuple(CONFIGURATIONS), "visit of")
        return self


# -- races --------------------------------------------------------------------------------------------------------


class TakenOver(_Whole):
    """As :class:`gpu_validation.validate.races.TakenOver`."""

    rows: PositiveCount
    prompt: PositiveCount
    forward_us: PositiveUs
    rows_us: Us
    host_us: Us
    margin_us: SignedUs
    torn: bool


class TakenRows(_Part):
    """A table: a row for every row that was taken over in flight."""

    columns: list[Text]
    rows: list[list[int | float | bool]]

    @model_validator(mode="after")
    def _rows(self) -> TakenRows:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise _refused(f"a row with more or fewer than {len(self.columns)} columns")
        if set(self.columns) != set(TakenOver.model_fields):
            raise _refused(f"columns {', '.join(self.columns)}, not {', '.join(TakenOver.model_fields)}")
        for row in self.rows:
            TakenOver.model_validate(dict(zip(self.columns, row, strict=True)))
        return self


class RaceRun(Piece):
    configuration: Text
    requests: PositiveCount
    held_us: Us
    steps: Count
    recycled: Count
    torn: Count
    wrong_requests: Count
    #: older runs did not record them
    taken_over: TakenRows | None = None

    @model_validator(mode="after")
    def _known(self) -> RaceRun:
        if self.configuration not in CONFIGURATIONS:
            raise _refused(f'"{self.configuration}" is no configuration')
        if self.wrong_requests > self.requests:
            raise _refused(f"{self.wrong_requests} wrong ones of {self.requests} requests")
        if self.taken_over is not None and len(self.taken_over.rows) != self.recycled:
            rows = len(self.taken_over.rows)
            raise _refused(f"{rows} rows taken over where {self.recycled} were recycled")
        return self

    @property
    def name(self) -> str:
        """As that of :class:`gpu_validation.validate.races.Run`."""
        return self.configuration + (f"-held{self.held_us:g}" if self.held_us else "")
