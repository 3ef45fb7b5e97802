"""Sections of shipped studies on made-up results: what is ranked, who wins, what is recovered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sim.report.build import build
from sim.report.data import Row, StudyData
from sim.report.document import Table
from sim.report.sections import differences, ranking, recovered, winners
from sim.study.spec import check_study

Cycles = Mapping[tuple[str, int], float]


def result(cycle: float, hazards: list[dict[str, Any]] | None = None, tokens: float = 5) -> dict[str, Any]:
    def estimate(value: float) -> dict[str, Any]:
        return {"mean": value, "ci95": [value, value], "pi95": [value, value]}

    throughput = tokens * 2e8 / cycle
    return {
        "cycle_us": estimate(cycle),
        "throughput_tok_s": estimate(throughput),
        "hazards": hazards,
        "notes": [],
        "accepted_per_step": {"with_bonus": tokens, "without_bonus": tokens - 1},
        "seed": 1,
        "replications": 2,
        "cost_share_by_status": {"measured": 1.0},
        "extrapolated": [],
        "samples": {
            "cycle_us": [cycle, cycle],
            "cycle_us_at_factors": [cycle],
            "throughput_tok_s": [throughput, throughput],
            "throughput_tok_s_at_factors": [throughput],
            "host_factors": [1.5],
        },
    }


def data(variants: list[dict[str, Any]], cycles: Mapping[tuple[str, int], Any], **more: Any) -> StudyData:
    study = check_study(
        {
            "title": "t",
            "question": "q",
            "scenario": "toy_dF",
            "variants": variants,
            "factors": [{"name": "concurrency", "keys": ["workload.concurrency"], "values": [1, 8]}],
            **more,
        },
        "made_up",
    )
    rows = [
        Row(name, {"concurrency": at}, value if isinstance(value, dict) else result(value))
        for (name, at), value in cycles.items()
    ]
    return StudyData(
        name="made_up",
        study=study,
        study_sha256="0",
        command="overlapsim study made_up",
        version="1",
        device={"name": "d", "sha256": "0", "status": "exact", "description": "", "provenance": {}},
        factors={"concurrency": [1, 8]},
        rows=rows,
        timelines={},
        measured=[],
    )


def test_the_best_variant_is_named_where_it_is_best() -> None:
    d = data(
        [{"name": "a"}, {"name": "b"}],
        {("a", 1): 100.0, ("a", 8): 100.0, ("b", 1): 110.0, ("b", 8): 80.0},
        reference="a",
        sections=["winners"],
    )
    table = next(b for b in winners.section(d).blocks if isinstance(b, Table))
    assert list(table.rows[0]) == ["all", "a", "**b (+25.0 %)**"]
    assert winners.sentences(d) == [
        "**Best**: a at concurrency 1; b at concurrency 8 (+25.0 %, +25.0 … +25.0 %, at 8)."
    ]


REPAIRS = [
    {"name": "start"},
    {"name": "goal"},
    {"name": "x", "parts": ["x"]},
    {"name": "y", "parts": ["y"]},
    {"name": "x + y", "parts": ["x", "y"]},
    {"name": "x + y + z", "parts": ["x", "y", "z"]},
]
RECOVERY = {"start": "start", "goal": "goal", "enough": 0.9}


def repaired(**cycles: tuple[float, float]) -> StudyData:
    names = {"start": "start", "goal": "goal", "x": "x", "y": "y", "xy": "x + y", "xyz": "x + y + z"}
    flat = {
        (names[key], at): value
        for key, pair in cycles.items()
        for at, value in zip((1, 8), pair, strict=True)
    }
    return data(REPAIRS, flat, recovery=RECOVERY, sections=["recovered"])


def test_a_remedy_recovers_its_share_of_the_loss() -> None:
    d = repaired(start=(120, 140), goal=(100, 100), x=(110, 130), y=(120, 120), xy=(101, 100), xyz=(100, 100))
    assert recovered.share(d, "x", {"concurrency": 1}) == pytest.approx(0.5)
    assert recovered.share(d, "x", {"concurrency": 8}) == pytest.approx(0.25)
    assert recovered.share(d, "y", {"concurrency": 1}) == pytest.approx(0)


def test_the_cheapest_that_recovers_enough_everywhere_is_named_without_what_contains_it() -> None:
    d = repaired(start=(120, 140), goal=(100, 100), x=(100, 130), y=(120, 120), xy=(101, 100), xyz=(100, 100))
    assert recovered.enough(d, {}) == ["x + y"]
    (sentence,) = recovered.sentences(d)
    assert "+20.0 % to +40.0 % of the cycle" in sentence
    assert "is **x + y**." in sentence


def test_where_nothing_recovers_enough_the_nearest_is_named() -> None:
    d = repaired(start=(120, 140), goal=(100, 100), x=(110, 130), y=(120, 120), xy=(110, 110), xyz=(110, 104))
    (sentence,) = recovered.sentences(d)
    assert "nothing recovers 90% of it everywhere; x + y comes nearest with 50%" in sentence or (
        "x + y + z comes nearest with 50%" in sentence
    )


BAD = [{"severity": "harmful", "count": 3, "buffer": "req_to_token", "kind": "write_after_read"}]
FINE = [{"severity": "benign", "count": 9, "buffer": "req_to_token", "kind": "write_after_read"}]


def test_combinations_are_ranked_and_unsafe_ones_marked() -> None:
    d = data(
        [{"name": "fast"}, {"name": "slow"}, {"name": "short"}],
        {
            ("fast", 1): result(100, BAD),
            ("fast", 8): result(100, []),
            ("slow", 1): result(110, FINE),
            ("slow", 8): result(120, []),
            ("short", 1): result(90, []),
        },
        sections=["ranking"],
    )
    every = ranking.ranked(d)
    assert [(r.variant, r.harmful) for r in every] == [("fast", 3), ("slow", 0)]
    assert every[1].behind == pytest.approx([0.1, 0.2])
    first, second = ranking.sentences(d)
    assert first == "**Fastest safe combination**: slow; the slowest of all 2 takes up to 20.0% more."
    assert "1 of 2; the fastest of them (fast) would gain" in second
    assert build(d).verdict == [first, second]


def test_a_shorter_cycle_with_fewer_tokens_is_slower_and_ranked_behind() -> None:
    wide, narrow = result(100, [], tokens=6), result(90, [], tokens=4)
    cells = {(name, at): r for name, r in (("wide", wide), ("narrow", narrow)) for at in (1, 8)}
    d = data(
        [{"name": "wide"}, {"name": "narrow"}],
        cells,
        reference="wide",
        sections=["differences", "ranking"],
    )
    told, fastest = build(d).verdict
    assert told.startswith(
        "**narrow**: by throughput, since the variants accept different numbers of tokens a step: "
        "slower at every concurrency: throughput −25.9 % ("
    )
    assert "by throughput" in fastest
    assert ": wide;" in fastest
    assert ranking.ranked(d)[1].behind == pytest.approx([0.35, 0.35])
    table = next(b for b in differences.section(d).blocks if isinstance(b, Table))
    assert "throughput, %" in table.headers
    assert {row[-1] for row in table.rows} == {"slower"}
    assert len(table.headers) == len(table.rows[0])


def test_variants_that_accept_alike_are_compared_by_the_cycle_alone() -> None:
    cells = {("a", 1): 100.0, ("a", 8): 100.0, ("b", 1): 90.0, ("b", 8): 90.0}
    d = data([{"name": "a"}, {"name": "b"}], cells, reference="a", sections=["differences", "ranking"])
    assert build(d).verdict[0].startswith("**b**: faster at every concurrency: cycle −10.0 % (")
    assert "throughput" not in " ".join(build(d).verdict)
