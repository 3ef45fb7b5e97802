"""From traces, timings and primitives to a program and a profile, and back to the cycles they came from."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from sim.config.loader import load_resolved
from sim.config.profile import DeviceProfile
from sim.errors import InputError
from sim.ingest.check import Check, cycle, policies, refuse, self_check
from sim.ingest.files import profile_lines, program_lines, write_profile, write_program
from sim.ingest.overlay import overlay
from sim.ingest.pipeline import IngestResult, ingest
from sim.program.step_program import StepProgram
from sim.run import simulate
from tests.sim.ingest.conftest import DATA, NEW_C1, NEW_C32, OLD_C1, OLD_C32

TIMINGS, PRIMITIVES = DATA / "cycles.csv", DATA / "primitives_us.json"


@pytest.fixture(scope="module")
def new() -> IngestResult:
    return ingest([NEW_C32, NEW_C1], TIMINGS, PRIMITIVES)


@pytest.fixture(scope="module")
def old() -> IngestResult:
    return ingest([OLD_C1, OLD_C32], TIMINGS, PRIMITIVES)


@pytest.mark.parametrize("release", ["new", "old"])
def test_traced_cycles_are_reproduced_in_profiled_time(release: str, request: pytest.FixtureRequest) -> None:
    result: IngestResult = request.getfixturevalue(release)
    checks = [c for c in self_check(result) if c.time == "profiled"]
    assert len(checks) == 2
    assert all(abs(c.error) < 0.015 for c in checks), [str(c) for c in checks]


def test_unprofiled_cycles_of_a_device_bound_engine_are_reproduced(new: IngestResult) -> None:
    checks = [c for c in self_check(new) if c.time == "unprofiled"]
    assert len(checks) == 6
    assert all(abs(c.error) < 0.015 for c in checks), [str(c) for c in checks]


def test_a_profile_that_misses_is_refused_with_every_miss() -> None:
    checks = [Check("a", "profiled", 100.0, 101.0), Check("b", "profiled", 100.0, 90.0)]
    refuse(checks[:1])
    with pytest.raises(InputError, match=r"b: found a simulated cycle -10\.0% off"):
        refuse(checks)


def test_timings_narrow_host_costs_and_their_lack_is_said(new: IngestResult) -> None:
    alone = ingest([NEW_C1, NEW_C32])
    assert any("no unprofiled timings" in n for n in alone.notes)
    assert any("no unprofiled cycles" in n for n in alone.notes)
    assert not any("no unprofiled" in n for n in new.notes)
    name = "host.v0515.draft"
    assert alone.profile.costs[name].boot_sd > 3 * new.profile.costs[name].boot_sd
    assert new.profile.costs["call.graph"].status == "measured"
    assert alone.profile.costs["call.graph"].status == "assumed"


def test_host_sections_add_up_to_the_unprofiled_timing(new: IngestResult) -> None:
    """Enter to copy, with resolve and the record that policies insert, is run_batch at state 1."""
    costs = new.profile.costs
    sections = ("enter", "gather_tokens", "draft", "verify", "accept", "tail", "copy")
    at_one = sum(costs[f"host.v0515.{s}"].value[0] for s in sections)  # type: ignore[index]
    at_one += costs["host.relay.resolve"].value[0]  # type: ignore[index, operator]
    at_one += costs["call.wait"].value + costs["call.record"].value  # type: ignore[operator]
    # medians of three boots at concurrency 1: 2278, 2517 and 2202 us, at states 0.90, 1.03 and 0.89
    assert at_one == pytest.approx(2450, rel=0.03)


def test_shares_of_a_section_sum_to_one(new: IngestResult) -> None:
    shares: dict[str, float] = {}
    for op in new.program.operations:
        name = op.cost if op.kind == "host" else op.host
        if name and name.startswith("host.v0515."):
            shares[name] = shares.get(name, 0.0) + op.share
    assert len(shares) >= 10
    assert all(total == pytest.approx(1.0, abs=1e-6) for total in shares.values()), shares


def test_results_are_written_and_read_back_unchanged(new: IngestResult, tmp_path: Path) -> None:
    write_profile(tmp_path / "p.toml", new.profile, "a comment")
    write_program(tmp_path / "s.toml", new.program)
    profile = DeviceProfile.model_validate(tomllib.loads((tmp_path / "p.toml").read_text()))
    program = StepProgram.model_validate(tomllib.loads((tmp_path / "s.toml").read_text()))
    assert profile_lines(profile) == profile_lines(new.profile)
    assert program_lines(program) == program_lines(new.program)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "p.toml", tmp_path / "s.toml"]


def test_equal_input_gives_equal_bytes(new: IngestResult) -> None:
    again = ingest([NEW_C1, NEW_C32], TIMINGS, PRIMITIVES)
    assert profile_lines(again.profile) == profile_lines(new.profile)
    assert again.summary == new.summary


def test_the_summary_says_who_limits_whom(new: IngestResult, old: IngestResult) -> None:
    sides = {t.trace: t.critical_side for t in (*new.summary.traces, *old.summary.traces)}
    assert sides == {NEW_C1.name: "gpu", NEW_C32.name: "gpu", OLD_C1.name: "exposed", OLD_C32.name: "gpu"}
    exposed = next(t for t in old.summary.traces if t.batch == 1)
    assert 1500 < exposed.exposed_host < 1800
    assert list(exposed.waits) == ["scheduler.get_next_batch_to_run"]
    json.dumps(new.summary.to_json())


@pytest.mark.parametrize(
    "scenario",
    [
        "h200_dflash",
        "h200_dflash_0514_default",
        "h200_dflash_0514_plan",
        "h200_dflash_exact",
        "h200_eagle3",
        "h200_ngram",
        "h200_none",
        "toy_dT",
        "toy_cN",
    ],
)
def test_a_simulated_trace_comes_back_with_the_same_cycle(scenario: str, tmp_path: Path) -> None:
    keys = {
        "workload.concurrency": 4,
        "workload.requests": 4,
        "workload.output_tokens": 192,
        "run.replications": 1,
    }
    path = tmp_path / "own_c4.json.gz"
    simulate(load_resolved(scenario, keys), trace=path, new_boots=False)
    result = ingest([path])
    again = cycle(result.profile, result.program, {"workload.concurrency": 4, **policies(result.pieces[0])})
    assert again == pytest.approx(result.pieces[0].traced.cycle, rel=0.005)


def test_an_overlay_shifts_simulated_lanes_onto_a_real_iteration(tmp_path: Path) -> None:
    keys = {
        "workload.concurrency": 1,
        "workload.requests": 1,
        "workload.output_tokens": 64,
        "run.replications": 1,
    }
    simulated, out = tmp_path / "own_c1.json", tmp_path / "both.json"
    simulate(load_resolved("h200_dflash", keys), trace=simulated, new_boots=False)
    overlay(NEW_C1, simulated, out, iteration=3)
    events = json.loads(out.read_text())["traceEvents"]
    graphs = [
        e for e in events if e.get("cat") == "kernel" and e["pid"] == 900_000 and e["name"] == "verify.graph"
    ]
    traced = ingest([NEW_C1]).pieces[0].traced
    start = traced.trace.origin + next(i.target_start for i in traced.iterations if i.index == 3)
    assert min(abs(e["ts"] - start) for e in graphs) < 0.01
    with pytest.raises(InputError, match="0 to 7"):
        overlay(NEW_C1, simulated, out, iteration=8)
    with pytest.raises(InputError, match="run --trace"):
        overlay(NEW_C1, NEW_C32, out)
