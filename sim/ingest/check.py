"""Self-check: what was read off traces must reproduce them.

Two comparisons for each trace and timing: in *profiled* time, simulating the traced host times under the traced
configuration must give the traced cycle, target start to target start (does the program work like the engine?); and
in unprofiled time, the profile must give the unprofiled cycle of the timings, at the host state that each row's own
section medians show (are the costs right?).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.config.loader import load_resolved
from sim.config.profile import Cost, DeviceProfile, HostState
from sim.errors import InputError, Problem
from sim.ingest import assemble, device, own, toml_out
from sim.ingest.condition import state_of
from sim.ingest.deflate import no_inflation
from sim.ingest.files import write_profile, write_program
from sim.ingest.host import plan_stream_of
from sim.ingest.pieces import Pieces
from sim.ingest.pipeline import PROMPT, IngestResult
from sim.ingest.timings import Row
from sim.program.step_program import StepProgram
from sim.run import simulate

#: a profile that misses by more is refused
REFUSED = 0.05
#: decode iterations simulated to one side of a context
STEPS = 12


@dataclass(frozen=True)
class Check:
    """One comparison; cycles in µs, ``error`` relative to the measured one."""

    what: str
    time: str  # "profiled" | "unprofiled"
    measured: float
    simulated: float
    #: whether a trace at this batch was given; elsewhere the profile answers from other batches
    traced: bool = True

    @property
    def error(self) -> float:
        return self.simulated / self.measured - 1

    def __str__(self) -> str:
        where = f"{self.time} time" if self.traced else f"{self.time} time, no trace at this batch"
        return (
            f"{self.what} ({where}): measured {self.measured:,.0f} us, simulated {self.simulated:,.0f} us, "
            f"{self.error:+.2%}"
        )


def self_check(result: IngestResult) -> list[Check]:
    """All comparisons that the inputs allow, traces first."""
    return [*_traced(result), *_unprofiled(result)]


def refuse(checks: list[Check], limit: float = REFUSED) -> None:
    """Raises InputError naming every check beyond ``limit``, where there is a trace."""
    problems = [
        Problem(
            c.what,
            f"a simulated cycle {c.error:+.1%} off the measured one in {c.time} time",
            f"at most {limit:.0%}",
            "the traces and the timings may not belong together, or the program does not fit the engine; "
            "look at the summary, or accept the profile explicitly",
        )
        for c in checks
        if c.traced and abs(c.error) > limit
    ]
    if problems:
        raise InputError(problems)


def _traced(result: IngestResult) -> Iterator[Check]:
    for p in result.pieces:
        profile = as_profiled(p, result.profile)
        program = assemble.program([p], no_inflation([p.traced.trace.path]))
        keys = {"workload.concurrency": p.traced.batch, **policies(p)}
        yield Check(device.trace_name(p), "profiled", p.traced.cycle, cycle(profile, program, keys))


def _unprofiled(result: IngestResult) -> Iterator[Check]:
    """Rows of the traced configurations, at each row's own host state and the mean context of its iterations."""
    planned = any(plan_stream_of(p).time for p in result.pieces)
    several = len({r.configuration for r in result.rows}) > 1
    batches = {p.traced.batch for p in result.pieces}
    for row in _first_replicates(result.rows):
        state = state_of(result.profile, result.pieces[0].template, row)
        keys: dict[str, Any] = {"workload.concurrency": row.batch, "host_scale": state}
        if planned and ("plan" in row.configuration or not several):
            keys["prep_stream"] = "plan"
        accepted = row.figures.get("accepted_per_step", 1.0)
        count = row.figures.get("full_batch_cycles", 100.0)
        context = PROMPT + accepted * (device.DROPPED - device.LAG + (count - 1) / 2)
        simulated = cycle(result.profile, result.program, keys, context)
        what = f"{row.engine} {row.configuration} at {row.batch}, host state {state:.2f}"
        yield Check(what, "unprofiled", row["cycle_mean_us"], simulated, row.batch in batches)


def _first_replicates(rows: list[Row]) -> list[Row]:
    seen: dict[tuple[str, int], Row] = {}
    for row in rows:
        seen.setdefault((row.configuration, row.batch), row)
    return [seen[key] for key in sorted(seen)]


def policies(p: Pieces) -> dict[str, Any]:
    """Scenario keys of the traced configuration, as far as the trace shows them."""
    if p.traced.trace.named:
        return dict(own.policies_shown(p))
    return {"prep_stream": "plan"} if plan_stream_of(p).time else {}


def as_profiled(p: Pieces, profile: DeviceProfile) -> DeviceProfile:
    """The profile of one trace in its own, profiled time: no noise, no context, host and device as traced."""
    raw = no_inflation([p.traced.trace.path])
    template = p.template
    costs = {n: c.model_copy(update={"within_sd": 0.0, "boot_sd": 0.0}) for n, c in profile.costs.items()}
    if not p.traced.trace.named:
        costs |= {n: Cost(value=v, status="assumed", source="traced") for n, v in _profiled_calls(p).items()}
    traced = assemble.host_costs([p], raw, {}, template.label, 0.0)
    if assemble.host_cost("schedule", template.label) not in traced and not p.traced.trace.named:
        assemble.split_schedule(traced, template.label, Cost(value=0.0, status="exact"))
    costs |= traced
    costs |= device.seam_costs([p]) | device.traced_graphs([p])
    return profile.model_copy(
        update={"name": "profiled", "host_state": HostState(), "device_boot_sd": 0.0, "costs": costs}
    )


def _profiled_calls(p: Pieces) -> dict[str, float]:
    """Calls that policies insert, as dear as the profiler makes them."""
    found = {}
    resolve = p.policy.get("resolve")
    if resolve is not None:
        found["host.relay.resolve"] = max(0.0, resolve.time - 5.0)
        found["call.wait"] = 5.0
    publish = p.policy.get("publish")
    if publish is not None:
        found["call.record"] = publish.time
    plan = plan_stream_of(p)
    if plan.time:
        found["call.wait"] = found["call.record"] = plan.time / 5
    return found


def cycle(
    profile: DeviceProfile, program: StepProgram, keys: dict[str, Any], context: float | None = None
) -> float:
    """Mean full-batch cycle (µs) at a concurrency, requests at about ``context`` tokens, acceptance without luck."""
    per_step = min(2, program.speculation.block_size)
    tokens = 2 * STEPS * per_step
    prompt = 1 if context is None else max(1, round(context - tokens / 2))
    written = {
        **keys,
        "workload.requests": keys["workload.concurrency"],
        "workload.prompt_tokens": prompt,
        "workload.output_tokens": tokens,
        "run.replications": 1,
    }
    with files(profile, program) as scenario:
        resolved = load_resolved(str(scenario), written)
        result = simulate(resolved, new_boots=False, hazards=False)
    mean = result.cycle_us.mean
    assert mean is not None  # long enough by construction
    return mean


@contextmanager
def files(profile: DeviceProfile, program: StepProgram) -> Iterator[Path]:
    """A scenario that names the profile and the program, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        write_profile(at / "profile.toml", profile)
        write_program(at / "program.toml", program)
        scenario = at / "scenario.toml"
        lines = toml_out.table("acceptance", {"model": "match_expected", "mean_accepted_drafts": 1.0})
        if program.speculation.block_size == 1:
            lines = []
        head = [
            f"device = {toml_out.value('./profile.toml')}",
            f"algorithm = {toml_out.value('./program.toml')}",
            "",
        ]
        scenario.write_text("\n".join([*head, *lines]), encoding="utf-8")
        yield scenario
