"""Numbers, names and files at the edge of what can be: a message or an answer, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.config import paths
from sim.config.loader import load_profile, load_program, load_resolved
from sim.errors import InputError
from sim.files import check_writable
from sim.run import simulate

TOY = (paths.folder("devices") / "toy.toml").read_text(encoding="utf-8")


def refused(overrides: dict[str, object]) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_resolved("toy_dF", overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("workload.arrival_rate_per_s", 1e-300),
        ("workload.client_delay_us", 1e300),
        ("workload.output_tokens", {"distribution": "lognormal", "mean": 1, "cv": 1e200}),
        ("workload.prompt_tokens", {"distribution": "lognormal", "mean": 1e300, "cv": 1}),
        ("host_scale", 1e300),
        ("device_scale", 1e300),
    ],
)
def test_numbers_that_no_clock_counts_are_refused(key: str, value: object) -> None:
    (problem,) = refused({key: value})
    assert key in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("serving.max_running_requests", 2**31 - 1),
        ("serving.graph_batches", [1, 2**31 - 1]),
        ("run.replications", 2**31 - 1),
    ],
)
def test_sizes_that_no_memory_holds_are_refused(key: str, value: object) -> None:
    (problem,) = refused({key: value})
    assert key in problem
    assert "expected at most" in problem


def test_words_are_shown_as_they_were_typed_unless_they_cannot_be_seen() -> None:
    assert 'found "höchst"' in refused({"algorithm": "höchst"})[0]
    assert 'found "x\\u202e"' in refused({"algorithm": "x\u202e"})[0]


def test_a_wrong_arrival_rate_is_one_problem() -> None:
    assert refused({"workload.arrival_rate_per_s": float("nan")}) == [
        "--set workload.arrival_rate_per_s: found nan; expected a finite number"
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"graph.target" = { value = 400', '"graph.target" = { value = nan'),
        ('"graph.target" = { value = 400', '"graph.target" = { value = inf'),
        ('"graph.target" = { value = 400', '"graph.target" = { value = 1e300'),
        ('"graph.target" = { value = 400', '"graph.target" = { value = [], batch = []'),
        ('"graph.target" = { value = 400', '"graph.target" = { value = 400, per_token = nan'),
        ('"graph.target" = { value = 400', '"graph.target" = { value = 400, context_floor = -5'),
        ('"graph.target" = { value = 400', '"graph.target" = { value = 400, within_sd = inf'),
        ('"graph.target" = { value = 400', '"graph.target" = { value = 400, boot_sd = 1e300'),
        ("[costs]", "[host_state]\nwithin_sd = inf\n[costs]"),
        ("[costs]", "[host_state]\nquantiles = { x = 1.0 }\n[costs]"),
        ("[costs]", '[host_state]\nquantiles = { "0.5" = 0.0 }\n[costs]'),
        ("[costs]", '[host_state]\nquantiles = { "0.5" = inf }\n[costs]'),
        ("[provenance]", "device_boot_sd = inf\n[provenance]"),
        ("[provenance]", 'base = "toy"\nbase_host_scale = inf\n[provenance]'),
    ],
)
def test_costs_that_are_no_durations_are_refused(tmp_path: Path, old: str, new: str) -> None:
    assert old in TOY
    path = tmp_path / "odd.toml"
    path.write_text(TOY.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"odd\.toml"):
        load_profile(str(path))


def test_a_machine_on_which_nothing_takes_time_is_refused(tmp_path: Path) -> None:
    head, costs = TOY.split("[costs]")
    still = [line.split("{")[0] + "{ value = 0 }" for line in costs.splitlines() if "{" in line]
    path = tmp_path / "still.toml"
    path.write_text("\n".join([head, "[costs]", *still]), encoding="utf-8")
    with pytest.raises(InputError, match="no cost above 0"):
        simulate(load_resolved("toy_dF", {"device": str(path)}))


def test_recorded_acceptances_of_any_size_count_as_the_whole_block() -> None:
    acceptance = {"model": "recorded", "values": [[1, 99999]]}
    result = simulate(load_resolved("toy_dF", {"acceptance": acceptance}), hazards=False).to_json()
    assert result["accepted_per_step"]["without_bonus"] <= 15


@pytest.mark.parametrize(
    "text",
    [
        'operations = 3\nremove = ["x"]',
        'operations = [1]\nremove = ["x"]',
        "remove = [{ in = [], name = 1 }]",
        "[[replace]]\nin = {}\nname = {}",
    ],
)
def test_changes_that_fit_no_base_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(f'extends = "dflash@toy-0.5.15"\n{text}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"odd\.toml"):
        load_program(str(path), "")


def test_a_base_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("capabilities = 3\n", encoding="utf-8")
    path = tmp_path / "odd.toml"
    path.write_text('extends = "base"\nremove = ["x"]\ncapabilities = { a = 1 }\n', encoding="utf-8")
    with pytest.raises(InputError, match="no operation"):
        load_program(str(path), "")


@pytest.mark.parametrize("base", ["../../nowhere", "x" * 500])
def test_a_base_whose_name_is_no_file_is_refused(tmp_path: Path, base: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(f'extends = "{base}"\n', encoding="utf-8")
    with pytest.raises(InputError, match="extends"):
        load_program(str(path), "")


def test_tables_too_deep_to_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text('device = "toy"\n[' + ".".join(["a"] * 3000) + "]\nx = 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="too deep"):
        load_resolved(str(path))


@pytest.mark.parametrize("host_lengths", ["exact", "exact_deferred"])
@pytest.mark.parametrize("requests", [1, 2])
def test_the_host_is_never_busy_less_than_not_at_all(host_lengths: str, requests: int) -> None:
    short = {"workload.requests": requests, "workload.output_tokens": 5, "host_scale": 0.01}
    result = simulate(load_resolved("toy_dF", {**short, "host_lengths": host_lengths}), hazards=False)
    fraction = result.to_json()["host_busy_fraction"]
    assert fraction is None or 0 <= fraction <= 1


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="a device or a pipe"):
        check_writable(pipe, "--json")


def test_a_name_that_no_file_system_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a name of at most"):
        check_writable(tmp_path / ("x" * 300), "--json")
