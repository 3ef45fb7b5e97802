"""What is wrong with case files is said, all of it, before anything is predicted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cases import ledger
from sim.cases.check import problems
from sim.cases.edit import resolved_side
from sim.cases.schema import Case, load_case, load_cases
from sim.cli import main
from sim.config import paths
from sim.config.checked import Origin, validated
from sim.errors import InputError

GOOD = """
title = "lengths no longer waited for"
decidable = true
because = "everything is known"
source = { name = "made up", url = "https://example.org", date = "2026-01-01" }
setup = { hardware = "toy", model = "toy", load = "two requests" }
published = { what = "cycle", unit = "us", before = 700.0, after = 676.0 }
fit = { parameter = "model_scale", quantity = "cycle_us", target = 700.0 }
before = { scenario = { host_lengths = "exact" } }
after = { scenario = { host_lengths = "none" } }
both = {}
[scenario]
device = "toy"
algorithm = "dflash"
workload = { concurrency = 2, requests = 2, prompt_tokens = 16, output_tokens = 200 }
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a case file with some text replaced; the folder becomes that of the shipped cases."""
    folder = paths.folder("cases")
    ours = tmp_path / "cases"
    (ours / "discussion").mkdir(parents=True)
    monkeypatch.setattr(paths, "folder", lambda kind, of=paths.folder: ours if kind == "cases" else of(kind))
    for file in (folder / "discussion").iterdir():
        shutil.copy(file, ours / "discussion")

    def written(*changes: tuple[str, str], name: str = "bad") -> Path:
        text = GOOD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = ours / f"{name}.toml"
        path.write_text(text)
        return path

    return written


def refused(path: Path) -> list[str]:
    """Every problem of a file, of its keys or of the whole."""
    try:
        return [str(p) for p in problems(load_case(str(path)), path.name)]
    except InputError as error:
        return [str(p) for p in error.problems]


def test_the_good_case_is_good(write: Callable[..., Path]) -> None:
    assert refused(write()) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("before = 700.0", "before = 0", "published.before: found 0; expected a number above 1e-09"),
        ("before = 700.0", "before = -1.0", "published.before: found -1.0; expected a number above"),
        ("before = 700.0", "before = nan", "published.before: found nan; expected a finite number"),
        ("before = 700.0", "before = inf", "published.before: found inf; expected a finite number"),
        ("after = 676.0", "after = -1.0", "published.after: found -1.0; expected at least 0"),
        ("after = 676.0", "after = inf", "published.after: found inf; expected a finite number"),
        ("after = 676.0", "change_percent = nan", "published.change_percent: found nan; expected a finite"),
        (
            "after = 676.0",
            "change_percent = -101.0",
            "published.change_percent: found -101.0; expected at least",
        ),
        ("after = 676.0", "after = 676.0, low_percent = -inf, high_percent = 1.0", "low_percent: found -inf"),
        (
            "after = 676.0",
            "after = 676.0, low_percent = 2.0, high_percent = 1.0",
            "published: found low_percent 2 above high_percent 1; expected low comes first",
        ),
        ("after = 676.0", "after = 676.0, low_percent = 2.0", "published: found low_percent alone"),
        ("target = 700.0", "target = inf", "fit.target: found inf; expected a finite number"),
        ("target = 700.0", "target = nan", "fit.target: found nan; expected a finite number"),
        ("target = 700.0", "target = 0.0", "fit.target: found 0.0; expected a number above"),
        ("both = {}", 'both.drop = ["verifi"]', 'before and after: found no operation "verifi"'),
        (
            "both = {}",
            'both.costs."graph.target" = { value = -1.0 }',
            'both.costs."graph.target": found -1 us at batch 1',
        ),
        (
            "both = {}",
            'both.costs."call.wake" = { value = 1.0, within_sd = 0.1 }',
            'both.costs."call.wake": found within_sd = 0.1, which nothing reads',
        ),
        (
            "both = {}",
            'both.costs."graph.targett" = { value = 1.0 }',
            'both.costs."graph.targett": found a cost that nothing before or after the change uses; expected the '
            "name of one that an operation or a policy has. Did you mean graph.target",
        ),
        (
            'after = { scenario = { host_lengths = "none" } }',
            'after = { scenario = { host_lengths = "none" }, costs = { "lengths.copy" = { value = 9.0 } } }',
            'after.costs."lengths.copy": found a cost that nothing after the change uses',
        ),
        (
            "both = {}",
            'both.insert = [{ before = "verify", operations = [{ phase = "forward", name = "x", kind = "host", '
            'cost = "host.quue" }] }]',
            'before and after: insert "x": cost: found no cost "host.quue"; expected a cost of profile toy or of '
            "the case. Did you mean host.queue",
        ),
        (
            "both = {}",
            'both.insert = [{ before = "verify", operations = [{ phase = "forward", name = "x", kind = "host", '
            'cost = "2 * host.quue" }] }]',
            'before and after: operations "x": cost: found an unknown name "host.quue"',
        ),
        (
            "both = {}",
            'both.insert = [{ before = "verify", operations = [{ phase = "forward", name = "x", '
            'kind = "synchronize", event = "nothing" }] }]',
            'before and after: operations "x": found a wait for event "nothing", which nothing records',
        ),
        (
            'device = "toy"',
            'device = "toy"\nrun = { replications = 9 }',
            "scenario.run.replications: found 9",
        ),
        (
            'parameter = "model_scale"',
            'parameter = "host_scale"',
            "after.scenario.host_scale: found 2.0; expected no host_scale: it is the one fitted",
        ),
        ('device = "toy"', 'device = "toyy"', 'before and after: device: found "toyy"'),
        (
            'before = { scenario = { host_lengths = "exact" } }',
            'before = { scenario = { host_lengths = "exactt" } }',
            'before: host_lengths: found "exactt"',
        ),
    ],
)
def test_one_problem_is_one_message(write: Callable[..., Path], old: str, new: str, message: str) -> None:
    changes = [(old, new)]
    if "host_scale" in new:
        changes.append(('host_lengths = "none"', 'host_lengths = "none", host_scale = 2.0'))
    (problem,) = refused(write(*changes))
    assert problem.startswith("bad.toml: ")
    assert message in problem


def test_a_cost_that_only_one_side_uses_may_be_stated_for_both(write: Callable[..., Path]) -> None:
    assert refused(write(("both = {}", 'both.costs."lengths.copy" = { value = 9.0 }'))) == []


def test_sides_of_a_case_without_a_scenario_are_refused(write: Callable[..., Path]) -> None:
    table = GOOD[GOOD.index("[scenario]") :]
    found = refused(write((table, ""), ("decidable = true", "decidable = false")))
    assert [p.partition(" found")[0] for p in found] == ["bad.toml: before:", "bad.toml: after:"]


def test_the_command_names_the_problems_of_every_file_and_predicts_nothing(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ledger, "predict", lambda *_: pytest.fail("a prediction nobody can use"))
    write(("before = 700.0", "before = 0"), ("target = 700.0", "target = inf"), name="first")
    write(name="good")
    write(("published", "publisht"), name="second")
    assert status("cases") == 2
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert "first.toml: published.before" in shown
    assert "first.toml: fit.target" in shown
    assert "second.toml: publisht" in shown
    write(("both = {}", 'both.drop = ["verifi"]'), name="first")
    write(("both = {}", 'both.costs."graph.targett" = { value = 1.0 }'), name="second")
    assert status("cases") == 2
    shown = capsys.readouterr().err
    assert 'first.toml: before and after: found no operation "verifi"' in shown
    assert 'second.toml: both.costs."graph.targett"' in shown


def status(*words: str) -> object:
    with pytest.raises(SystemExit) as exit_:
        main([*words])
    return exit_.value.code


def test_every_shipped_case_is_sound() -> None:
    assert [p for name, case in load_cases().items() for p in problems(case, name)] == []


def test_expressions_are_of_the_costs_a_case_states() -> None:
    """The program's expressions price what the case says, scaled by its fit, not what the profile said."""
    data: dict[str, Any] = {
        "title": "t",
        "source": {"name": "n", "url": "https://example.org", "date": "2026"},
        "setup": {"hardware": "h", "model": "m", "load": "l"},
        "published": {"what": "w"},
        "decidable": False,
        "because": "b",
        "scenario": {"device": "toy", "algorithm": "dflash"},
        "both": {
            "costs": {"graph.target": {"value": 100.0}},
            "insert": [
                {
                    "before": "verify",
                    "operations": [
                        {
                            "phase": "forward",
                            "name": "again",
                            "kind": "graph",
                            "stream": "forward",
                            "cost": "3 + graph.target",
                        }
                    ],
                }
            ],
        },
    }
    case = validated(Case, data, Origin("made_up.toml"))
    assert problems(case, "made_up") == []
    costs = resolved_side(case, case.before, "made_up", {"model_scale": 2.0}).profile.costs
    value = costs["3 + graph.target"].value
    assert isinstance(value, tuple)
    assert set(value) == {203.0}
