"""From traces, and what else is known of the same machine, to a step program and a cost profile."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from sim.config.checked import shown
from sim.config.profile import Cost, DeviceProfile, HostState
from sim.errors import InputError, Problem
from sim.ingest import assemble, device, host, own, policy_costs
from sim.ingest.assemble import BATCHES, Totals
from sim.ingest.deflate import Inflation, default_inflation, fit_inflation, no_inflation
from sim.ingest.device import Context, Line
from sim.ingest.host import plan_stream_of
from sim.ingest.host_state import FEWEST_ROWS, HostStates, state_quantiles, within_run
from sim.ingest.iterations import TracedProgram, batch_of, fold
from sim.ingest.kineto import HOW_TO_RECORD, Trace, read_trace
from sim.ingest.pieces import Pieces, read
from sim.ingest.primitives import DEFAULTS, Primitives, read_primitives
from sim.ingest.sglang_dflash import TEMPLATES
from sim.ingest.summary import Summary, forward_idle, summarise
from sim.ingest.template import Template, coverage, recall
from sim.ingest.timings import Row, read_timings, states_of
from sim.program.step_program import StepProgram

#: what a trace's file name may say: trace_<engine>_<configuration>_c<batch>.json.gz
_NAME = re.compile(
    r"(?:trace_)?(?P<engine>\d+(?:\.\d+)+)_(?P<configuration>[A-Za-z0-9_]+?)_c(?P<batch>\d+)\.json"
)
_BATCH = re.compile(r"_c(\d+)\.json")
#: a template must know this share of a trace's device work
KNOWN_ENOUGH = 0.9
#: beyond this idle share of the forward stream cycles are not the sum of its operations
DEVICE_BOUND = 0.01
#: relative uncertainty of a host section whose profiling was removed by default amounts
DEFAULT_SECTION_SD = 0.3
#: tokens of a prompt, where nothing says (only the context that costs are stated at depends on it)
PROMPT = 128.0


@dataclass(frozen=True)
class Given:
    """What a file name says of a trace."""

    engine: str = ""
    configuration: str = ""
    batch: int | None = None


@dataclass(frozen=True)
class IngestResult:
    program: StepProgram
    profile: DeviceProfile
    summary: Summary
    #: everything a user should know about how the figures came about
    notes: list[str]
    #: what the self-check and an overlay need again
    pieces: list[Pieces] = field(repr=False, default_factory=list)
    #: rows of the timings table that belong to the traced engine
    rows: list[Row] = field(repr=False, default_factory=list)


def ingest(
    traces: Sequence[Path],
    timings: Path | None = None,
    primitives: Path | None = None,
    *,
    engine: str | None = None,
    name: str = "ingested",
) -> IngestResult:
    """Reads traces of one engine at one or more batch sizes.

    Args:
        traces: Kineto JSON files, plain or gzip, of steady decode iterations.
        timings: table of unprofiled timings (:mod:`sim.ingest.timings`); ``cycle_series_us.npz`` beside it is used.
        primitives: CPU-side call costs (:mod:`sim.ingest.primitives`).
        engine: whose template reads the traces ("sglang-0.5.15"); else the one that knows them best.
        name: of the profile.

    Raises:
        InputError: every problem of every file.
    """
    try:
        return _ingest(traces, timings, primitives, engine, name)
    except ValidationError as error:  # figures that are read well and make no cost
        first = error.errors(include_url=False)[0]
        files = ", ".join(str(path) for path in (*traces, timings, primitives) if path is not None)
        found = f"times that make a cost of {shown(first['input'])} us"
        raise InputError(Problem(files, found, "times in microseconds, none above 1e9")) from None


def _ingest(
    traces: Sequence[Path], timings: Path | None, primitives: Path | None, engine: str | None, name: str
) -> IngestResult:
    folded, hints = _fold_all(traces)
    template = _template(folded, engine)
    pieces = sorted((read(t, template) for t in folded), key=lambda p: p.traced.batch)
    notes = _notes(pieces)
    calls = DEFAULTS if primitives is None else read_primitives(primitives)
    rows: list[Row] = []
    states: HostStates | None = None
    named = all(p.traced.trace.named for p in pieces)
    if timings is not None:
        rows, states = _unprofiled(timings, pieces, hints, notes)
    amounts = _amounts(pieces, states, calls, named, notes)
    costs = _host(pieces, states, amounts, calls, template, notes)
    costs |= _device(pieces, rows, hints, timings, notes)
    lag = policy_costs.launch_lag(pieces)
    costs |= policy_costs.UNTRACED | policy_costs.call_costs(calls, _number(lag))
    costs |= {"hop.launch": lag, "hop.cross_stream": policy_costs.cross_stream_hop([] if named else pieces)}
    if named:
        costs |= _default_relay_costs() | own.shown_costs(pieces)
    else:
        costs |= policy_costs.traced_costs(pieces, amounts, calls)
        resolve = host.at_batches(states, "resolve") if states and "resolve" in states.sections else None
        costs["host.relay.resolve"] = policy_costs.relay_resolve(resolve, calls)
    costs = template.assumed | costs
    if "prefill.target" not in costs:
        costs["prefill.target"] = Cost(
            value=4000.0, per_token=20.0, status="assumed", source="an 8B model's prefill on an H200"
        )
    profile = DeviceProfile(
        name=name,
        description=f"read off {assemble.file_names(pieces)}",
        status="measured",
        engine=template.engine,
        provenance={
            "device": pieces[0].traced.trace.device or "not stated by the traces",
            "traces": assemble.file_names(pieces),
            "timings": timings.name if timings else "none",
            "primitives": calls.path or "none: H200 defaults",
        },
        host_state=_host_state(pieces, states),
        device_boot_sd=0.001,
        costs=costs,
    )
    program = assemble.program(pieces, amounts)
    return IngestResult(program, profile, summarise(pieces, amounts, notes), notes, pieces, rows)


# -- reading --------------------------------------------------------------------------------------------------


def hint(path: Path) -> Given:
    """What the file's name says."""
    full = _NAME.search(path.name)
    if full:
        return Given(full["engine"], full["configuration"], batch_of(full["batch"]))
    short = _BATCH.search(path.name)
    return Given(batch=batch_of(short[1])) if short else Given()


