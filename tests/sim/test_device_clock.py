"""A device that pauses clocks up: the idle share at which a run's own comes out again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import device_clock
from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.device_clock import PRECISION, settled_idle_share
from sim.replication import Replication
from sim.run import simulate

RELIEF, AT = 0.2, 0.5


def resolved(relief: float, **overrides: object) -> Resolved:
    """The toy drafter, its graphs ``relief`` shorter on a device that idles half of its time."""
    r = load_resolved("toy_dF", {"run.replications": 1, **overrides})
    costs = {
        name: cost.model_copy(update={"relief": relief, "relief_at": AT})
        if name.startswith("graph")
        else cost
        for name, cost in r.profile.costs.items()
    }
    assert any(cost.relief for cost in costs.values()) == (relief > 0)
    return replace(r, profile=r.profile.model_copy(update={"costs": costs}))


def idle_share(run: Replication) -> float:
    return sum(run.machine.idle) / (sum(run.machine.idle) + run.machine.busy)


def test_without_relief_nothing_is_run_and_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replication, "run", lambda self: pytest.fail("a run nobody asked for"))
    assert settled_idle_share(resolved(0.0)) == 0.0


@pytest.mark.parametrize("overlap", [True, False])
def test_the_share_is_that_of_the_run_made_with_it(overlap: bool) -> None:
    keys = {} if overlap else {"overlap": False, "barrier": None, "host_lengths": "none"}
    r = resolved(RELIEF, **keys)
    share = settled_idle_share(r)
    assert idle_share(Replication(r, 0, idle_share=share).run()) == pytest.approx(share, abs=2 * PRECISION)
    assert settled_idle_share(r) == share


def test_what_a_pause_costs_is_won_back_in_part() -> None:
    """Overlap off makes the device wait; with relief the forwards in between are shorter."""
    keys = {"overlap": False, "barrier": None, "host_lengths": "none"}
    plain, relieved = (simulate(resolved(relief, **keys)).cycle_us.mean for relief in (0.0, RELIEF))
    assert plain is not None
    assert relieved is not None
    assert relieved < plain
    share = settled_idle_share(resolved(RELIEF, **keys))
    assert 0 < share < 1
    busy = 1 - share
    graphs = min(1.0, share / AT) * RELIEF * busy
    assert 1 - relieved / plain == pytest.approx(graphs, abs=0.05)


def test_a_share_that_jumps_is_found_where_it_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever share goes in, another one comes out, by turns: the fixed point is the edge between them."""
    asked: list[float] = []

    class Run:
        def __init__(self, resolved: Resolved, index: int, idle_share: float):
            asked.append(idle_share)

        def run(self) -> Run:
            return self

    monkeypatch.setattr(device_clock, "Replication", Run)
    monkeypatch.setattr(device_clock, "_idle_share", lambda run: 0.8 if asked[-1] < 0.37 else 0.1)
    assert settled_idle_share(resolved(RELIEF)) == pytest.approx(0.37, abs=PRECISION)
    assert len(asked) < 20


def test_outside_the_calibrated_batches_a_relief_is_held() -> None:
    cost = Cost(value=(10.0, 20.0), batch=(16, 64), relief=(0.004, 0.05), relief_at=(0.3, 0.2))
    for rows in (1, 8, 64, 154, 256, 4096):
        for share in (0.0, 0.1, 0.5, 1.0):
            assert 0.95 <= cost.relieved(rows, share) <= 1.0
    assert cost.relieved(4096, 1.0) == cost.relieved(64, 1.0)
    floors = Cost(value=(10.0, 20.0), batch=(16, 64), context_floor=(0.2, 0.9))
    assert floors.reading(256, 1) == pytest.approx(0.9)
    assert floors.reading(1, 1) == 1.0


def test_a_relief_is_in_proportion_below_its_share_and_no_more_above() -> None:
    cost = Cost(value=(10.0, 20.0), batch=(1, 4), relief=(0.0, 0.1), relief_at=(1.0, 0.2))
    assert [cost.relieved(4, share) for share in (0.0, 0.1, 0.2, 0.9)] == pytest.approx([1, 0.95, 0.9, 0.9])
    assert cost.relieved(1, 0.9) == 1.0
    assert cost.relieved(2, 0.9) == pytest.approx(1 - 0.1 / 3)
