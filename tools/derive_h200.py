#!/usr/bin/env python
"""Derives the H200 profile and the step programs of both engine releases from ``data/sglang_h200``.

    python tools/derive_h200.py [--data DIR] [--configs DIR]

Deterministic: the same data give the same bytes. What is measured, what is fitted on cycles and what is assumed
stands beside every figure (``status`` and ``source``). Of the older release only host sections without a wait and
device durations are used, never a cycle: its cycles are what the profile is asked to predict.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import h200_composed  # noqa: E402
import h200_composed_costs  # noqa: E402

from sim.config.loader import load_resolved  # noqa: E402
from sim.config.profile import Cost, DeviceProfile, HostState  # noqa: E402
from sim.errors import InputError  # noqa: E402
from sim.ingest import assemble, device, host, policy_costs  # noqa: E402
from sim.ingest.assemble import BATCHES, Totals  # noqa: E402
from sim.ingest.deflate import Inflation, fit_inflation  # noqa: E402
from sim.ingest.device import Context, Line, table  # noqa: E402
from sim.ingest.files import write_profile, write_program  # noqa: E402
from sim.ingest.host_state import HostStates, state_quantiles, within_run  # noqa: E402
from sim.ingest.iterations import fold, split  # noqa: E402
from sim.ingest.kineto import read_trace  # noqa: E402
from sim.ingest.pieces import Pieces, read  # noqa: E402
from sim.ingest.primitives import Primitives, read_primitives  # noqa: E402
from sim.ingest.sglang_dflash import BLOCK, TEMPLATES  # noqa: E402
from sim.ingest.timings import Row, Section, read_timings, states_of  # noqa: E402
from sim.program.step_program import Kind, StreamName  # noqa: E402
from sim.run import simulate  # noqa: E402

NEW, OLD = "0.5.15", "0.5.14"
TEMPLATE = {engine: TEMPLATES[f"sglang-{engine}"] for engine in (NEW, OLD)}
#: figures of cycles.csv that contain no wait (README of the data): the old release's default waits in schedule,
#: every other configuration waits for the previous result in process_result
CLEAN = {
    NEW: {
        "publish": Section("host_publish_us", ("default",)),
        "run_batch": Section("host_run_batch_us", ("default",)),
        "schedule": Section("host_schedule_us", ("default",)),
        "resolve": Section("host_resolve_us", ("default",)),
    },
    OLD: {
        "publish": Section("host_publish_us", ("default", "plan_stream")),
        "run_batch": Section("host_run_batch_us", ("default", "plan_stream")),
        "schedule": Section("host_schedule_us", ("plan_stream",)),
        "process": Section("host_process_result_us", ("default",)),
    },
}
#: trace file → the decode iteration it starts at (README of the data)
TRACES = {
    NEW: {"trace_0.5.15_default_c1.json.gz": 45, "trace_0.5.15_default_c32.json.gz": 17},
    OLD: {"trace_0.5.14_default_c1.json.gz": 43, "trace_0.5.14_plan_stream_c32.json.gz": 17},
}
#: tokens of every prompt of the data set
PROMPT = 128.0
#: contexts the requests of the series go through: from the prompt to the last block and the zombie step
CONTEXT = {"context": (PROMPT, 944.0)}
#: relative uncertainty of a draft graph: the newer release's is made good by the target graph, which is fitted on
#: the whole; the older one's profiling inflation and interpolation stay in a prediction
GRAPH_SD = {NEW: 0.003, OLD: 0.014}
COMMENT = "Written by tools/derive_h200.py from data/sglang_h200; edit the script, not this file."


@dataclass(frozen=True)
class Data:
    rows: list[Row]
    series: dict[str, np.ndarray]
    primitives: Primitives
    pieces: dict[str, list[Pieces]]
    states: dict[str, HostStates]

    def steady(self, engine: str) -> list[Row]:
        return [r for r in self.rows if r.engine == engine and r.phase == "steady"]

    def accepted(self, batch: int) -> float:
        """Tokens committed a step at a concurrency; all configurations saw the same draws."""
        return next(r["accepted_per_step"] for r in self.steady(NEW) if r.batch == batch)

    def lines(self) -> list[Line]:
        """The newer release's device-bound cycles over the context, for every batch."""
        lines = []
        for b in BATCHES:
            cycles = self.series[f"{NEW}|default|c{b}"]
            lines.append(device.cycle_line(cycles, device.contexts(len(cycles), PROMPT, self.accepted(b))))
        return lines

    def context(self, engine: str) -> Context:
        per_step = [self.accepted(p.traced.batch) for p in self.pieces[engine]]
        at = [
            PROMPT
            + step
            * (TRACES[engine][device.trace_name(p)] + float(np.mean([i.index for i in p.traced.iterations])))
            for p, step in zip(self.pieces[engine], per_step, strict=True)
        ]
        return Context(at, per_step)