def _fold_all(paths: Sequence[Path]) -> tuple[list[TracedProgram], dict[str, Given]]:
    problems: list[Problem] = []
    folded: list[TracedProgram] = []
    hints = {}
    if not paths:
        raise InputError(Problem("traces", "none", "at least one trace", HOW_TO_RECORD))
    for path in paths:
        given = hint(path)
        try:
            trace: Trace = read_trace(path)
            folded.append(fold(trace, given.batch))
            hints[trace.path] = given
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return folded, hints


def _template(folded: list[TracedProgram], engine: str | None) -> Template:
    named = all(t.trace.named for t in folded)
    candidates = own.templates() if named else list(TEMPLATES.values())
    if engine is not None:
        known = sorted({t.engine for t in candidates})
        candidates = [t for t in candidates if t.engine == engine]
        if not candidates:
            raise InputError(Problem("engine", engine, f"one of {', '.join(known)}"))
    stated = {f.trace.program for f in folded}
    candidates = [t for t in candidates if {f"{t.algorithm}@{t.engine}"} == stated] or candidates
    known_share = recall if named else coverage
    scored = [
        (min(known_share(t, [(e.kind, e.label) for e in f.entries]) for f in folded), len(t.rows), -i)
        for i, t in enumerate(candidates)
    ]
    best, _, index = max(scored)  # of equals the longest program, then the first
    nearest = candidates[-index]
    if best < KNOWN_ENOUGH:
        raise InputError(
            Problem(
                ", ".join(f.trace.path for f in folded),
                f"calls of which the nearest program, {nearest.algorithm}@{nearest.engine}, knows {best:.0%}",
                f"calls of which one program knows at least {KNOWN_ENOUGH:.0%}",
                "traces of different engines in one call? Records and waits carry no event in a trace, so their "
                "meaning must come from a program",
            )
        )
    return nearest


