"""From a study to its cells: every scenario resolved, checked and keyed before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.config import paths
from sim.config.checked import listed
from sim.config.loader import load_resolved
from sim.config.resolve import Resolved
from sim.errors import InputError, Problem
from sim.program.step_program import StepProgram
from sim.report.data import frozen
from sim.report.series import x_of
from sim.study.spec import Factor, StudySpec, load_study, named_variants


@dataclass(frozen=True)
class Cell:
    """One scenario of a study. ``key`` names its result: equal keys have equal results in one version."""

    variant: str
    #: factor -> value, in the study's order
    at: dict[str, Any]
    resolved: Resolved
    new_boots: bool
    hazards: bool
    key: str


@dataclass(frozen=True)
class TracedCell:
    """A run of which two (or a few) decode iterations are kept operation by operation."""

    variant: str
    at: Mapping[str, Any]
    resolved: Resolved
    first: int
    iterations: int
    key: str


@dataclass(frozen=True)
class Plan:
    name: str
    study: StudySpec
    path: Path
    #: of the study file, or of the tables given instead
    sha256: str
    cells: list[Cell]
    traced: list[TracedCell]
    #: combinations left out, with the first reason each: variant, factor values, reason
    refused: list[tuple[str, Mapping[str, Any], str]]


def load_plan(name: str) -> Plan:
    """The study file ``name`` with all its cells. Raises InputError with every problem of every cell, each once."""
    study, path = load_study(name)
    return plan(study, path, hashlib.sha256(path.read_bytes()).hexdigest())


def plan(study: StudySpec, path: Path, sha256: str) -> Plan:
    """All cells of a study whose relative paths start at the folder of ``path``. Raises InputError."""
    base = _base_scenario(study, path)
    cells: list[Cell] = []
    problems: dict[str, Problem] = {}
    refused: list[tuple[str, Mapping[str, Any], str]] = []
    for variant, at in _design(study):
        try:
            resolved = _resolve(study, base, variant, at)
        except InputError as error:
            problems |= {str(problem): problem for problem in _located(error, path.name, variant)}
            refused.append(
                (variant, at, f"{error.problems[0].where.removeprefix('--set ')}: {error.problems[0].found}")
            )
            continue
        how = {"new_boots": study.new_boots, "hazards": study.hazards}
        cells.append(Cell(variant, at, resolved, **how, key=_key(resolved, how)))
    if problems and not (study.skip_refused and cells):
        raise InputError(problems.values())
    if gaps := [*_absent(study, cells, refused, path.name)] or [*_gaps(study, cells, path.name)]:
        raise InputError(gaps)
    traced = list(_traced(study, base, cells, path.name))
    return Plan(path.stem, study, path, sha256, cells, traced, refused)


def _absent(
    study: StudySpec, cells: list[Cell], refused: list[tuple[str, Mapping[str, Any], str]], file: str
) -> Iterator[Problem]:
    """Variants that others are compared with and that no combination allows."""
    present = {cell.variant for cell in cells}
    reasons = {variant: reason for variant, _, reason in reversed(refused)}
    for key, name in named_variants(study):
        if name not in present:
            found = f'"{name}", which is refused everywhere ({reasons[name]})'
            yield Problem(f"{file}: {key}", found, "a variant that runs: others are compared with it")


def _gaps(study: StudySpec, cells: list[Cell], file: str) -> Iterator[Problem]:
    """The first cell that tables over the x axis would miss, of every variant that runs at all."""
    needing = [section for section in study.sections if section in _WHOLE]
    factors = {factor.name: values_of(factor) for factor in study.factors}
    x = x_of(factors)
    if not needing:
        return
    have = {(cell.variant, frozen(cell.at)) for cell in cells}
    points = [
        cell.at | {x: value} if x else cell.at for cell in cells for value in (factors[x] if x else [None])
    ]
    wanted = {frozen(point): point for point in points}
    for variant in dict.fromkeys(cell.variant for cell in cells):
        missing = next((at for key, at in wanted.items() if (variant, key) not in have), None)
        if missing is not None:
            at = ", ".join(f"{name} {value}" for name, value in missing.items())
            yield Problem(
                f"{file}: sections",
                f"{listed(needing)}, but no run of {variant!r} at {at}",
                "for these sections every variant at every combination",
                "Leave the combination out, or show sections ranking and cells alone.",
            )


#: sections that look up every variant at every value of the x axis
_WHOLE = ("differences", "recovered", "winners", "throughput", "cycle", "latency", "map")


def _base_scenario(study: StudySpec, path: Path) -> str:
    """Paths inside a study are relative to its file."""
    return str(path.parent / study.scenario) if paths.is_path(study.scenario) else study.scenario


def _resolve(study: StudySpec, base: str, variant: str, at: Mapping[str, Any]) -> Resolved:
    overrides = {**study.set, **study.variant(variant).set}
    for factor in study.factors:
        overrides |= dict.fromkeys(factor.keys, _value(factor, at[factor.name]))
    for where in study.where:
        if all(at[name] == value for name, value in where.at.items()):
            overrides |= where.set
    return load_resolved(base, overrides)


def _value(factor: Factor, shown: Any) -> Any:
    """The value behind a label."""
    if factor.labels is None:
        return shown
    assert factor.values is not None
    if shown not in factor.labels:
        raise InputError(
            Problem(factor.name, f"{shown!r}", f"a label of this factor: {listed(factor.labels)}")
        )
    return factor.values[factor.labels.index(shown)]


def _located(error: InputError, file: str, variant: str) -> Iterator[Problem]:
    for problem in error.problems:
        where = problem.where.removeprefix("--set ")
        yield Problem(
            f"{file}: variant {variant!r}: {where}", problem.found, problem.expected, problem.remedy
        )


def values_of(factor: Factor) -> list[Any]:
    """The values of one axis as they are shown: labels where there are, ascending where a span gives them."""
    if factor.labels is not None:
        return list(factor.labels)
    if factor.values is not None:
        return list(factor.values)
    span = factor.span
    assert span is not None
    if span.spacing == "log":
        values = np.geomspace(span.low, span.high, span.points)
    else:
        values = np.linspace(span.low, span.high, span.points)
    # Six digits: enough to tell points apart, few enough that 1 is written as 1.
    return [float(f"{value:.6g}") for value in values]


def _design(study: StudySpec) -> Iterator[tuple[str, dict[str, Any]]]:
    """Variant and factor values of every cell; variants outermost."""
    names = [factor.name for factor in study.factors]
    if study.design == "list":
        points: list[tuple[Any, ...]] = [tuple(point[name] for name in names) for point in study.points]
    elif study.design == "random":
        points = list(zip(*(_draws(study, i) for i in range(len(names))), strict=True))
    else:
        points = list(itertools.product(*(values_of(factor) for factor in study.factors)))
    for variant in study.variants:
        for point in points:
            yield variant.name, dict(zip(names, point, strict=True))


def _draws(study: StudySpec, index: int) -> list[Any]:
    """Independent draws of one factor; a stream of its own, so that one more factor moves no other."""
    assert study.samples is not None
    factor = study.factors[index]
    rng = np.random.Generator(np.random.PCG64([study.design_seed, index]))
    uniform = rng.random(study.samples)
    if factor.values is not None:
        values_shown = values_of(factor)
        return [values_shown[int(u * len(values_shown))] for u in uniform]
    span = factor.span
    assert span is not None
    if span.spacing == "log":
        values = span.low * (span.high / span.low) ** uniform
    else:
        values = span.low + (span.high - span.low) * uniform
    return [float(f"{value:.6g}") for value in values]


def _traced(study: StudySpec, base: str, cells: list[Cell], file: str) -> Iterator[TracedCell]:
    timeline = study.timeline
    if timeline is None:
        return
    for variant in study.variants:
        first = next((cell for cell in cells if cell.variant == variant.name), None)
        if first is None:  # every combination of it is refused
            continue
        at = {**first.at, **timeline.at}
        try:
            resolved = _resolve(study, base, variant.name, at)
        except InputError as error:
            raise InputError(_located(error, f"{file}: timeline.at", variant.name)) from None
        what = {"trace_first": timeline.first, "trace_iterations": timeline.iterations}
        yield TracedCell(
            variant.name, at, resolved, timeline.first, timeline.iterations, _key(resolved, what)
        )


def _key(resolved: Resolved, more: Mapping[str, Any]) -> str:
    """SHA-256 of everything that determines a result: scenario, costs, program and how it is run."""
    content = {
        "scenario": resolved.scenario.model_dump(mode="json"),
        "profile": resolved.profile_sha256,
        "program": _program_sha256(resolved.program),
        **more,
    }
    return _sha256(content)


def _program_sha256(program: StepProgram) -> str:
    # Cells share a few large programs; the entry keeps its program alive, so that no other can have its id.
    if id(program) not in _DIGESTS:
        _DIGESTS[id(program)] = (program, _sha256(program.model_dump(mode="json")))
    return _DIGESTS[id(program)][1]


_DIGESTS: dict[int, tuple[StepProgram, str]] = {}


def _sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