def load(folder: Path) -> Data:
    rows = read_timings(folder / "cycles.csv")
    with np.load(folder / "cycle_series_us.npz") as archive:
        series = {name: archive[name] for name in archive.files}
    pieces = {
        engine: [read(fold(read_trace(folder / name)), TEMPLATE[engine]) for name in names]
        for engine, names in TRACES.items()
    }
    steady = {e: [r for r in rows if r.engine == e and r.phase == "steady"] for e in (NEW, OLD)}
    states = {e: states_of(steady[e], CLEAN[e]) for e in (NEW, OLD)}
    return Data(rows, series, read_primitives(folder / "primitives_us.json"), pieces, states)


# -- host -------------------------------------------------------------------------------------------------------


def totals(data: Data, engine: str, old: host.Schedule) -> dict[str, Totals]:
    """Unprofiled groups of sections of one engine at state 1, without what policies insert."""
    states = data.states[engine]
    if engine == NEW:
        schedule = host.schedule_total(host.at_batches(states, "schedule"), states, "0.5.15 default")
    else:
        schedule = host.schedule_total(
            old.value, states, "0.5.14 plan stream less what the plan stream adds to it"
        )
    return {
        "schedule": schedule,
        "run_batch": host.run_batch_total(states, TEMPLATE[engine].bound_us, data.primitives, engine),
        "process": Totals(
            host.at_batches(data.states[OLD], "process"),
            "measured" if engine == OLD else "scaled",
            host.FITTED + "host_process_result_us of 0.5.14 default, which never waits there",
            states.residual_sd,
        ),
    }


def host_costs(data: Data, amounts: Inflation) -> dict[str, Cost]:
    fenced = data.pieces[OLD][0]
    old = host.fenced_schedule(fenced, data.states[OLD], amounts, data.primitives)
    before = Cost(
        value=round(old.before, 1),
        status="measured",
        source=f"{device.trace_name(fenced)}: from get_next_batch_to_run to the verify_done wait, deflated",
    )
    costs: dict[str, Cost] = {}
    for engine in (OLD, NEW):
        label = TEMPLATE[engine].label
        graph_call = data.primitives["graph_replay_cpu_400"]
        costs |= assemble.host_costs(
            data.pieces[engine], amounts, totals(data, engine, old), label, graph_call
        )
        assemble.split_schedule(costs, label, before)
    costs[f"host.{TEMPLATE[OLD].label}.plan_switch"] = Cost(
        value=round(old.plan, 1),
        status="measured",
        source="cycles.csv and traces of 0.5.14: schedule section with the plan stream less without, less five calls",
    )
    return costs


def host_state(data: Data) -> HostState:
    every = np.concatenate([s.states for s in data.states.values()])
    return HostState(
        quantiles=state_quantiles(every),
        within_sd=within_run([p.traced for engine in (NEW, OLD) for p in data.pieces[engine]]),
        source=f"cycles.csv, {len(every)} steady rows of both engines: one factor a row over all sections, level 1 "
        "the median of each engine, no trend over the batch; lognormal with a spread on each side of the median; "
        "within a run: median absolute deviation of the traced host time of an iteration",
    )


# -- device -----------------------------------------------------------------------------------------------------


def device_costs(data: Data) -> dict[str, Cost]:
    lines = data.lines()
    whole = np.array([line.intercept for line in lines])
    part = device.draft_share(data.pieces[NEW], data.context(NEW).per_step)
    costs: dict[str, Cost] = {}
    for engine in (OLD, NEW):  # the newer release's kernels before the target were queued, so theirs prevail
        costs |= device.seam_costs(data.pieces[engine], whole)
    costs |= preparation(data)
    for engine in (NEW, OLD):
        note = "" if engine == NEW else ", head not included (it runs eagerly)"
        costs |= device.draft_costs(
            data.pieces[engine], lines, data.context(engine), part, GRAPH_SD[engine], note
        )
    costs |= device.target_cost(
        "graph.target",
        data.pieces[NEW],
        lines,
        costs,
        part,
        "cycle_series_us.npz, 0.5.15 default, linear in the context, less draft graph and seam kernels: its forward "
        "stream never idles",
    )
    costs["graph.target.v0514"] = old_target(data, costs["graph.target"])
    for name in device.graph_names(TEMPLATE[NEW]) | device.graph_names(TEMPLATE[OLD]):
        costs[name] = costs[name].model_copy(update={"valid_range": costs[name].valid_range | CONTEXT})
    costs["prefill.target"] = device.prefill_target(costs["graph.target"], BLOCK, PROMPT)
    return costs