def _notes(pieces: list[Pieces]) -> list[str]:
    notes = []
    for p in pieces:
        name = device.trace_name(p)
        notes += [f"{name}: {n}" for n in (*p.traced.trace.notes, *p.traced.notes)]
        if p.folded:
            notes.append(
                f"{name}: {len(p.folded)} launches without an operation of their own were folded into the next one"
            )
        wrong = [operation for operation, same in p.confirmed.items() if not same]
        if p.confirmed:
            notes.append(
                f"{name}: cuda_sync records confirm {len(p.confirmed) - len(wrong)} of {len(p.confirmed)} waits"
            )
        if wrong:
            notes.append(
                f"{name}: the program has {', '.join(wrong)} wait for another stream than the trace shows"
            )
    if not any(p.traced.trace.sync_records for p in pieces) and not all(p.traced.trace.named for p in pieces):
        notes.append(
            "no cuda_sync records: which record a wait refers to comes from the engine's program, not from the traces"
        )
    return notes


# -- host -----------------------------------------------------------------------------------------------------


def _unprofiled(
    timings: Path, pieces: list[Pieces], hints: dict[str, Given], notes: list[str]
) -> tuple[list[Row], HostStates]:
    """The table's rows of the traced engine and configurations, and their joint fit."""
    rows = read_timings(timings)
    engines = sorted({r.engine for r in rows})
    wanted = {hints[p.traced.trace.path].engine for p in pieces} - {""}
    wanted = wanted or {e for e in engines if pieces[0].template.engine.endswith(e)}
    if len(engines) > 1 and len(wanted) != 1:
        raise InputError(
            Problem(
                f"{timings}: engine",
                ", ".join(engines),
                "one engine, or traces whose names say which",
                "name traces trace_<engine>_<configuration>_c<batch>.json.gz",
            )
        )
    engine = wanted.pop() if len(wanted) == 1 else engines[0]
    steady = [r for r in rows if r.engine == engine and r.phase == "steady"]
    configurations = list(dict.fromkeys(r.configuration for r in steady))
    by_configuration = {
        hints[p.traced.trace.path].configuration or _likely(configurations, p): p for p in pieces
    }
    steady = [r for r in steady if r.configuration in by_configuration]
    if not steady:
        raise InputError(
            Problem(
                f"{timings}",
                f"no steady row of {engine} in {', '.join(sorted(by_configuration))}",
                "at least one steady row of the traced engine and configuration",
            )
        )
    if len(steady) < FEWEST_ROWS:
        notes.append(
            f"{len(steady)} rows of timings say little of the spread between boots: the H200 data set's is used"
        )
    return steady, states_of(steady, host.clean_sections(by_configuration))


def _likely(configurations: list[str], p: Pieces) -> str:
    """The configuration of a trace whose name does not say: by whether it shows a plan stream."""
    planned = bool(plan_stream_of(p).time)
    fitting = [c for c in configurations if ("plan" in c) == planned] or configurations
    return fitting[0] if fitting else ""


def _amounts(
    pieces: list[Pieces], states: HostStates | None, calls: Primitives, named: bool, notes: list[str]
) -> Inflation:
    paths = [p.traced.trace.path for p in pieces]
    if named:
        return no_inflation(paths)
    if states is None:
        notes.append(
            "no unprofiled timings: profiling is removed by default amounts for each recorded operator and call, "
            f"host costs carry a spread of {DEFAULT_SECTION_SD:.0%}"
        )
        return default_inflation(paths)
    return fit_inflation([k for p in pieces for k in host.known_sections(p, states, calls)])


