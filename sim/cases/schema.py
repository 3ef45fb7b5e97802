"""A published before/after pair: ``configs/cases/<id>.toml``, checked.

What is published, what is known and not known of the set-up, whether the pair can decide anything, and the two
scenarios that stand for it. Written, and committed, before the prediction is computed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from sim.config import paths
from sim.config.checked import Attempts, Origin, validated
from sim.config.declarations import parse_toml, read_bytes
from sim.config.profile import Cost, Semantics
from sim.errors import InputError
from sim.program.step_program import Operation

#: what a change may be of: quantities of a result (means), and the idle time of the forward stream a step
Quantity = Literal["throughput_tok_s", "cycle_us", "tpot_ms", "itl_ms", "ttft_ms", "idle_us"]
#: what is divided by, or taken the logarithm of
Positive = Annotated[float, Field(gt=1e-9, allow_inf_nan=False)]
#: per cent of a quantity that is never below zero
Change = Annotated[float, Field(ge=-100, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Table):
    """``confidence``: read in the thread; derived from figures read; inferred; or from the project's description."""

    name: str
    url: str
    date: str
    confidence: Literal["read", "derived", "inferred", "description"] = "read"


class Setup(_Table):
    hardware: str
    model: str
    load: str
    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Published(_Table):
    """``before`` and ``after`` in ``unit``, or only the change. ``low`` and ``high`` bound the change where the
    source repeats the measurement; changes are in per cent of the quantity predicted."""

    what: str
    unit: str = ""
    before: Positive | None = None
    after: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    change_percent: Change | None = None
    low_percent: Change | None = None
    high_percent: Change | None = None

    @model_validator(mode="after")
    def range_has_two_ends_in_order(self) -> Published:
        low, high = self.low_percent, self.high_percent
        if (low is None) != (high is None):
            key, other = ("high_percent", "low_percent") if high is None else ("low_percent", "high_percent")
            expected = f"{key} as well, or no {other}: a range has two ends"
            raise PydanticCustomError("refused", "range", {"found": f"{other} alone", "expected": expected})
        if low is not None and high is not None and low > high:
            context = {
                "found": f"low_percent {low:g} above high_percent {high:g}",
                "expected": "low comes first",
            }
            raise PydanticCustomError("refused", "range", context)
        return self


class Fit(_Table):
    """The one free parameter, chosen so that ``quantity`` of *before* is ``target``.

    ``host_scale`` and ``device_scale`` are the scenario's; ``model_scale`` multiplies the model's graphs and
    prefills and leaves hops and small kernels, which no other model makes slower.
    """

    parameter: Literal["model_scale", "device_scale", "host_scale"]
    quantity: Quantity
    target: Positive


class Insertion(_Table):
    """``operations`` before the decode operation named ``before``, ``times`` over."""

    before: str
    operations: tuple[Operation, ...] = Field(min_length=1)
    times: int = Field(default=1, ge=1, le=10_000)


class Side(_Table):
    """What one side sets over the case's common scenario, and how its decode program or its profile differs from the
    shipped one."""

    scenario: dict[str, Any] = {}
    insert: tuple[Insertion, ...] = ()
    drop: tuple[str, ...] = ()
    semantics: dict[Semantics, bool] = {}
    costs: dict[str, Cost] = {}

    def over(self, common: Side) -> Side:
        """This side with what ``common`` sets for both: its edits come first, keys set here win."""
        return Side(
            scenario={**common.scenario, **self.scenario},
            insert=common.insert + self.insert,
            drop=common.drop + self.drop,
            semantics={**common.semantics, **self.semantics},
            costs={**common.costs, **self.costs},
        )


class Case(_Table):
    title: str
    source: Source
    setup: Setup
    published: Published
    #: committed before the prediction is computed, with what makes it so or what is missing
    decidable: bool
    because: str
    quantity: Quantity = "cycle_us"
    fit: Fit | None = None
    #: keys of both scenarios; none: the pair cannot be expressed
    scenario: dict[str, Any] = {}
    #: how the programs of both sides differ from the shipped one
    both: Side = Side()
    before: Side = Side()
    after: Side = Side()

    @model_validator(mode="after")
    def decidable_cases_can_be_judged(self) -> Case:
        if self.decidable and (not self.scenario or self.change_percent is None):
            raise ValueError("a decidable case needs a scenario and a published change")
        return self

    @property
    def change_percent(self) -> float | None:
        """The published change of ``quantity`` in per cent."""
        p = self.published
        if p.change_percent is not None or p.before is None or p.after is None:
            return p.change_percent
        return (p.after / p.before - 1) * 100


@lru_cache(maxsize=256)
def _checked(content: bytes, name: str) -> Case:
    return validated(Case, parse_toml(content, name), Origin(name))


def load_case(name: str) -> Case:
    """The case ``name`` (path or bare name). Raises InputError."""
    path = paths.locate(name, "cases", "case")
    return _checked(read_bytes(path), path.name)


def load_cases() -> dict[str, Case]:
    """Every shipped case by its id. Raises InputError with the problems of all files."""
    attempts = Attempts()
    loaded = {name: attempts.call(load_case, name) for name in paths.names("cases")}
    if attempts.problems:
        raise InputError(attempts.problems)
    return {name: case for name, case in loaded.items() if case is not None}