def old_target(data: Data, new: Cost) -> Cost:
    """The older release's target graph: the newer one's by the ratio of the traced graphs at equal iterations."""
    ratios = []
    for old, young in zip(data.pieces[OLD], data.pieces[NEW], strict=True):
        spans = [
            {TRACES[engine][device.trace_name(p)] + i.index: i.graphs[1] for i in split(p.traced.trace)}
            for engine, p in ((OLD, old), (NEW, young))
        ]
        common = sorted(spans[0].keys() & spans[1].keys())
        ratios.append(float(np.mean([spans[0][k] / spans[1][k] for k in common])))
    ratio = np.interp(BATCHES, (BATCHES[0], BATCHES[-1]), ratios)
    return new.model_copy(
        update={
            "value": assemble.rounded(table(new) * ratio),
            "per_context": tuple(round(float(s), 5) for s in np.array(new.per_context) * ratio),
            "source": "graph.target by the ratio of the traced graphs of 0.5.14 and 0.5.15 at equal iterations "
            f"({ratio[0]:.4f} at batch 1, {ratio[-1]:.4f} at 32)",
        }
    )


def preparation(data: Data) -> dict[str, Cost]:
    """Preparation copies and the table write with nothing beside them: the older release's.

    Its batch-1 trace launches them one by one, so the gap between them is that of the batch-32 trace, where the
    plan stream queues them.
    """
    single, queued = data.pieces[OLD]
    names = assemble.file_names(data.pieces[OLD])
    found = {}
    for name in ("lengths", "allocated", "assign"):
        operation = f"prepare.{name}"
        gap = queued.pieces[operation].device - queued.span(operation)
        values = {p.traced.batch: round(p.span(operation) + gap, 2) for p in (single, queued)}
        batches = tuple(sorted(values))
        found[f"dflash.{operation}"] = Cost(
            value=tuple(values[b] for b in batches),
            batch=batches,
            status="measured",
            valid_range={"batch": (batches[0], batches[-1])},
            source=f"{names}: with nothing beside it on the device, gaps as when queued",
        )
    return found


def boot_spread(data: Data) -> float:
    """Relative standard deviation of 0.5.15 default's cycle means between boots, pooled over concurrencies."""
    variances = []
    for b in BATCHES:
        means = np.array([r["cycle_mean_us"] for r in data.steady(NEW) if r.batch == b])
        variances.append(float(np.var(means, ddof=1)) / float(np.mean(means)) ** 2)
    return round(float(np.sqrt(np.mean(variances))), 5)


# -- prefill ----------------------------------------------------------------------------------------------------


def with_fitted_prefill(data: Data, profile: DeviceProfile) -> DeviceProfile:
    """The host's time for an eager prefill, so that churn runs of 0.5.15 default take as long as measured.

    Wall time is linear in it where it is exposed; the median over the replicates stands for each concurrency.
    """
    churn = [r for r in data.rows if (r.engine, r.configuration, r.phase) == (NEW, "default", "churn")]
    measured_walls = {c: median(r["wall_s"] for r in churn if r.batch == c) for c in (8, 32)}
    name = "host.prefill.target"
    guesses = (8000.0, 12000.0)
    with tempfile.TemporaryDirectory() as folder:
        walls = []
        for guess in guesses:
            path = Path(folder) / "candidate.toml"
            write_profile(path, with_cost(profile, name, Cost(value=guess)))
            walls.append([churn_wall(data, path, c) for c in measured_walls])
    slope = (np.array(walls[1]) - walls[0]) / (guesses[1] - guesses[0])
    goal = np.array(list(measured_walls.values()))
    weight = slope / goal**2
    fitted = guesses[0] + float(weight @ (goal - walls[0])) / float(weight @ slope)
    return with_cost(
        profile,
        name,
        Cost(
            value=round(fitted, -1),
            boot_sd=0.1,
            status="fitted",
            source="cycles.csv, churn rows of 0.5.15 default: median wall time at concurrency 8 and 32",
        ),
    )


def with_cost(profile: DeviceProfile, name: str, cost: Cost) -> DeviceProfile:
    return profile.model_copy(update={"costs": profile.costs | {name: cost}})


