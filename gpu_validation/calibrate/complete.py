"""Whether raw calibration data hold all that a profile is made of: every batch, mode, steady pass, section and
segment that the step program asks for.

The form of a piece alone is checked where it is read (:mod:`gpu_validation.raw`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from gpu_validation.calibrate.host_costs import FEWEST, expected_sections
from gpu_validation.calibrate.measure import TIMED, WAKING
from gpu_validation.observe.run_record import RunRecord
from gpu_validation.observe.segments import WHOLE
from sim.errors import InputError, Problem
from sim.program.step_program import Kind, StepProgram, StreamName

#: kinds of operations that occupy the forward stream
_DEVICE = (Kind.KERNEL, Kind.GRAPH, Kind.PUBLISH, Kind.STASH)
_REMEDY = "Delete the file and measure again; the other pieces are kept."


def own_sections(program: StepProgram) -> list[str]:
    """Sections that a prefill has and a decode has not."""
    shared = {op.name for op in program.operations}
    own = [op.name for op in program.prefill if op.host == f"host.{op.name}" or op.kind is Kind.HOST]
    return [name for name in own if name not in shared]


def check_complete(program: StepProgram, models: Sequence[dict[str, Any]], batches: Sequence[int]) -> None:
    """``models``: one piece a process start; ``batches``: those that are calibrated.

    Raises InputError with a problem a piece that lacks something, naming all of it.
    """
    problems = []
    for model in models:
        lacking = list(dict.fromkeys(_lacking(program, model, batches)))
        if lacking:
            where = model.get("file", f"{model['model']}, start {model['start']}")
            problems.append(Problem(where, "; ".join(lacking), "a complete calibration", _REMEDY))
    if problems:
        raise InputError(problems)


def _lacking(program: StepProgram, model: dict[str, Any], batches: Sequence[int]) -> Iterator[str]:
    there = {int(text): content for text, content in model["batches"].items()}
    if set(there) != set(batches):
        yield f"batches {_listed(sorted(there))}, not {_listed(batches)}"
    for batch, content in sorted(there.items()):
        modes = {run["mode"] for run in content["runs"]}
        needed = _modes(program, batch < max(batches))
        missing = [mode for mode in needed if mode not in modes]
        if missing:
            yield f"no run at batch {batch} in mode {_listed(missing)}"
        for run in content["runs"]:
            for lack in _of_run(program, run):
                yield f"{lack} at batch {batch} in mode {run['mode']}"


def _modes(program: StepProgram, roomy: bool) -> list[str]:
    """Those that every machine is measured in; "paused" follows from how it behaves."""
    waking = WAKING if program.capabilities.consumes_host_lengths else ()
    return ["as_is", "ahead", *waking, "segments", *(("roomy",) if roomy else ())]


def _of_run(program: StepProgram, run: dict[str, Any]) -> Iterator[str]:
    record, mode = RunRecord.from_json(run["record"]), run["mode"]
    steady = record.steady()
    if len(steady) < FEWEST:
        yield f"fewer than {FEWEST} steady passes"
        return
    first = record.passes[0]
    if mode != "paused":
        if not first.prefill:
            yield "no prefill in the first pass"
        yield from _absent("section", own_sections(program), [first.sections])
    if mode not in TIMED:
        sections = [record.passes[i].sections for i in steady]
        yield from _absent("section", sorted(expected_sections(program, mode)), sections)
        return
    timed = [record.segments(i) for i in steady]
    parts = [segments for segments in timed if WHOLE not in segments]
    if not parts:
        yield "no forward timed in parts"
    forward = [op.name for op in program.operations if op.kind in _DEVICE and op.stream is StreamName.FORWARD]
    yield from _absent("segment", forward, parts)
    if mode != "paused":
        if len(record.segments_us) != len(record.passes):
            yield f"{len(record.segments_us)} timed forwards in {len(record.passes)} passes"
        elif "prefill" not in record.segments_us[0]:
            yield "no segment prefill"


def _absent(what: str, names: Iterable[str], passes: Sequence[Collection[str]]) -> Iterator[str]:
    missing = [name for name in names if not all(name in found for found in passes)]
    if missing:
        yield f"no {what} {_listed(missing)}"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
