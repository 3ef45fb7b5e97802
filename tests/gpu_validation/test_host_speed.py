"""Predictions for the speed that the host had."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_validation import settings
from gpu_validation.runtime.host_work import HostWork
from gpu_validation.spec.declared import declared
from gpu_validation.validate.claims import Cell
from gpu_validation.validate.host_speed_profile import at_speed
from gpu_validation.validate.predict import SPEEDS, Predictions
from sim.config import paths
from sim.config.loader import load_resolved
from sim.config.profile import Cost, DeviceProfile
from sim.config.resolve import Resolved
from sim.maxplus.durations import Durations, Scales
from sim.maxplus.turn import FixedBatch

torch.set_num_threads(1)
PROGRAM = declared("dflash", 3, "suite")
WORK = HostWork(receive_us=100, process_us=1000, per_row_us=10)


def profile(**costs: Cost) -> DeviceProfile:
    named = {name.replace("_", ".", 1): cost for name, cost in costs.items()}
    return DeviceProfile(name="x", status="exact", engine="suite", costs=named)


def test_host_code_follows_the_speed_and_held_work_and_the_device_do_not() -> None:
    stated = profile(
        host_process=Cost(value=(1030.0, 1060.0), batch=(1, 4)),
        host_receive=Cost(value=105.0),
        host_publish=Cost(value=(20.0, 24.0), batch=(1, 4), per_batch=1.0),
        call_wake=Cost(value=3.0),
        graph_verify=Cost(value=500.0),
    )
    costs = at_speed(stated, PROGRAM, WORK, 1.5).costs
    assert costs["host.process"].value == pytest.approx((1010 + 30, 1040 + 30))
    assert costs["host.receive"].value == pytest.approx(100 + 7.5)
    assert costs["host.publish"].value == pytest.approx((30.0, 36.0))
    assert costs["host.publish"].per_batch == 1.5
    assert costs["call.wake"].value == 4.5
    assert costs["graph.verify"].value == 500.0
    assert at_speed(stated, PROGRAM, WORK, 1.0).costs == stated.costs


def test_a_cost_of_one_calibrated_batch_holds_the_work_of_that_batch() -> None:
    stated = profile(host_process=Cost(value=1060.0, valid_range={"batch": (4, 4)}))
    assert at_speed(stated, PROGRAM, WORK, 2.0).costs["host.process"].value == pytest.approx(1040 + 40)


@pytest.fixture(scope="module")
def predictions() -> Predictions:
    configs = Path(paths.folder("devices")).parent
    return Predictions(configs, "h200", "dflash", settings.DEVICE)


def test_a_host_bound_cycle_follows_the_speed_and_a_device_bound_one_does_not(
    predictions: Predictions,
) -> None:
    host, device = Cell("0.6b", 1), Cell("8b", 8)

    def cycle(cell: Cell, speed: float) -> float:
        return predictions.at_speed(cell, "unified_none", "cycle_us", speed)

    assert cycle(host, 1.5) > 1.05 * cycle(host, 1.0)
    assert cycle(device, 1.5) == pytest.approx(cycle(device, 1.0), rel=1e-3)
    # Between the computed speeds a straight line, at them what was computed, beyond them the last.
    assert cycle(host, 1.35) == pytest.approx((cycle(host, 1.2) + cycle(host, 1.5)) / 2)
    assert cycle(host, SPEEDS[-1] + 9) == cycle(host, SPEEDS[-1])
    stated = predictions.result(host, "unified_none")["cycle_us"]["mean"]
    assert cycle(host, 1.0) == pytest.approx(stated, rel=1e-6)


def test_the_stated_speed_is_that_of_the_profile(predictions: Predictions) -> None:
    assert predictions.witness_us(Cell("0.6b", 1)) > 0


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_a_step_costs_the_suite_s_host_about_what_it_costs_sglang_s(
    predictions: Predictions, batch: int
) -> None:
    """What the held work was chosen for: within a tenth, on the same device."""
    suite = predictions.resolved(Cell("0.6b", batch), "unified_none")
    sglang = load_resolved("h200_dflash", {"workload.concurrency": batch})
    assert _host_us(suite, batch) == pytest.approx(_host_us(sglang, batch), rel=0.1)


def _host_us(resolved: Resolved, batch: int) -> float:
    """Microseconds that the host works in a decode step."""
    turn = FixedBatch(resolved, batch=batch).steady
    vector = Durations(resolved.profile, turn).exact(Scales(), context=200.0)
    return float(vector[: len(turn.primitives)].sum()) / 1e3
