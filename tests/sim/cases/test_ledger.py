"""Cases: their files, the rule of agreement, the fit, the prediction, the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.cases import ledger
from sim.cases.edit import resolved_side
from sim.cases.predict import predict
from sim.cases.schema import Case, load_case, load_cases
from sim.cases.verdict import Verdict, magnitude, verdict
from sim.cli import main
from sim.config.checked import Origin, validated
from sim.errors import InputError
from sim.report.document import Table

SHIPPED = load_cases()


def case(**changes: Any) -> Case:
    """A pair on the exact profile: exact host lengths taken away."""
    data: dict[str, Any] = {
        "title": "lengths no longer waited for",
        "source": {"name": "made up", "url": "https://example.org", "date": "2026-01-01"},
        "setup": {"hardware": "toy", "model": "toy", "load": "two requests"},
        "published": {"what": "cycle", "unit": "us", "before": 700.0, "after": 676.0},
        "decidable": True,
        "because": "everything is known",
        "quantity": "cycle_us",
        "fit": {"parameter": "model_scale", "quantity": "cycle_us", "target": 700.0},
        "scenario": {
            "device": "toy",
            "algorithm": "dflash",
            "workload": {
                "concurrency": 2,
                "requests": 2,
                "prompt_tokens": 16,
                "output_tokens": 200,
            },
            "acceptance": {"model": "match_expected", "mean_accepted_drafts": 3.0},
        },
        "before": {"scenario": {"host_lengths": "exact"}},
        "after": {"scenario": {"host_lengths": "none"}},
    }
    return validated(Case, {**data, **changes}, Origin("made_up.toml"))


# -- files --------------------------------------------------------------------------------------------------------


def test_enough_pairs_and_enough_decidable_ones() -> None:
    assert len(SHIPPED) >= 80
    assert sum(c.decidable for c in SHIPPED.values()) >= 30


@pytest.mark.parametrize("name", SHIPPED)
def test_every_case_says_what_decides_it_and_both_its_scenarios_resolve(name: str) -> None:
    c = SHIPPED[name]
    assert c.because
    assert c.source.url.startswith("https://")
    assert c.setup.known
    assert c.setup.unknown
    if not c.scenario:
        return
    for which, side in (("before", c.before), ("after", c.after)):
        resolved = resolved_side(c, side, f"{name}: {which}")
        assert resolved.scenario.run.replications > 1
    if c.fit is not None and c.published.before is not None and c.fit.quantity == c.quantity:
        published = c.published.before * (1000 if (c.quantity, c.published.unit) == ("cycle_us", "ms") else 1)
        assert c.fit.target == pytest.approx(published, rel=1e-3), (
            "fitted to another figure than the published one"
        )


def test_a_decidable_case_without_a_published_change_is_refused() -> None:
    with pytest.raises(InputError, match="needs a scenario and a published change"):
        case(published={"what": "cycle"})


def test_an_insertion_before_an_operation_that_does_not_exist_is_refused() -> None:
    inserted = {
        "before": "nothing",
        "operations": [{"phase": "forward", "name": "x", "kind": "host", "cost": "host.queue"}],
    }
    with pytest.raises(InputError, match='no operation "nothing"'):
        predict(case(after={"insert": [inserted]}), "made_up")


def test_what_both_sides_share_is_stated_once_and_a_side_wins_over_it() -> None:
    rest = {"phase": "forward", "name": "rest", "kind": "host", "cost": "host.queue"}
    both = {
        "scenario": {"host_lengths": "exact"},
        "insert": [{"before": "verify", "operations": [rest]}],
        "costs": {"host.queue": {"value": 7.0}},
    }
    c = case(both=both, before={}, after={"scenario": {"host_lengths": "none"}})
    sides = [resolved_side(c, side, "made_up: a side") for side in (c.before, c.after)]
    assert [r.scenario.host_lengths for r in sides] == ["exact", "none"]
    for r in sides:
        names = [op.name for op in r.program.operations]
        assert names.index("rest") == names.index("verify") - 1
        assert r.profile.costs["host.queue"].value == 7.0


# -- the rule ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.0, "none"), (0.49, "none"), (-0.51, "< 2 %"), (2.0, "2–5 %"), (-14.9, "5–15 %"), (40.0, "> 15 %")],
)
def test_magnitude_classes(change: float, expected: str) -> None:
    assert magnitude(change) == expected


@pytest.mark.parametrize(
    ("predicted", "published", "expected"),
    [
        (3.0, 4.9, Verdict.AGREES),
        (-3.0, 4.9, Verdict.DISAGREES),
        (3.0, 5.1, Verdict.DISAGREES),
        (0.4, -0.4, Verdict.AGREES),
        (0.6, 0.4, Verdict.DISAGREES),
        (None, 3.0, Verdict.DISAGREES),
    ],
)
def test_agreement_is_sign_and_class(predicted: float | None, published: float, expected: Verdict) -> None:
    assert verdict(True, predicted, published) is expected


def test_every_class_a_published_range_touches_agrees() -> None:
    assert verdict(True, 1.2, 1.9, 1.0, 3.1) is Verdict.AGREES
    assert verdict(True, 4.0, 1.9, 1.0, 3.1) is Verdict.AGREES
    assert verdict(True, 5.5, 1.9, 1.0, 3.1) is Verdict.DISAGREES
    assert verdict(True, 0.2, 1.9, 1.0, 3.1) is Verdict.DISAGREES


def test_what_cannot_be_decided_is_undecided_whatever_is_predicted() -> None:
    assert verdict(False, 3.0, 3.0) is Verdict.UNDECIDED
    assert verdict(False, None, None) is Verdict.UNDECIDED


# -- fit and prediction ----------------------------------------------------------------------------------------------


def test_the_fit_reproduces_the_figure_before_and_the_rest_is_predicted() -> None:
    p = predict(case(), "made_up")
    assert p.before is not None
    assert p.before.cycle_us.mean == pytest.approx(700.0, rel=2e-3)
    assert p.fitted is not None
    assert p.change_percent is not None
    assert p.change_percent == pytest.approx(-24 / 7, abs=0.1), (
        "24 µs of exposed path, as on the toy timelines"
    )
    assert p.after is not None
    assert p.after.hazards is not None


def test_the_model_s_scale_leaves_hops_and_small_kernels_alone() -> None:
    doubled = resolved_side(case(), case().before, "made_up", {"model_scale": 2.0}).profile.costs
    assert (doubled["graph.target"].value, doubled["hop.cross_stream"].value) == (800, 2)
    assert doubled["kernel.small"].value == 5


def test_a_figure_before_that_no_scale_reproduces_leaves_no_prediction() -> None:
    """The host alone takes longer than the figure: no device is fast enough."""
    impossible = {"parameter": "model_scale", "quantity": "cycle_us", "target": 20.0}
    p = predict(case(fit=impossible), "made_up")
    assert p.fit_failed
    assert p.change_percent is None
    assert p.verdict is Verdict.DISAGREES


def test_a_case_without_a_scenario_is_listed_without_a_prediction() -> None:
    p = predict(load_case("trtllm_13957_exposed"), "trtllm_13957_exposed")
    assert p.change_percent is None
    assert p.verdict is Verdict.UNDECIDED


# -- ledger and command ------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    chosen = {"made_up": case(), **{n: SHIPPED[n] for n in ("gh200_dflash_reads_b1", "trtllm_13957_exposed")}}
    monkeypatch.setattr(ledger, "load_cases", lambda: chosen)
    return chosen


def test_the_command_prints_the_ledger_and_writes_the_interface_s_shape(
    few: dict[str, Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["cases", "--json", str(tmp_path / "cases.json"), "--report", str(tmp_path / "ledger")])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    assert "of 2 decidable cases agree in sign and magnitude; 3 cases in all" in shown
    written = json.loads((tmp_path / "cases.json").read_text())
    assert [c["id"] for c in written["cases"]] == ["gh200_dflash_reads_b1", "made_up", "trtllm_13957_exposed"]
    wanted = {"id", "source", "fitted", "predicted_change", "published_change", "decidable", "verdict"}
    assert all(wanted <= set(c) for c in written["cases"])
    made_up = written["cases"][1]
    assert made_up["published_change"] == pytest.approx(676 / 700 - 1, abs=1e-6)
    assert list(made_up["fitted"]) == ["model_scale"]
    assert written["cases"][0]["device_status"] == "published"
    assert (tmp_path / "ledger" / "figures" / "changes.png").is_file()
    report = (tmp_path / "ledger" / "report.md").read_text()
    assert "overlapsim cases --report reports/ledger" in report
    assert "## First predictions" in report, "known whatever the folder is called"
    assert "gh200_dflash_reads_b1 | −0.99 % | agrees | −1.10 % | agrees |" in report
    assert "1 of 1 agreed. Earlier" in report


def test_the_report_keeps_what_was_predicted_first_and_earlier(few: dict[str, Case]) -> None:
    was = {"id": "made_up", "predicted_percent": 1.0, "verdict": "disagrees"}
    earlier = {"earlier_percent": -2.0, "earlier_verdict": "agrees"}
    first = {"commit": "abc", "earlier_commit": "def", "cases": [{**was, **earlier}]}
    section = ledger._history(ledger.predictions(), first, ["why"])
    foot, table = section.blocks[-2:]
    assert isinstance(foot, str)
    assert isinstance(table, Table)
    assert table.rows[0][:5] == ["made_up", "+1.00 %", "disagrees", "−2.00 %", "agrees"]
    assert "abc, 0 of 1 agreed. Earlier: at def, 1 did." in foot


def test_the_agreement_is_taken_apart_by_set_by_effect_and_by_source(few: dict[str, Case]) -> None:
    """A pair without effect that agrees must not hide behind one with an effect, nor a later set behind the first."""
    none = {"what": "cycle", "unit": "us", "before": 700.0, "after": 700.0}
    few["no_effect"] = case(published=none, after={"scenario": {"host_lengths": "exact"}})
    entry = {"id": "no_effect", "predicted_percent": 0.0, "verdict": "agrees"}
    was = {
        "predicted_percent": 1.0,
        "verdict": "disagrees",
        "earlier_percent": 1.0,
        "earlier_verdict": "agrees",
    }
    first = {
        "commit": "abc",
        "earlier_commit": "def",
        "cases": [{"id": "made_up", **was}],
        "later_sets": [{"commit": "ghi", "cases": [entry]}],
    }
    predicted = ledger.predictions()
    sets, rest = ledger._parts(predicted, first)
    assert sets.endswith(": 1 of 1; 1 of 1.")
    assert "Without the 1 whose published change" in rest
    assert "of 2. The decidable cases come from 2 sources" in rest
    foot, table = ledger._history(predicted, first, ["why"]).blocks[-2:]
    assert foot == "Set committed at ghi: at its first prediction 1 of 1 agreed."
    assert isinstance(table, Table)
    assert table.rows == [["no_effect", "0.00 %", "agrees", "0.00 %", "agrees"]]


def test_a_file_in_place_of_the_report_s_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ledger").write_text("")
    with pytest.raises(SystemExit) as exit_:
        main(["cases", "--report", str(tmp_path / "ledger")])
    assert exit_.value.code == 2
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.slow
def test_the_committed_ledger_is_what_the_command_computes() -> None:
    committed = json.loads((Path(__file__).parents[3] / "reports" / "ledger" / "cases.json").read_text())
    assert ledger.to_json(ledger.predictions())["cases"] == committed["cases"]
