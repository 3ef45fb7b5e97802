"""Loading: names and paths, overrides, listed values, and whatever else a file may hold."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.config import paths
from sim.config.checked import Attempts
from sim.config.declarations import parse_toml
from sim.config.loader import load_profile, load_program, load_resolved, load_scenario
from sim.config.scenario import ListedLengths, LogNormal, PerPosition, Recorded, Scenario, Workload
from sim.errors import InputError


def test_only_the_device_has_no_default():
    scenario = Scenario(device="small")
    assert scenario.algorithm == "dflash"
    assert scenario.acceptance.model == "truncated_geometric"
    assert scenario.acceptance.mean_accepted_drafts == 5.4
    assert (scenario.workload.concurrency, scenario.workload.requests) == (32, 128)
    assert (scenario.serving.max_running_requests, scenario.serving.min_free_slots) == (64, "auto")
    assert (scenario.run.seed, scenario.run.replications) == (1, 5)


def test_an_arrival_rate_leaves_the_closed_loop():
    assert Workload(arrival_rate_per_s=2.0).concurrency is None


def test_a_bare_name_and_a_path_mean_the_same_file(small_configs):
    assert load_scenario("good") == load_scenario(str(small_configs / "scenarios" / "good.toml"))
    assert load_profile("small") == load_profile(str(small_configs / "devices" / "small.toml"))
    path = str(small_configs / "algorithms" / "block@e-1.toml")
    assert load_program("block", "e-1") == load_program(path, "any") == load_program("block@e-1", "any")


def test_a_complete_program_is_named_without_its_engine(small_configs):
    text = (small_configs / "algorithms" / "block@e-1.toml").read_text()
    (small_configs / "algorithms" / "mine.toml").write_text(
        text.replace('algorithm = "block"', 'algorithm = "mine"')
    )
    resolved = load_resolved("good", {"algorithm": "mine"})
    assert resolved.program.algorithm == "mine"
    assert resolved.scenario.engine == "e-1"


def test_paths_in_a_scenario_are_relative_to_its_file(small_configs, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "my.toml").write_bytes((small_configs / "devices" / "small.toml").read_bytes())
    (folder / "lengths.txt").write_text("# tokens\n10, 20\n\n[30]\n")
    (folder / "drafts.jsonl").write_text("[1, 2]\n[3]\n")
    (folder / "s.toml").write_text(
        'device = "./my.toml"\nalgorithm = "block"\n'
        'workload = { output_tokens = { file = "lengths.txt" } }\n'
        'acceptance = { model = "recorded", file = "drafts.jsonl" }\n'
    )
    monkeypatch.chdir(tmp_path)
    resolved = load_resolved("elsewhere/s.toml")
    assert resolved.profile.name == "small"
    assert resolved.scenario.workload.output_tokens == ListedLengths(file="lengths.txt", values=(10, 20, 30))
    assert resolved.scenario.acceptance == Recorded(
        model="recorded", file="drafts.jsonl", values=((1, 2), (3,))
    )


def test_a_resolved_scenario_needs_no_second_file(small_configs, tmp_path):
    (tmp_path / "lengths.txt").write_text("10 20")
    path = tmp_path / "s.toml"
    path.write_text(
        'device = "small"\nalgorithm = "block"\nworkload = { prompt_tokens = { file = "lengths.txt" } }\n'
    )
    scenario = load_resolved(str(path)).scenario
    assert Scenario.model_validate(scenario.model_dump(mode="json")) == scenario


def test_overrides_are_toml_values_or_else_text(small_configs):
    scenario = load_scenario(
        "good",
        {
            "workload.concurrency": "8",
            "relay": "direct_carry",
            "barrier": '"coarse"',
            "overlap": "true",
            "host_scale": "2",
            "serving.graph_batches": "[1, 2]",
            "workload.output_tokens": "{ distribution = 'lognormal', mean = 100, cv = 0.5 }",
            "acceptance": '{ model = "per_position", probabilities = [0.5] }',
            "run.seed": 7,
        },
    )
    assert scenario.workload.concurrency == 8
    assert (scenario.relay, scenario.barrier, scenario.host_scale) == ("direct_carry", "coarse", 2.0)
    assert scenario.serving.graph_batches == (1, 2)
    assert scenario.workload.output_tokens == LogNormal(distribution="lognormal", mean=100, cv=0.5)
    assert scenario.acceptance == PerPosition(model="per_position", probabilities=(0.5,))
    assert scenario.run.seed == 7


def test_overriding_the_loop_leaves_the_one_in_the_file(small_configs, write_scenario):
    path = write_scenario("workload = { concurrency = 4 }")
    scenario = load_scenario(path, {"workload.arrival_rate_per_s": "2.5"})
    assert (scenario.workload.concurrency, scenario.workload.arrival_rate_per_s) == (None, 2.5)


def test_an_override_cannot_smuggle_in_a_second_key(small_configs):
    with pytest.raises(InputError, match=r"--set workload\.concurrency"):
        load_scenario("good", {"workload.concurrency": "8\nseed = 3"})


@pytest.mark.parametrize(
    "content",
    [
        b"a = \xff",
        b"a = " + b"[" * 100_000,
        b"a = " + b"9" * 5000,
        b"a = 0x" + b"f" * 5000,
        b"\0",
        b"a.a = 1\na = 2",
    ],
)
def test_text_that_is_no_toml_is_an_input_error(content, tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_scenario(str(path))


@pytest.mark.parametrize("name", ["", ".", "/", "\0", "a\0.toml", "x" * 5000, "../scenarios", "\udcff"])
def test_names_of_nothing_are_input_errors(name, small_configs):
    for call in (load_scenario, load_profile, lambda name: load_program(name, "e-1")):
        with pytest.raises(InputError):
            call(name)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError):
        load_scenario(f"{tmp_path}/")


NAMES = (
    "concurrency arrival_rate_per_s requests prompt_tokens output_tokens client_delay_us model file values "
    "distribution mean cv probabilities mean_accepted_drafts seed replications graph_batches page_size "
    "min_free_slots a.b"
)
KEYS = st.sampled_from([*Scenario.model_fields, *NAMES.split()]) | st.text(max_size=3)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(
        ["small", "block", "plain", "chain", "e-1", "auto", "lognormal", "recorded", "per_position"]
    )
    | st.sampled_from(["unified", "exact", "hip", "coarse", "plan", "private"])
    | st.dates()
    | st.datetimes()
    | st.times()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=6)


@given(base=TABLES, overrides=st.dictionaries(KEYS, VALUES, max_size=3), device=st.booleans())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_table_holds_only_input_errors_come_out(
    base, overrides, device, small_configs, monkeypatch
):
    data = {**base, "device": "small"} if device else base
    monkeypatch.setattr("sim.config.loader.parse_toml", lambda content, name: data)
    attempts = Attempts()
    resolved = attempts.call(load_resolved, "good", overrides)
    assert all(problem.where and problem.found and problem.expected for problem in attempts.problems)
    assert bool(attempts.problems) == (resolved is None)
    if resolved is not None:
        assert Scenario.model_validate(resolved.scenario.model_dump(mode="json")) == resolved.scenario


@given(text=st.text(max_size=40) | st.binary(max_size=40))
def test_any_text_is_a_table_or_an_input_error(text):
    content = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    attempts = Attempts()
    parsed = attempts.call(parse_toml, content, "x.toml")
    assert isinstance(parsed, dict) or all("x.toml" in problem.where for problem in attempts.problems)


def test_every_shipped_name_is_listed_sorted():
    assert paths.names("scenarios") == sorted(paths.names("scenarios"))
    assert "h200_dflash" in paths.names("scenarios")


def test_strange_but_valid_toml_types_are_named(write_scenario):
    with pytest.raises(InputError) as caught:
        load_scenario(write_scenario("[run]\nseed = 2024-01-01\n[workload]\nclient_delay_us = inf\n"))
    assert str(caught.value) == (
        "scenario.toml: workload.client_delay_us: found inf; expected a finite number\n"
        "scenario.toml: run.seed: found 2024-01-01; expected a whole number"
    )


@pytest.mark.parametrize(
    ("quantiles", "found"),
    [
        ("{}", "no factor for 0.025 and 0.975"),
        ('{ "0.5" = 1.0 }', "no factor for 0.025 and 0.975"),
        ('{ "0.025" = 0.9, "0.9" = 1.2 }', "no factor for 0.975"),
        ('{ "0.025" = 0.9, ".025" = 0.9, "0.975" = 1.2 }', "a probability twice"),
        ('{ "0.025" = 1.2, "0.975" = 0.9 }', "1.2 at 0.025 and 0.9 at 0.975"),
    ],
)
def test_host_states_that_bound_no_new_boot_are_refused(small_configs, quantiles, found):
    profile = small_configs / "devices" / "small.toml"
    profile.write_text(profile.read_text() + f"[host_state]\nquantiles = {quantiles}\n")
    with pytest.raises(InputError) as refused:
        load_profile("small")
    (problem,) = refused.value.problems
    assert problem.where == "small.toml: host_state.quantiles"
    assert problem.found == found
    assert "Leave quantiles out" in problem.remedy


def test_a_host_state_s_key_that_is_no_probability_is_refused_in_plain_words(small_configs):
    profile = small_configs / "devices" / "small.toml"
    profile.write_text(profile.read_text() + '[host_state]\nquantiles = { "" = 1.0, x = 1.0, "1.5" = 1.0 }\n')
    with pytest.raises(InputError) as refused:
        load_profile("small")
    assert [str(problem) for problem in refused.value.problems] == [
        f'small.toml: host_state.quantiles.{key}: found 1.0; expected a probability as a key, as "0.975"'
        for key in ('""', "x", '"1.5"')
    ]


@pytest.mark.parametrize("batch", ["0", "-1", str(2**31), "9" * 300])
def test_a_table_over_no_batch_is_refused(small_configs, batch):
    profile = small_configs / "devices" / "small.toml"
    profile.write_text(profile.read_text() + f'"x" = {{ value = [1.0], batch = [{batch}] }}\n')
    with pytest.raises(InputError, match=r"costs.x.batch\[0\]: found"):
        load_profile("small")
