"""The shipped H200 profile: what the script writes, and how it meets the measured cycles.

0.5.15 default is what the profile is fitted on; the cycles of 0.5.14 are predictions.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sim.config.declarations import load_profile, load_program
from sim.config.loader import load_resolved
from sim.ingest.check import cycle
from sim.ingest.condition import host_states
from sim.ingest.sglang_dflash import V0514, V0515
from sim.ingest.timings import Row, read_timings
from sim.replication import Replication
from tests.sim.ingest.conftest import DATA, ROOT

BATCHES = (1, 2, 4, 8, 16, 32)
#: the row the data set's README calls a burst
BURST = ("default", 2)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("derive_h200", ROOT / "tools" / "derive_h200.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["derive_h200"] = module
    spec.loader.exec_module(module)
    return module


def test_the_committed_files_are_what_the_script_writes(tool: ModuleType, tmp_path: Path) -> None:
    for written in tool.derive(DATA, tmp_path):
        shipped = ROOT / "configs" / written.relative_to(tmp_path)
        assert written.read_text() == shipped.read_text(), f"run tools/derive_h200.py: {shipped.name} differs"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [r for r in read_timings(DATA / "cycles.csv") if r.phase == "steady"]


def measured(rows: list[Row], engine: str, configuration: str, batch: int) -> Row:
    return next(r for r in rows if (r.engine, r.configuration, r.batch) == (engine, configuration, batch))


def error(row: Row, host_scale: float = 1.0) -> float:
    """Relative error of the simulated cycle, at the mean context of the row's iterations."""
    old = row.engine == "0.5.14"
    program = load_program("dflash", f"sglang-{row.engine}")
    keys = {"workload.concurrency": row.batch, "host_scale": host_scale}
    if row.configuration == "plan_stream":
        keys |= {"prep_stream": "plan"}
    # A device-bound interval shows the forward before it; a host that waits for its own forward shows that one.
    lag = 0 if old and row.configuration == "default" else 1
    context = 128 + row["accepted_per_step"] * (5 - lag + (row["full_batch_cycles"] - 1) / 2)
    return cycle(load_profile("h200_sglang"), program, keys, context) / row["cycle_mean_us"] - 1


@pytest.mark.parametrize("batch", BATCHES)
def test_the_fitted_release_is_met_within_half_a_per_cent(rows: list[Row], batch: int) -> None:
    assert abs(error(measured(rows, "0.5.15", "default", batch))) < 0.005


@pytest.mark.parametrize("batch", BATCHES)
def test_the_older_release_with_a_plan_stream_is_predicted(rows: list[Row], batch: int) -> None:
    assert abs(error(measured(rows, "0.5.14", "plan_stream", batch))) < 0.015


def test_the_older_release_is_predicted(rows: list[Row]) -> None:
    errors = [abs(error(measured(rows, "0.5.14", "default", b))) for b in BATCHES]
    assert max(errors) <= 0.035, errors
    assert sum(e <= 0.02 for e in errors) >= 4, errors


def test_a_prediction_conditioned_on_the_state_of_its_boot_is_closer(rows: list[Row]) -> None:
    boot = [r for r in rows if (r.engine, r.configuration) == ("0.5.14", "default")]
    states = host_states(load_profile("h200_sglang"), V0514, boot)
    for row in boot:
        if (row.configuration, row.batch) != BURST:
            assert abs(error(row, states[row.batch])) < 0.012


def test_states_of_a_quiet_boot_lie_below_those_of_a_slow_one(rows: list[Row]) -> None:
    profile = load_profile("h200_sglang")
    quiet, slow = (
        host_states(profile, V0515, [r for r in rows if r.engine == "0.5.15" and r.replicate == n])
        for n in "32"
    )
    assert all(quiet[b] < slow[b] for b in BATCHES)
    assert slow[16] == pytest.approx(1.58, abs=0.03)


def test_a_window_is_the_iterations_that_a_measured_run_averages(rows: list[Row]) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    from h200_window import windows

    for window in windows(rows):
        resolved = load_resolved("h200_dflash", {**window.keys(), "run.replications": 1})
        run = Replication(resolved, 0).run()
        assert run.books.cycles.count == window.cycles
        steps = run.books.row_steps
        assert run.books.accepted_drafts / steps + 1 == pytest.approx(window.tokens_per_step, abs=0.005)


def test_the_reported_predictions_of_the_older_release_keep_the_limits_asked_for() -> None:
    stored = json.loads((ROOT / "reports" / "h200_predictions" / "older_release.json").read_text())
    predictions = stored["borrowing"]["predictions"]
    for configuration, limit in (("plan_stream", 0.015), ("default", 0.035)):
        own = [p for p in predictions if p["configuration"] == configuration]
        assert [p["concurrency"] for p in own] == list(BATCHES)
        assert max(abs(p["error"]) for p in own) <= limit
        assert sum(abs(p["error"]) <= 0.02 for p in own) >= 4
        assert all(p["inside"] and p["half_width_us"] <= p["half_width_limit_us"] for p in own)


def test_every_cost_says_where_it_comes_from() -> None:
    for name, cost in load_profile("h200_sglang").costs.items():
        assert cost.source, name
        assert cost.status in ("measured", "fitted", "scaled", "assumed"), name