def churn_wall(data: Data, profile: Path, concurrency: int) -> float:
    """Seconds a simulated churn run takes."""
    row = next(r for r in data.rows if r.engine == NEW and r.phase == "churn" and r.batch == concurrency)
    requests, output = 4 * concurrency, 256
    resolved = load_resolved(
        "h200_dflash",
        {
            "device": str(profile),
            "workload.concurrency": concurrency,
            "workload.requests": requests,
            "workload.output_tokens": output,
            "acceptance.mean_accepted_drafts": row["accepted_per_step"] - 1,
            "run.replications": 3,
        },
    )
    throughput = simulate(resolved).throughput_tok_s.mean
    assert throughput is not None
    return requests * output / throughput


# -- files ------------------------------------------------------------------------------------------------------


def measured(data: Data, costs: dict[str, Cost]) -> h200_composed_costs.Measured:
    """What composed programs are made of."""
    pieces = data.pieces[NEW][0].pieces.items()
    seam = [n for n, piece in pieces if n.startswith("verify.") and piece.kind is Kind.KERNEL]
    argmax = table(costs["dflash.accept.argmax"])
    rows = np.array(BATCHES, dtype=float)
    slope = (argmax[-1] - argmax[0]) / (BLOCK * (rows[-1] - rows[0]))
    return h200_composed_costs.Measured(
        target=table(costs["graph.target"]),
        target_context=np.array(costs["graph.target"].per_context),
        draft=table(costs["graph.draft.v0514"]),
        head=table(costs["dflash.head.gemm"]) + table(costs["dflash.head.argmax"]),
        metadata=sum((table(costs[f"dflash.{n}"]) for n in seam), np.zeros(len(BATCHES))),
        argmax=argmax[0] + slope * (rows - rows[0]),
        launch=data.primitives["kernel_launch_cpu(add_)"],
    )


def derive(data_folder: Path, configs: Path) -> list[Path]:
    """Writes the profile and all programs; returns their paths."""
    data = load(data_folder)
    every = [p for engine in (OLD, NEW) for p in data.pieces[engine]]
    amounts = fit_inflation(
        [
            k
            for e in (OLD, NEW)
            for p in data.pieces[e]
            for k in host.known_sections(p, data.states[e], data.primitives)
        ]
    )
    lag = policy_costs.launch_lag(every)
    costs = device_costs(data) | host_costs(data, amounts)
    costs |= policy_costs.call_costs(data.primitives, float(lag.value))  # type: ignore[arg-type]
    costs |= policy_costs.traced_costs(every, amounts, data.primitives) | policy_costs.UNTRACED
    resolve = host.at_batches(data.states[NEW], "resolve")
    costs |= {
        "hop.launch": lag,
        "hop.cross_stream": policy_costs.cross_stream_hop(every),
        "host.relay.resolve": policy_costs.relay_resolve(resolve, data.primitives),
    }
    costs = TEMPLATE[NEW].assumed | costs
    costs |= h200_composed_costs.costs(measured(data, costs))
    profile = DeviceProfile(
        name="h200_sglang",
        description="One NVIDIA H200, SGLang 0.5.14 and 0.5.15, Qwen3-8B shapes with a DFLASH drafter, TP 1",
        status="measured",
        platform="cuda",
        engine=f"sglang-{NEW}",
        provenance={
            "device": "NVIDIA H200, driver 580.159",
            "software": "torch 2.11.0+cu130, Triton 3.6",
            "engine": "SGLang 0.5.14 and 0.5.15 as released",
            "host": "16 CPU cores (Xeon)",
            "date": "2026-12-01",
            "command": "python tools/derive_h200.py",
            "data": "data/sglang_h200",
        },
        host_state=host_state(data),
        device_boot_sd=boot_spread(data),
        costs=costs,
    )
    for kind in ("devices", "algorithms"):
        (configs / kind).mkdir(parents=True, exist_ok=True)
    written = []
    for engine in (NEW, OLD):
        template = TEMPLATE[engine]
        path = configs / "algorithms" / f"{template.algorithm}@{template.engine}.toml"
        write_program(path, assemble.program(data.pieces[engine], amounts), COMMENT)
        written.append(path)
        copies = StreamName.COPY if engine == NEW else StreamName.FORWARD
        for composed in h200_composed.programs(engine, template.label, copies, list(template.changed)):
            path = configs / "algorithms" / f"{composed.algorithm}@{composed.engine}.toml"
            write_program(path, composed, COMMENT)
            written.append(path)
    path = configs / "devices" / f"{profile.name}.toml"
    write_profile(path, with_fitted_prefill(data, profile), COMMENT)
    return [path, *written]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "sglang_h200")
    parser.add_argument("--configs", type=Path, default=ROOT / "configs")
    options = parser.parse_args()
    try:
        for path in derive(options.data, options.configs):
            print(path)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
