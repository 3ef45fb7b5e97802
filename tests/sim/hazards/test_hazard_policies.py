"""What each barrier claims to cover, under costs drawn to provoke it; and the check against a second one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hazard_lab import edited, findings, harmful, program, resolved
from hazard_oracle import Both, Oracle

from sim.replication import Replication
from sim.run import simulate

#: barrier → severities it leaves with a program whose event is in the right place
LEAVES = {
    ("coarse", "loop_top"): {"benign"},
    ("read_done", "loop_top"): {"benign"},
    ("coarse", "after_launch"): set(),
    ("read_done", "after_launch"): set(),
    ("unguarded", "loop_top"): {"benign", "harmful"},
    ("self_fence", "loop_top"): {"benign", "harmful"},
}


def provoking(rng: random.Random) -> dict[str, float]:
    """A long draft before the last shared read, a quick host and quick preparation: the window is wide open."""
    return {
        "graph.draft": float(rng.choice((100, 1000, 5000))),
        "graph.target": float(rng.choice((50, 500, 2000))),
        "kernel.small": float(rng.choice((1, 5, 50))),
        "host.prepare": float(rng.choice((1, 20))),
        "host.schedule": float(rng.choice((1, 20, 200))),
        "host.process": float(rng.choice((1, 30, 300))),
        "host.enter": float(rng.choice((1, 30))),
        "hop.cross_stream": float(rng.choice((0, 2, 50))),
    }


@pytest.mark.parametrize(("barrier", "placement"), LEAVES)
@pytest.mark.parametrize("algorithm", ["none", "eagle", "ngram", "dflash"])
def test_every_barrier_leaves_what_it_says_whatever_the_costs(
    barrier: str, placement: str, algorithm: str
) -> None:
    if algorithm == "none" and barrier == "self_fence":
        pytest.skip("a worker whose lengths the host knows has no fence of its own")
    rng = random.Random(f"{barrier} {placement} {algorithm}")
    overrides = {"barrier": barrier, "barrier_placement": placement, "algorithm": algorithm}
    for _ in range(6):
        found = findings(None, overrides, provoking(rng))
        assert {f["severity"] for f in found} == LEAVES[barrier, placement]


def test_unguarded_really_overlaps_under_a_long_draft_and_read_done_never_does() -> None:
    long_draft = {"graph.draft": 5000.0}
    unguarded = findings(None, {"barrier": "unguarded"}, long_draft)
    assert any(f["severity"] == "harmful" and f["realised"] for f in unguarded)
    guarded = findings(None, {"barrier": "read_done"}, long_draft)
    assert not any(f["realised"] for f in guarded if f["reason"] == "recycled_row")


def test_a_finding_does_not_depend_on_luck() -> None:
    """Unordered accesses are found whether or not this run's times happened to keep their order."""
    slow_host = {"host.schedule": 20_000.0, "host.prepare": 20_000.0}
    found = findings(None, {"barrier": "unguarded"}, slow_host)
    assert harmful(found)
    assert not any(f["realised"] for f in found if f["severity"] == "harmful")
    assert min(f["margin_us"] for f in found if f["severity"] == "harmful") > 0


SHIPPED: list[dict[str, str]] = [
    {},
    {"engine": "toy-0.5.14"},
    {"engine": "toy-0.5.14", "prep_stream": "plan"},
    {"engine": "toy-0.5.14", "prep_stream": "plan", "relay": "unified", "host_lengths": "exact"},
    {"barrier": "unguarded", "host_lengths": "exact_deferred"},
    {"algorithm": "eagle"},
    {"algorithm": "ngram"},
    {"algorithm": "none"},
    {"platform": "hip"},
    {"platform": "hip", "host_lengths": "exact"},
    {"overlap": "false"},
]


@pytest.mark.parametrize(
    "overrides", SHIPPED, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()) or "default"
)
def test_the_slow_check_finds_the_same(overrides: dict[str, str]) -> None:
    replication = Replication(resolved(None, overrides), 0, hazards=True)
    check = replication.hazards
    assert check is not None
    both = Both(check, Oracle(replication.block_size))
    replication.machine.watcher = both
    replication.hazards = both  # type: ignore[assignment]
    replication.run()
    product: Counter[Any] = Counter()
    for finding in check.findings.values():
        first, second = finding.operations
        product[finding.buffer, str(finding.kind), first.name, second.name] += finding.count
    assert product == both.oracle.unordered()
    assert not both.oracle.overlapping_in_time()


def test_checking_changes_nothing_but_the_hazards() -> None:
    for overrides in SHIPPED:
        checked, plain = (simulate(resolved(None, overrides), hazards=h).to_json() for h in (True, False))
        assert checked["hazards"] is not None
        assert plain["hazards"] is None
        for result in (checked, plain):
            del result["hazards"], result["wall_s"]
        assert checked == plain


def test_findings_of_several_replications_add_up() -> None:
    one = simulate(resolved(None, {"barrier": "unguarded"})).to_json()["hazards"]
    three = simulate(resolved(None, {"barrier": "unguarded", "run.replications": "3"})).to_json()["hazards"]
    assert [f["count"] * 3 for f in one] == [f["count"] for f in three]


def test_forgetting_known_states_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = findings(overrides={"barrier": "unguarded"})
    monkeypatch.setattr("sim.hazards.order.MOST_STATES", 2)
    assert findings(overrides={"barrier": "unguarded"}) == remembered


def test_memory_does_not_grow_with_the_run() -> None:
    """A program whose results are waited for on another stream than its forwards: the host learns of nothing."""
    blind = edited(program(), change={"copy.join": {"on": "schedule"}})
    replication = Replication(resolved(blind, {"workload.requests": "60"}), 0, hazards=True).run()
    assert replication.hazards is not None
    assert replication.books.decode_iterations > 100
    assert len(replication.hazards._recent) <= 26
    assert len(replication.hazards.findings) < 60