def _host(
    pieces: list[Pieces],
    states: HostStates | None,
    amounts: Inflation,
    calls: Primitives,
    template: Template,
    notes: list[str],
) -> dict[str, Cost]:
    totals: dict[str, Totals] = {}
    engine = template.engine
    if states is not None:
        totals["run_batch"] = host.run_batch_total(states, template.bound_us, calls, engine)
        if "schedule" in states.sections:
            totals["schedule"] = _schedule_total(pieces, states, amounts, calls, engine)
        else:
            notes.append(
                "the schedule section waits inside in every configuration given: it is deflated only"
            )
    costs = assemble.host_costs(pieces, amounts, totals, template.label, calls["graph_replay_cpu_400"])
    if states is None and not all(p.traced.trace.named for p in pieces):
        costs = {n: c.model_copy(update={"boot_sd": DEFAULT_SECTION_SD}) for n, c in costs.items()}
    label = template.label
    if all(p.traced.trace.named for p in pieces):
        return costs
    if assemble.host_cost("schedule", label) not in costs:
        # No trace separates batch selection from preparation; it comes first and is the smaller part.
        smallest = float(np.min(np.array(costs[assemble.host_cost("prepare", label)].value)))
        before = Cost(
            value=round(smallest / 6, 1),
            status="assumed",
            source="a sixth of the smallest schedule section: no trace separates batch selection from preparation",
        )
        assemble.split_schedule(costs, label, before)
    for operation in template.optional.values():
        if operation.cost is not None:
            costs.setdefault(
                operation.cost, Cost(value=0.0, status="assumed", source="not separable in the traces given")
            )
    return costs


def _schedule_total(
    pieces: list[Pieces], states: HostStates, amounts: Inflation, calls: Primitives, engine: str
) -> Totals:
    planned = any(plan_stream_of(p).time for p in pieces)
    fenced = [p for p in pieces if host.waits_in_schedule(p)]
    value = host.at_batches(states, "schedule")
    if planned and fenced:
        return host.schedule_total(
            host.fenced_schedule(fenced[0], states, amounts, calls).value, states, engine
        )
    if planned:
        value = value - host.plan_calls(calls)
    return host.schedule_total(value, states, engine)


def _host_state(pieces: list[Pieces], states: HostStates | None) -> HostState:
    known = states is not None and len(states.states) >= FEWEST_ROWS
    quantiles = state_quantiles(states.states if states is not None else np.ones(1))
    source = (
        f"{len(states.states)} rows of timings"
        if known and states is not None
        else "H200 data set: too few rows"
    )
    return HostState(
        quantiles=quantiles,
        within_sd=within_run([p.traced for p in pieces]),
        source=f"{source}; lognormal with a spread on each side of the median; within a run: the traces",
    )


# -- device ---------------------------------------------------------------------------------------------------


def _device(
    pieces: list[Pieces], rows: list[Row], hints: dict[str, Given], timings: Path | None, notes: list[str]
) -> dict[str, Cost]:
    bound = [p for p in pieces if device.idle_share(p) <= DEVICE_BOUND]
    configurations = {hints[p.traced.trace.path].configuration for p in bound}
    usable = [r for r in rows if r.configuration in configurations or "" in configurations]
    lines = _lines(usable or rows, timings) if rows else None
    if lines is None:
        notes.append("no unprofiled cycles: graphs cost what the traces show, at the context of the traces")
        return device.seam_costs(pieces) | device.traced_graphs(pieces)
    whole = np.array([line.intercept for line in lines])
    costs = device.seam_costs(pieces, whole)
    if not bound:
        idle = min(device.idle_share(p) for p in pieces)
        notes.append(
            f"the forward stream idles at least {idle:.1%} of every traced cycle, so unprofiled cycles contain host "
            "time: graphs cost what the traces show, at the context of the traces"
        )
        return costs | device.traced_graphs(pieces, whole)
    notes.append(
        "the context of each trace was found from its device time, on the line of the unprofiled cycles of "
        + assemble.file_names(bound)
    )
    context = _context(pieces, usable or rows, lines)
    sloped = any(line.slope > 0 for line in lines)
    part = device.draft_share(pieces, context.per_step) if sloped else 0.0
    costs |= device.draft_costs(pieces, lines, context, part, device.TRACED_SD)
    target = pieces[0].template.target
    costs |= device.target_cost(
        target,
        bound,
        lines,
        costs,
        part,
        "unprofiled cycles, linear in the context, less draft graph and seam kernels: the forward stream never idles",
    )
    block = pieces[0].template.speculation.block_size
    costs["prefill.target"] = device.prefill_target(costs[target], block, PROMPT)
    return costs


