"""The study a user writes: ``configs/studies/<study>.toml``, checked.

A study is a base scenario, variants of it and factors to vary; every combination is one *cell*. What the report
shows is a list of sections by name, so that a study is a file and never code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from sim.config import paths
from sim.config.checked import Origin, did_you_mean, listed, shown, validated
from sim.config.declarations import parse_toml, read_bytes
from sim.errors import InputError, Problem

#: every cell is resolved and checked before the first one runs
MOST_CELLS = 1_000_000
Text = Annotated[str, Field(min_length=1)]
#: of what legends, titles and tables name
Name = Annotated[str, Field(min_length=1, max_length=80)]
Number = Annotated[float, Field(allow_inf_nan=False)]
#: the words of a report's sections, in the order a report usually has them
Section = Literal[
    "differences",
    "recovered",
    "winners",
    "ranking",
    "throughput",
    "cycle",
    "latency",
    "measured",
    "idle",
    "timelines",
    "map",
    "cells",
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Variant(_Table):
    """One named way to run: dotted scenario keys that replace those of the base."""

    name: Name
    set: dict[str, Any] = {}
    description: str = ""
    #: columns of the measured file that a row of this variant has, if it was measured
    measured: dict[str, str | int] | None = None
    #: the profile's costs were fitted on this variant's measurements, so that agreement there is no prediction
    fitted: bool = False
    #: what it combines, for the section `recovered`; fewer parts are cheaper
    parts: tuple[Text, ...] = ()


class Span(_Table):
    """``points`` values from ``low`` to ``high``, both included."""

    low: Number
    high: Number
    points: Annotated[int, Field(ge=2, le=1000)] = 2
    spacing: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def ascends(self) -> Span:
        if self.low >= self.high or (self.spacing == "log" and self.low <= 0):
            found = f"low = {self.low:g}, high = {self.high:g}"
            expected = "low below high" + (", both above 0" if self.spacing == "log" else "")
            raise PydanticCustomError("refused", "span", {"found": found, "expected": expected})
        return self


class Factor(_Table):
    """One axis. Every key takes the same value, so that ``requests`` can follow ``concurrency``."""

    name: Name
    keys: Annotated[tuple[Text, ...], Field(min_length=1)]
    values: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    span: Span | None = None
    #: what the values are called in the report, where they do not speak for themselves
    labels: tuple[Text, ...] | None = None

    @model_validator(mode="after")
    def a_label_each(self) -> Factor:
        if self.labels is not None and len(self.labels) != len(self.values or ()):
            found = f"{len(self.labels)} labels for {len(self.values or ())} values"
            raise PydanticCustomError("refused", "factor", {"found": found, "expected": "a label a value"})
        return self

    @model_validator(mode="after")
    def one_of_two(self) -> Factor:
        if (self.values is None) == (self.span is None):
            found = "both values and span" if self.values is not None else "neither values nor span"
            raise PydanticCustomError("refused", "factor", {"found": found, "expected": "one of the two"})
        return self


class Where(_Table):
    """Keys of the cells at some factor values alone: what depends on two factors at once."""

    #: factor -> its value, or its label
    at: Annotated[dict[str, Any], Field(min_length=1)]
    set: dict[str, Any]


class Pair(_Table):
    """A change whose effect is asked for: variant ``before`` against variant ``after``."""

    name: Name
    before: Text
    after: Text
    description: str = ""


class Timeline(_Table):
    """One more run a variant, traced: ``iterations`` decode iterations from number ``first`` on."""

    #: factor -> the value at which the traced run is made
    at: dict[str, Any] = {}
    first: Annotated[int, Field(ge=1)] = 30
    iterations: Annotated[int, Field(ge=1, le=8)] = 2


class Measured(_Table):
    """Measurements to set beside the simulated cycles: a CSV under ``configs/`` or beside the study file."""

    file: Text
    #: column -> value that rows must have
    where: dict[str, str | int] = {}
    #: factor -> column that holds its value
    factors: dict[str, Text]
    #: column with the mean cycle, µs
    cycle_us: Text
    source: Text


class Recovery(_Table):
    """How much of what ``start`` loses against ``goal`` the other variants win back."""

    start: Text
    goal: Text
    #: share of the loss that counts as all of it
    enough: Annotated[float, Field(gt=0, le=1)] = 0.95


class Published(_Table):
    """A published change in throughput at one value of the factor ``factor``."""

    factor: Text
    value: Any
    change_percent: Number
    tolerance_points: Annotated[Number, Field(gt=0)]
    #: throughput before the change, tok/s
    before_tok_s: Annotated[Number, Field(gt=0)] | None = None


class Loads(_Table):
    """A map of its own for every value of a factor that says what load the machines have."""

    factor: Text
    #: value of the factor -> what a change in throughput is taken from: the cycle at a full batch, or the run
    quantity: dict[str, Literal["cycle_us", "throughput_tok_s"]]


class PublishedShape(_Table):
    points: Annotated[tuple[Published, ...], Field(min_length=1)]
    source: Text
    loads: Loads | None = None
    #: marked on the map: what the profile's own machine has
    home: str = "measured machine"


class StudySpec(_Table):
    title: Text
    question: Text
    scenario: Text
    set: dict[str, Any] = {}
    #: full factorial: every variant at every combination; list: `points`; random: `samples` draws of the factors
    design: Literal["factorial", "list", "random"] = "factorial"
    variants: Annotated[tuple[Variant, ...], Field(min_length=1)] = (Variant(name="base"),)
    factors: tuple[Factor, ...] = ()
    #: after the factors' own keys, in this order
    where: tuple[Where, ...] = ()
    #: design "list": per cell a value for every factor
    points: tuple[dict[str, Any], ...] = ()
    #: design "random": how many draws, uniform in every factor's span (or its logarithm) or values
    samples: Annotated[int, Field(ge=1)] | None = None
    design_seed: Annotated[int, Field(ge=0)] = 1
    #: also run every cell at the other host states of the profile, which `pi95` needs
    new_boots: bool = True
    #: check every cell for unordered accesses to shared buffers
    hazards: bool = True
    reference: Text | None = None
    pairs: tuple[Pair, ...] = ()
    timeline: Timeline | None = None
    measured: Measured | None = None
    published: PublishedShape | None = None
    recovery: Recovery | None = None
    #: leave out combinations that are refused, and list them, instead of refusing the study
    skip_refused: bool = False
    sections: tuple[Section, ...] = ("differences", "throughput", "cells")
    #: paragraphs the report opens with, after the question: what is compared and how to read it
    notes: tuple[Text, ...] = ()

    def variant(self, name: str) -> Variant:
        return next(v for v in self.variants if v.name == name)


def load_study(name: str) -> tuple[StudySpec, Path]:
    """The study ``name`` (path or bare name) and its file. Raises InputError with every problem."""
    path = paths.locate(name, "studies", "study")
    return check_study(parse_toml(read_bytes(path), path.name), path.name), path


def check_study(data: Mapping[str, Any], name: str) -> StudySpec:
    """A study given as tables. Raises InputError with every problem, located in ``name``."""
    origin = Origin(name)
    study = validated(StudySpec, data, origin)
    problems = _inconsistent(study, origin)
    if problems:
        raise InputError(problems)
    return study


def _inconsistent(study: StudySpec, origin: Origin) -> list[Problem]:
    problems = []
    names = [variant.name for variant in study.variants]
    factors = [factor.name for factor in study.factors]
    for kind, given in (("variants", names), ("factors", factors)):
        for twice in sorted({name for name in given if given.count(name) > 1}):
            problems.append(
                Problem(origin.where(kind), f"{shown(twice)} twice", "a name of its own for each")
            )
    if "variant" in factors:
        problems.append(Problem(origin.where("factors"), '"variant"', "another name: variants have this one"))
    for i, factor in enumerate(study.factors):
        shown_values = [shown(value) for value in factor.labels or factor.values or ()]
        for twice in sorted({value for value in shown_values if shown_values.count(value) > 1}):
            key = f"factors[{i}].{'labels' if factor.labels else 'values'}"
            problems.append(Problem(origin.where(key), f"{twice} twice", "every value once"))
    if (cells := _cells(study)) > MOST_CELLS:
        remedy = 'Leave out values, or draw from them with design = "random" and samples.'
        problems.append(
            Problem(origin.where("factors"), f"{cells:,} cells", f"at most {MOST_CELLS:,}", remedy)
        )
    for key, name in named_variants(study):
        if name not in names:
            where = origin.where(key)
            problems.append(Problem(where, shown(name), listed(names), did_you_mean(str(name), names)))
    for key, named in _named_factors(study):
        if named not in factors:
            expected = listed(factors) if factors else "no factor: the study has none"
            problems.append(Problem(origin.where(key), shown(named), expected, did_you_mean(named, factors)))
    for i, point in enumerate(study.points):
        missing = [f for f in factors if f not in point]
        if missing:
            problems.append(Problem(origin.where(f"points[{i}]"), f"no {listed(missing)}", "every factor"))
    if (study.design == "list") != bool(study.points):
        found = f"design = {shown(study.design)} with {len(study.points)} points"
        problems.append(Problem(origin.where("points"), found, 'points exactly with design = "list"'))
    if (study.design == "random") != (study.samples is not None):
        found = f"design = {shown(study.design)}, samples = {shown(study.samples)}"
        problems.append(Problem(origin.where("samples"), found, 'samples exactly with design = "random"'))
    needs = {
        "measured": study.measured,
        "timelines": study.timeline,
        "map": study.published,
        "recovered": study.recovery,
    }
    for section, table in needs.items():
        if section in study.sections and table is None:
            key = {"timelines": "timeline", "map": "published", "recovered": "recovery"}.get(section, section)
            problems.append(Problem(origin.where("sections"), shown(section), f"a table [{key}] for it"))
    if "map" in study.sections and not study.pairs:
        problems.append(Problem(origin.where("sections"), '"map"', "at least one [[pairs]] for it"))
    loads = None if study.published is None else study.published.loads
    if loads is not None and loads.factor in factors:
        factor = study.factors[factors.index(loads.factor)]
        values = [str(value) for value in factor.labels or factor.values or ()]
        if sorted(values) != sorted(loads.quantity):
            found = listed(sorted(loads.quantity))
            problems.append(Problem(origin.where("published.loads.quantity"), found, listed(sorted(values))))
    problems += _map_factors(study, origin)
    for section in ("differences", "winners"):
        if section in study.sections and study.reference is None:
            problems.append(Problem(origin.where("sections"), shown(section), "a reference variant for it"))
    return problems


def _cells(study: StudySpec) -> int:
    """How many combinations there are, refused ones included."""
    if study.design == "factorial":
        points = math.prod(len(f.values or ()) or (f.span.points if f.span else 1) for f in study.factors)
    else:
        points = study.samples or len(study.points)
    return points * len(study.variants)


def _map_factors(study: StudySpec, origin: Origin) -> list[Problem]:
    """A map has the two scales as axes, a panel a published value, and a map a load; nothing else varies."""
    published = study.published
    if "map" not in study.sections or published is None:
        return []
    needed = {"host_scale", "device_scale", *(point.factor for point in published.points)}
    needed |= {published.loads.factor} if published.loads is not None else set()
    names = {factor.name for factor in study.factors}
    if needed != names or len({point.factor for point in published.points}) > 1:
        found = listed(sorted(names)) if names else "no factor"
        expected = f'exactly these for section "map", its points all of one: {" and ".join(sorted(needed))}'
        return [Problem(origin.where("factors"), found, expected)]
    values = {f.name: f.labels or f.values for f in study.factors}
    return [
        Problem(origin.where(f"published.points[{i}].value"), shown(p.value), listed([*map(str, known)]))
        for i, p in enumerate(published.points)
        if (known := values[p.factor]) is not None and p.value not in known
    ]


def named_variants(study: StudySpec) -> list[tuple[str, str]]:
    """Key and name of every variant that others are compared with."""
    named = [("reference", study.reference)] if study.reference is not None else []
    if study.recovery is not None:
        named += [(f"recovery.{side}", getattr(study.recovery, side)) for side in ("start", "goal")]
    named += [(f"pairs[{i}].{side}", getattr(p, side)) for i, p in enumerate(study.pairs) for side in _SIDES]
    return named


_SIDES = ("before", "after")


def _named_factors(study: StudySpec) -> list[tuple[str, str]]:
    named = [(f"points[{i}]", key) for i, point in enumerate(study.points) for key in point]
    named += [(f"where[{i}].at", key) for i, where in enumerate(study.where) for key in where.at]
    if study.timeline is not None:
        named += [("timeline.at", key) for key in study.timeline.at]
    if study.measured is not None:
        named += [("measured.factors", key) for key in study.measured.factors]
    if study.published is not None:
        named += [(f"published.points[{i}]", p.factor) for i, p in enumerate(study.published.points)]
        if study.published.loads is not None:
            named.append(("published.loads", study.published.loads.factor))
    return named
