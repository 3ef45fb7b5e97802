"""A prediction conditioned on the boot it is compared with: the host state from the boot's own unprofiled timings.

The state is the ratio of a section without a wait to what the profile says at state 1: the launch part of
``run_batch`` where nothing waits inside it, else the schedule section.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from sim.capabilities import Barrier, HostLengths, PrepStream
from sim.config.profile import DeviceProfile, HostState, at_batch
from sim.config.resolve import Resolved
from sim.errors import InputError, Problem
from sim.ingest.assemble import GROUPS, host_cost
from sim.ingest.sglang_dflash import TEMPLATES
from sim.ingest.template import Template
from sim.ingest.timings import Row, read_timings

#: how well one section's median shows the state that all sections share: relative residual of the joint fit of 30
#: rows of the H200 data set (0.041 and 0.040 in its two releases)
READING_SD = 0.041
Z95 = 1.959964
#: a host this many times slower than the profile's is no host of it
MOST = 1000


@dataclass(frozen=True)
class Reading:
    """A boot's host state relative to the profile's state 1, and the rows it was read from."""

    state: float
    section: str
    rows: list[Row]

    @property
    def text(self) -> str:
        """``0.920, from run_batch of 0.5.14 default, replicate 1, at 16``."""
        names = sorted(
            {f"{r.engine} {r.configuration}, replicate {r.replicate}, at {r.batch}" for r in self.rows}
        )
        median_of = f"median of {len(self.rows)} rows: " if len(self.rows) > 1 else ""
        return f"{self.state:.3f}, from {self.section} of {median_of}{'; '.join(names)}"


def host_states(
    profile: DeviceProfile, template: Template, rows: list[Row], section: str = "run_batch"
) -> dict[int, float]:
    """State of each concurrency, from one section; medians over several rows of one concurrency.

    Raises:
        InputError: no steady row of the template's engine.
    """
    states: dict[int, list[float]] = {}
    for row in _own(template, rows):
        states.setdefault(row.batch, []).append(state_of(profile, template, row, section))
    return {batch: round(median(values), 4) for batch, values in sorted(states.items())}


def read_state(resolved: Resolved, timings: Path) -> Reading:
    """The state of the boot in ``timings`` (its rows at the scenario's concurrency, where it has them).

    Raises:
        InputError: unreadable timings, none of the scenario's engine, or an engine whose sections are not known.
    """
    engine = str(resolved.scenario.engine)
    template = TEMPLATES.get(engine)
    missing = template is None or host_cost("verify", template.label) not in resolved.profile.costs
    if template is None or missing or resolved.program.algorithm != template.algorithm:
        known = ", ".join(f"{t.algorithm}@{t.engine}" for t in TEMPLATES.values())
        raise InputError(
            Problem(
                "--host-state-from",
                f"{resolved.program.algorithm}@{engine} on {resolved.profile.name}",
                f"a scenario of {known} on a profile with its host sections",
                "For others state host_scale.",
            )
        )
    own = _own(template, read_timings(timings), timings.name)
    planned = resolved.scenario.prep_stream is PrepStream.PLAN
    own = [r for r in own if ("plan" in r.configuration) == planned] or own
    own = [r for r in own if r.batch == resolved.scenario.workload.concurrency] or own
    section = _quiet_section(resolved)
    values = [state_of(resolved.profile, template, r, section) for r in own]
    state = round(median(values), 4)
    if not 0 < state <= MOST:
        found = f"a {section} section that makes a host state of {state:g}"
        raise InputError(Problem(str(timings), found, f"one above 0 and at most {MOST}"))
    return Reading(state, section, own)


def at_state(resolved: Resolved, state: float) -> Resolved:
    """``resolved`` on a boot whose host state is known as well as one section shows it."""
    scenario = resolved.scenario.model_copy(update={"host_scale": resolved.scenario.host_scale * state})
    spread = math.exp(Z95 * READING_SD)
    known = HostState(
        quantiles={"0.025": round(1 / spread, 3), "0.5": 1.0, "0.975": round(spread, 3)},
        within_sd=resolved.profile.host_state.within_sd,
        source="a boot's own timings",
    )
    profile = resolved.profile.model_copy(update={"host_state": known})
    return replace(resolved, scenario=scenario, profile=profile)


def _own(template: Template, rows: list[Row], where: str = "timings") -> list[Row]:
    engine = template.engine.rsplit("-", 1)[-1]
    own = [r for r in rows if r.engine in (engine, template.engine) and r.phase == "steady"]
    if not own:
        found = ", ".join(sorted({r.engine for r in rows})) or "no rows"
        raise InputError(Problem(f"{where}: engine", found, f"steady rows of {engine}"))
    return own


def _quiet_section(resolved: Resolved) -> str:
    """The longest section in which the host does not wait under the scenario's policies."""
    scenario = resolved.scenario
    waits_in_launch = scenario.host_lengths is HostLengths.EXACT_DEFERRED
    waits_in_schedule = scenario.barrier is Barrier.SELF_FENCE and scenario.prep_stream is not PrepStream.PLAN
    return "schedule" if waits_in_launch and not waits_in_schedule else "run_batch"


def state_of(profile: DeviceProfile, template: Template, row: Row, section: str = "run_batch") -> float:
    """Measured over modelled time of a section. ``run_batch`` goes without resolve, where exact lengths wait."""
    modelled = sum(
        _at(profile, host_cost(s, template.label), row.batch)
        for s in GROUPS[section]
        if host_cost(s, template.label) in profile.costs
    )
    if section == "schedule":
        return row["host_schedule_us"] / modelled
    modelled += _at(profile, "call.record", row.batch)  # of publish_ready
    resolve = template.bound_us or _at(profile, "host.relay.resolve", row.batch) + _at(
        profile, "call.wait", row.batch
    )
    return (row["host_run_batch_us"] - row.figures.get("host_resolve_us", resolve)) / modelled


def _at(profile: DeviceProfile, name: str, batch: int) -> float:
    cost = profile.costs[name]
    return at_batch(cost.value, cost.batch, batch) + cost.per_batch * batch