def _lines(rows: list[Row], timings: Path | None) -> list[Line] | None:
    """Cycle over the context at every tabulated batch, from the series beside the table or from its means."""
    found: dict[int, list[Line]] = {}
    series = _series(timings)
    for row in rows:
        key = f"{row.engine}|{row.configuration}|c{row.batch}"
        cycles = series.get(key)
        if (
            cycles is not None
            and len(cycles) >= 10
            and "accepted_per_step" in row.figures
            and row.batch not in found
        ):
            context = device.contexts(len(cycles), PROMPT, row["accepted_per_step"])
            found[row.batch] = [device.cycle_line(cycles, context)]
        elif cycles is None:
            found.setdefault(row.batch, []).append(Line(row["cycle_mean_us"], 0.0, 0.01, 0.005))
    if not found:
        return None
    known = sorted(found)

    def over_batches(figure: str) -> NDArray[np.float64]:
        values = [float(np.mean([getattr(line, figure) for line in found[b]])) for b in known]
        return np.interp(BATCHES, known, values)

    columns = [over_batches(f) for f in ("intercept", "slope", "within_sd", "error")]
    return [Line(*(float(c[i]) for c in columns)) for i in range(len(BATCHES))]


def _series(timings: Path | None) -> dict[str, NDArray[np.float64]]:
    path = timings.parent / "cycle_series_us.npz" if timings else None
    if path is None or not path.is_file():
        return {}
    try:
        with path.open("rb") as file, np.load(file) as archive:
            series = {n: np.asarray(archive[n], dtype=float) for n in archive.files}
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            Problem(str(path), str(error), "an archive of cycle series", "remove it or write it again")
        ) from None
    odd = [
        n for n, cycles in series.items() if cycles.ndim != 1 or not ((cycles > 0) & (cycles < 1e12)).all()
    ]
    if odd:
        found = f"no cycle times in {', '.join(map(shown, odd))}"
        raise InputError(
            Problem(str(path), found, "lists of positive numbers, us", "remove it or write it again")
        )
    return series


def _context(pieces: list[Pieces], rows: list[Row], lines: list[Line]) -> Context:
    """Where each trace's device time lies on the line of the unprofiled cycles (profiling hardly moves it)."""
    at, per_step = [], []
    for p in pieces:
        i = int(np.argmin(np.abs(np.array(BATCHES) - p.traced.batch)))
        line = lines[i]
        busy = p.traced.cycle - forward_idle(p)
        tokens = (busy - line.intercept) / line.slope if line.slope > 0 else 0.0
        at.append(max(0.0, tokens))
        near = min(rows, key=lambda r: abs(r.batch - p.traced.batch))
        per_step.append(near.figures.get("accepted_per_step", 1.0))
    return Context(at, per_step)


def _default_relay_costs() -> dict[str, Cost]:
    source = "one small operation; the trace does not run it"
    return {
        "relay.gather_lengths": Cost(value=5.0, status="assumed", source=source),
        "relay.gather_tokens": Cost(value=3.0, status="assumed", source=source),
        "lengths.copy": Cost(value=3.0, status="assumed", source=source),
        "host.barrier": Cost(value=4.0, status="assumed", source=source),
        "host.relay.resolve": Cost(value=40.0, status="assumed", source=source),
    }


def _number(cost: Cost) -> float:
    return float(cost.value) if not isinstance(cost.value, tuple) else float(cost.value[0])
