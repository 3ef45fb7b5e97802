"""From a study file to cells: designs, keys, and every problem at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.config import paths
from sim.errors import InputError
from sim.study.plan import load_plan, values_of
from sim.study.spec import Factor, Span, load_study

Write = Callable[..., str]


@pytest.mark.parametrize(
    ("replacement", "found"),
    [
        (
            ("values = [1, 2]", "values = [2, 1, 2]"),
            "factors[0].values: found 2 twice; expected every value once",
        ),
        (
            ("values = [1, 2]", 'values = [1, 2]\nlabels = ["a", "a"]'),
            'factors[0].labels: found "a" twice; expected every value once',
        ),
        (
            ('reference = "as declared"', 'reference = "as declared"\ndesign = "random"\nsamples = 1000000'),
            "factors: found 3,000,000 cells; expected at most 1,000,000",
        ),
    ],
)
def test_values_given_twice_and_grids_without_end_are_refused(write_study, replacement, found):
    with pytest.raises(InputError) as refused:
        load_plan(write_study(replacement))
    assert found in str(refused.value)


def problems(name: str) -> list[str]:
    with pytest.raises(InputError) as error:
        load_plan(name)
    return [str(problem) for problem in error.value.problems]


def test_full_factorial_has_every_variant_at_every_combination(write_study: Write) -> None:
    plan = load_plan(write_study())
    assert [(c.variant, c.at["concurrency"]) for c in plan.cells] == [
        (variant, concurrency) for variant in ("as declared", "coarse", "exact") for concurrency in (1, 2)
    ]


def test_every_key_of_a_factor_takes_its_value(write_study: Write) -> None:
    plan = load_plan(write_study())
    workloads = [cell.resolved.scenario.workload for cell in plan.cells]
    assert all(w.concurrency == w.requests for w in workloads)


def test_variants_that_resolve_to_one_scenario_share_a_key(write_study: Write) -> None:
    plan = load_plan(write_study(('barrier = "coarse"', 'barrier = "read_done"')))
    keys = {(c.variant, c.at["concurrency"]): c.key for c in plan.cells}
    assert keys["as declared", 1] == keys["coarse", 1]
    assert keys["as declared", 1] != keys["exact", 1]


def test_the_seed_and_the_way_of_running_are_part_of_the_key(write_study: Write) -> None:
    plain = load_plan(write_study()).cells[0].key
    assert load_plan(write_study(('"run.replications" = 2', '"run.seed" = 7'))).cells[0].key != plain
    assert load_plan(write_study(("sections =", "new_boots = false\nsections ="))).cells[0].key != plain


def test_a_logarithmic_span_holds_its_ends_and_its_middle() -> None:
    factor = Factor(name="f", keys=("host_scale",), span=Span(low=0.25, high=4, points=9, spacing="log"))
    values = values_of(factor)
    assert (values[0], values[4], values[8], len(values)) == (0.25, 1.0, 4.0, 9)


def test_a_list_design_runs_its_points_alone(write_study: Write) -> None:
    more = "\n[[points]]\nconcurrency = 2\n"
    plan = load_plan(write_study(("sections =", 'design = "list"\nsections ='), more=more))
    assert {cell.at["concurrency"] for cell in plan.cells} == {2}


def test_a_random_design_draws_the_same_points_for_every_variant_and_again(write_study: Write) -> None:
    more = '\n[[factors]]\nname = "host"\nkeys = ["host_scale"]\nspan = { low = 0.5, high = 2, spacing = "log" }\n'
    name = write_study(("sections =", 'design = "random"\nsamples = 5\nsections ='), more=more)
    first, second = load_plan(name), load_plan(name)
    assert [c.at for c in first.cells] == [c.at for c in second.cells]
    assert [c.at for c in first.cells[:5]] == [c.at for c in first.cells[5:10]]
    hosts = {c.at["host"] for c in first.cells}
    assert len(hosts) == 5
    assert all(0.5 <= host <= 2 for host in hosts)


def test_a_further_factor_leaves_the_draws_of_the_others(write_study: Write) -> None:
    head = ("sections =", 'design = "random"\nsamples = 5\nsections =')
    more = '\n[[factors]]\nname = "host"\nkeys = ["host_scale"]\nspan = { low = 0.5, high = 2 }\n'
    alone = [c.at["concurrency"] for c in load_plan(write_study(head)).cells]
    assert [c.at["concurrency"] for c in load_plan(write_study(head, more=more)).cells] == alone


def test_a_variant_that_is_refused_is_named_once_with_the_reason(write_study: Write) -> None:
    (problem,) = problems(write_study(('barrier = "coarse"', 'barrier = "corse"')))
    assert problem.startswith("small.toml: variant 'coarse': barrier: found \"corse\"")
    assert 'Did you mean "coarse"' in problem or "Did you mean coarse" in problem


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('reference = "as declared"', 'reference = "as decared"', 'reference: found "as decared"'),
        ('name = "coarse"', 'name = "exact"', 'variants: found "exact" twice'),
        ("at = { concurrency = 2 }", "at = { batch = 2 }", 'timeline.at: found "batch"'),
        ('["cells"]', '["cells", "map"]', "[published]"),
        ('["cells"]', '["cells", "timeline"]', "sections[1]"),
        (
            "sections =",
            "where = [{ at = { batch = 1 }, set = {} }]\nsections =",
            'where[0].at: found "batch"',
        ),
        ("values = [1, 2]", "", "neither values nor span"),
        ("values = [1, 2]", "span = { low = 2, high = 1 }", "low below high"),
        ("sections =", "samples = 3\nsections =", "samples"),
        ("sections =", 'design = "list"\nsections =', "points"),
        ('title = "Small"', 'titel = "Small"', "Did you mean title?"),
    ],
)
def test_an_inconsistent_study_says_what_is_wrong_where(
    write_study: Write, old: str, new: str, said: str
) -> None:
    assert any(said in problem for problem in problems(write_study((old, new))))


def test_a_scenario_beside_the_study_is_found(write_study: Write, tmp_path: object) -> None:
    name = write_study(('scenario = "toy_dF"', 'scenario = "base.toml"'))
    base = Path(name).parent / "base.toml"
    base.write_text('device = "toy"\nengine = "toy-0.5.15"\n[workload]\noutput_tokens = 30\n')
    assert load_plan(name).cells[0].resolved.scenario.workload.output_tokens == 30


def test_every_shipped_study_resolves() -> None:
    for name in paths.names("studies"):
        assert load_plan(name).cells
        assert load_study(name)[0].question


def test_labels_stand_for_values_that_do_not_speak_for_themselves(write_study: Write) -> None:
    more = (
        '\n[[factors]]\nname = "drafter"\nkeys = ["acceptance"]\nlabels = ["weak", "strong"]\n'
        'values = [{ model = "match_expected", mean_accepted_drafts = 1.0 }, '
        '{ model = "match_expected", mean_accepted_drafts = 3.0 }]\n'
    )
    plan = load_plan(write_study(more=more))
    means = {c.at["drafter"]: c.resolved.scenario.acceptance.mean_accepted_drafts for c in plan.cells}
    assert means == {"weak": 1.0, "strong": 3.0}


def test_keys_may_hold_at_some_points_alone(write_study: Write) -> None:
    more = '\n[[where]]\nat = { concurrency = 2 }\nset = { "workload.requests" = 8 }\n'
    plan = load_plan(write_study(more=more))
    assert {(c.at["concurrency"], c.resolved.scenario.workload.requests) for c in plan.cells} == {
        (1, 1),
        (2, 8),
    }


def test_a_label_too_few_is_refused(write_study: Write) -> None:
    assert any(
        "1 labels for 2 values" in p
        for p in problems(write_study(("values = [1, 2]", 'values = [1, 2]\nlabels = ["one"]')))
    )


def test_refused_combinations_may_be_left_out_and_are_listed(write_study: Write) -> None:
    more = '\n[[factors]]\nname = "overlap"\nkeys = ["overlap"]\nvalues = [true, false]\n'
    changes = (
        ("sections =", "skip_refused = true\nsections ="),
        ('"run.replications" = 2', 'relay = "unified"'),
    )
    plan = load_plan(write_study(*changes, more=more))
    assert all(cell.at["overlap"] for cell in plan.cells)
    assert len(plan.refused) == len(plan.cells) == 6
    assert all("relay" in reason for _, _, reason in plan.refused)


def test_a_label_that_a_factor_lacks_is_refused(write_study: Write) -> None:
    changed = ("values = [1, 2]", 'values = [1, 2]\nlabels = ["one", "two"]')
    found = problems(write_study(changed))
    assert any("concurrency: found 2; expected a label of this factor: one or two" in p for p in found)


def test_a_variant_refused_everywhere_has_no_timeline(write_study: Write) -> None:
    changes = (
        ("sections =", "skip_refused = true\nsections ="),
        ('barrier = "coarse"', 'barrier = "coarse", overlap = false'),
    )
    plan = load_plan(write_study(*changes))
    assert [cell.variant for cell in plan.traced] == ["as declared", "exact"]


def test_a_reference_refused_everywhere_is_refused_before_anything_runs(write_study: Write) -> None:
    changes = (
        ("sections =", "skip_refused = true\nsections ="),
        ('name = "as declared"\n', 'name = "as declared"\nset = { relay = "unified", overlap = false }\n'),
    )
    (found,) = problems(write_study(*changes))
    assert found.startswith('small.toml: reference: found "as declared", which is refused everywhere (relay')


def test_sections_over_an_axis_need_every_variant_at_every_value(write_study: Write) -> None:
    changes = (
        ('sections = ["cells"]', 'sections = ["differences"]\ndesign = "list"'),
        ("[timeline]", "[[points]]\nconcurrency = 2\n\n[timeline]"),
    )
    found = problems(write_study(*changes))
    assert "small.toml: sections: found differences, but no run of 'as declared' at concurrency 1" in found[0]


def test_a_map_without_its_factors_is_refused(write_study: Write) -> None:
    more = """
[[pairs]]
name = "A"
before = "as declared"
after = "coarse"

[published]
source = "made up"
points = [{ factor = "concurrency", value = 1, change_percent = -1, tolerance_points = 1 }]
"""
    (found,) = problems(write_study(('["cells"]', '["map"]'), more=more))
    assert found.startswith("small.toml: factors: found concurrency; expected exactly these")
    assert "concurrency and device_scale and host_scale" in found


def test_factor_values_may_be_tables_without_labels(write_study: Write) -> None:
    more = """
[[factors]]
name = "output"
keys = ["workload.output_tokens"]
values = [20, { distribution = "lognormal", mean = 20, cv = 0.5 }]
"""
    plan = load_plan(write_study(('["cells"]', '["differences"]'), more=more))
    assert len(plan.cells) == 12
