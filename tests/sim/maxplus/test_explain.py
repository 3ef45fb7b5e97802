"""What `overlapsim explain` says: the figures against the model, the words against the figures."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from variants import drawn, legal, variant, with_costs

from sim.cli import main
from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.maxplus import words
from sim.maxplus.explanation import explain
from sim.maxplus.steady import SteadyGraph
from sim.maxplus.turn import FixedBatch
from sim.run import simulate
from sim.units import NS_PER_US


def toy(name: str) -> Resolved:
    """A toy scenario long enough for a steady cycle."""
    overrides = {"workload.requests": 2, "workload.output_tokens": 4000, "run.replications": 1}
    return load_resolved(name, overrides)


@pytest.mark.parametrize(
    "name", ["toy_cP", "toy_cN", "toy_dT", "toy_dF", "toy_none", "toy_eagle", "toy_ngram"]
)
def test_the_figures_are_those_of_a_long_run_of_the_model(name: str) -> None:
    explained, simulated = explain(toy(name)), simulate(toy(name)).to_json()
    assert explained["cycle_us"] == pytest.approx(simulated["cycle_us"]["mean"], abs=1e-6)
    for key in ("gpu_busy_fraction", "exposed_host_us_per_step"):
        assert explained[key] == pytest.approx(simulated[key], abs=1e-3), key
    for cause, us in explained["idle_us_per_step"].items():
        assert us == pytest.approx(simulated["idle_us_per_step"][cause], abs=1e-3), cause
    assert explained["launch_lead_us"] == pytest.approx(simulated["launch_lead_us"]["p50"], abs=1e-3)
    assert explained["run_ahead_fraction"] == pytest.approx(simulated["run_ahead_fraction"], abs=0.02)
    if name != "toy_cP":  # its gap between streams, 1 % of a step, is no cycle through the host
        assert explained["critical_side"] == simulated["critical_side"]


def test_idle_and_busy_time_make_up_the_cycle() -> None:
    for k, keys in list(enumerate(legal()))[::41]:
        e = explain(drawn(variant(keys), seed=k))
        if e["settled"]:
            busy = e["gpu_busy_fraction"] * e["cycle_us"]
            assert busy + sum(e["idle_us_per_step"].values()) == pytest.approx(e["cycle_us"], abs=1e-6), keys


def test_the_stretches_of_a_cycle_add_up_to_it() -> None:
    for k, keys in list(enumerate(legal()))[::41]:
        e = explain(drawn(variant(keys), seed=k))
        for cycle in (e["critical_cycle"], *e["other_cycles"]):
            total = sum(s["us"] for s in cycle["stretches"])
            assert total == pytest.approx(cycle["mean_us"] * cycle["turns"], abs=1e-6), keys
            assert total == pytest.approx(cycle["host_us"] + cycle["device_us"], abs=1e-6)


def test_the_loop_of_the_figure_closes_one_period_later() -> None:
    for k, keys in list(enumerate(legal()))[::41]:
        e = explain(drawn(variant(keys), seed=k))
        if not e["settled"]:
            continue
        loop = e["timeline"]["loop"]
        for (_, _, _, lane, _, end), (_, origin, left, *_) in pairwise(loop):
            assert (lane, end) == (origin, left), keys
        span = (loop[-1][5] - loop[0][2]) / NS_PER_US
        assert span == pytest.approx(e["cycle_us"] * e["critical_cycle"]["turns"], abs=1e-6)
        assert loop[-1][3] == loop[0][1], keys


def cut(resolved: Resolved, name: str, change: Any) -> float:
    """The cycle with one cost changed, µs."""
    cost = resolved.profile.costs[name]
    assert cost.unit == "us"
    update = {"value": change(cost.value), "per_batch": cost.per_batch}
    costs = {**resolved.profile.costs, name: cost.model_copy(update=update)}
    context = explain(resolved)["mean_context"]
    return float(SteadyGraph(FixedBatch(with_costs(resolved, costs))).at(context).cycle_ns) / NS_PER_US


def test_the_gain_of_a_cut_is_what_a_scenario_with_that_cost_gains() -> None:
    resolved = toy("toy_dT")
    e = explain(resolved)
    by_name = {c["name"]: c for c in e["costs"]}
    for name in ("graph.target", "host.enter", "host.lengths.mirror", "host.queue", "kernel.small"):
        gained = e["cycle_us"] - cut(resolved, name, lambda v: max(v - 10, 0))
        assert by_name[name]["gain_10us"] == pytest.approx(gained), name
        assert by_name[name]["gain_10pct"] == pytest.approx(
            e["cycle_us"] - cut(resolved, name, lambda v: v * 0.9)
        )
    assert by_name["graph.target"]["derivative"] == 1
    assert by_name["host.queue"]["gain_10us"] == 0


def test_costs_are_listed_once_and_the_most_worthwhile_first() -> None:
    costs = [c for c in explain(toy("toy_cN"))["costs"] if c["derivative"] is not None]
    gains = [max(c["gain_10us"], c["gain_10pct"]) for c in costs]
    assert gains == sorted(gains, reverse=True)
    assert len({c["name"] for c in costs}) == len(costs)


def test_the_exposed_path_is_told_with_its_wait_and_both_numbers_of_the_rule() -> None:
    e = explain(toy("toy_dT"))
    text = "\n".join(words.lines(e))
    assert "exposed host path: the host waits for lengths_on_host" in text
    assert f"{e['host_loop_us']:.1f} µs < {e['gpu_step_us']:.1f} µs" in text
    assert "That is not enough here" in text
    assert "and back to 1: 577.0 µs in one turn of the loop" in text


def test_a_slower_host_breaks_the_rule_and_is_critical() -> None:
    e = explain(load_resolved("toy_dF", {"host_scale": 20.0}))
    assert e["critical_side"] == "host"
    assert e["host_loop_us"] > e["gpu_step_us"]
    assert "so it does not" in words.rule(e)
    assert "Critical is the host" in words.verdict(e)


def test_the_next_bottleneck_takes_over_where_it_is_said_to_lie() -> None:
    """Cutting the exposed path by more than the gap leaves the cycle of the next bottleneck."""
    resolved = toy("toy_dT")
    e = explain(resolved)
    following = e["other_cycles"][0]
    assert cut(resolved, "host.enter", lambda v: 0) == pytest.approx(following["mean_us"])


def test_nearly_critical_cycles_are_all_listed_before_the_next_bottleneck() -> None:
    lines = words.others(explain(toy("toy_dT")))
    assert "553.0 µs, 24.0 shorter, the GPU" in lines[1]
    assert lines[-1].startswith("Next bottleneck after those")


def test_a_context_is_stated_whether_given_or_not() -> None:
    assert "100 tokens a request (given)" in words.heading(explain(toy("toy_dF"), 100.0))
    assert "2016 tokens a request (middle of an output)" in words.heading(explain(toy("toy_dF")))


def test_costs_outside_their_range_are_named() -> None:
    resolved = toy("toy_dF")
    cost = Cost(value=400, status="exact", valid_range={"context": (0, 500)})
    resolved = with_costs(resolved, {**resolved.profile.costs, "graph.target": cost})
    assert explain(resolved, 501.0)["extrapolated"] == ["graph.target"]
    assert explain(resolved, 500.0)["extrapolated"] == []
    assert any("graph.target" in line for line in words.caveats(explain(resolved, 501.0)))


def test_equal_input_gives_equal_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for name in ("a", "b"):
        files = ["--json", str(tmp_path / f"{name}.json"), "--figure", str(tmp_path / f"{name}.svg")]
        with pytest.raises(SystemExit) as ended:
            main(["explain", "toy_cP", *files])
        assert ended.value.code == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    for suffix in ("json", "svg"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text())["solver"] == "maxplus"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.svg", "b.json", "b.svg"]


def test_every_wrong_input_is_answered_in_one_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "toy_cX", "--context", "0", "--figure", str(tmp_path / "a.pdf")])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    for part in ("toy_cX", "--context", "--figure", ".svg or .png"):
        assert part in said
    assert not list(tmp_path.iterdir())


def test_an_open_loop_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    workload = "workload={ arrival_rate_per_s = 10.0, requests = 8, prompt_tokens = 16, output_tokens = 12 }"
    with pytest.raises(SystemExit) as ended:
        main(["explain", "toy_dF", "--set", workload])
    assert ended.value.code == 2
    assert "closed loop" in capsys.readouterr().err


# -- relief -------------------------------------------------------------------------------------------------------


def test_relief_is_said_not_to_be_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`run` shortens graphs by it; here they are as long as without, which the text and the JSON form say."""
    plain = toy("toy_dT")
    shorter = {
        name: cost.model_copy(update={"relief": 0.2, "relief_at": 0.5})
        for name, cost in plain.profile.costs.items()
        if name.startswith("graph")
    }
    relieved = with_costs(plain, {**plain.profile.costs, **shorter})
    e, without = explain(relieved), explain(plain)
    assert e["cycle_us"] == without["cycle_us"]
    assert without["relief_not_counted"] == {}
    assert words.caveats(without) == []
    idle = 1 - e["gpu_busy_fraction"]
    assert e["relief_not_counted"]["graph.target"] == pytest.approx(0.2 * idle / 0.5)
    (line,) = words.caveats(e)
    assert line.startswith("Relief is not counted here, as it is in `run`")
    assert f"graph.target {0.2 * idle / 0.5:.2%}" in line
    assert simulate(relieved).cycle_us.mean < e["cycle_us"]
