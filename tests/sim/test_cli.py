"""Exit statuses, what is printed where, and that wrong input leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main

RESULT: dict[str, Any] = {
    "scenario": {"algorithm": "block", "engine": "e-1"},
    "device": {"name": "small", "sha256": "00"},
    "throughput_tok_s": {"mean": 15181.2, "ci95": [15100.0, 15260.0], "pi95": [14800.0, 15500.0]},
    "cycle_us": {"mean": None, "median": None, "ci95": None, "pi95": None},
    "tpot_ms": {"mean": 2.0912, "p50": 2.0, "p90": 2.2, "p99": 2.4},
    "idle_us_per_step": {"publish_sync": 0.0, "barrier": 12.5, "launch_lag": 3.0},
    "critical_side": "exposed",
    "cost_share_by_status": {"measured": 0.75, "assumed": 0.25},
    "extrapolated": ["graph.verify"],
    "hazards": [{"buffer": "req_to_token", "kind": "write_after_read", "severity": "harmful", "count": 2}],
    "notes": ["all is assumed"],
    "program": "block@e-1",
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replaces the simulator by one that answers RESULT; the calls it got."""
    seen: list[dict[str, Any]] = []

    def simulate(resolved: Any, *, until: float | None = None, trace: Path | None = None) -> Any:
        seen.append({"resolved": resolved, "until": until, "trace": trace})
        return types.SimpleNamespace(to_json=lambda: RESULT)

    stand_in = types.ModuleType("sim.run")
    stand_in.simulate = simulate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sim.run", stand_in)
    return seen


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    code = ended.value.code
    return 0 if code is None else int(code)


def test_run_prints_the_result_and_ends_with_0(small_configs, calls, capsys):
    assert status("run", "good") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for text in (
        "block@e-1 on small",
        "15,181",
        "15,100 … 15,260",
        "14,800 … 15,500",
        "too short a run",
        "2.091",
        "exposed",
        "barrier 12.5, launch_lag 3",
        "measured 75.0%, assumed 25.0%",
        "graph.verify",
        "harmful: write_after_read on req_to_token, 2 times",
        "all is assumed",
    ):
        assert text in shown.out


def test_a_shipped_scenario_runs_from_end_to_end(tmp_path, capsys):
    target = tmp_path / "result.json"
    trace = tmp_path / "trace.json"
    assert status("run", "toy_dT", "--json", str(target), "--trace", str(trace)) == 0
    result = json.loads(target.read_text())
    assert result["scenario"]["host_lengths"] == "exact"
    assert result["scenario"]["reasons"]["host_lengths"] == "scenario"
    assert f"{result['cycle_us']['mean']:.4g}" in capsys.readouterr().out
    assert json.loads(trace.read_text())["traceEvents"]


def test_headings_have_the_names_that_files_state_not_their_paths(tmp_path, capsys):
    from sim.config import paths

    profile = (paths.folder("devices") / "toy.toml").read_text()
    (tmp_path / "d.toml").write_text(profile.replace('name = "toy"', 'name = "my device"'))
    (tmp_path / "a.toml").write_text(
        'algorithm = "mine"\nengine = "toy-0.5.15"\nextends = "dflash@toy-0.5.15"\n'
    )
    scenario = tmp_path / "s.toml"
    scenario.write_text(
        'device = "./d.toml"\nalgorithm = "./a.toml"\nengine = "toy-0.5.15"\n'
        "workload = { concurrency = 1, requests = 1 }\nrun = { replications = 1 }\n"
    )
    out = tmp_path / "r.json"
    assert status("run", str(scenario), "--json", str(out)) == 0
    assert "mine@toy-0.5.15 on my device" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert result["program"] == "mine@toy-0.5.15"
    assert not any(str(tmp_path) in text for text in result["scenario"]["reasons"].values())
    figure = tmp_path / "f.svg"
    assert status("explain", str(scenario), "--json", str(out), "--figure", str(figure)) == 0
    assert "mine@toy-0.5.15 on my device: batch 1" in capsys.readouterr().out
    assert str(tmp_path) not in figure.read_text()


def test_run_writes_the_result_whole(small_configs, calls, tmp_path):
    target = tmp_path / "result.json"
    target.write_text("old")
    assert status("run", "good", "--json", str(target)) == 0
    assert json.loads(target.read_text()) == RESULT
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["result.json"]


def test_options_reach_the_simulation(small_configs, calls, tmp_path):
    trace = tmp_path / "trace.json"
    options = ["--seed", "9", "--replications", "2", "--until", "0.2%", "--trace", str(trace)]
    assert status("run", "good", "--set", "workload.concurrency=8", "--set", "host_scale=1.5", *options) == 0
    (call,) = calls
    scenario = call["resolved"].scenario
    assert (scenario.run.seed, scenario.run.replications) == (9, 2)
    assert (scenario.workload.concurrency, scenario.host_scale) == (8, 1.5)
    assert (call["until"], call["trace"]) == (0.002, trace)


def test_wrong_input_is_named_in_full_and_writes_nothing(small_configs, calls, tmp_path, capsys):
    target = tmp_path / "result.json"
    folder = tmp_path / "missing"
    assert (
        status(
            *(
                "run",
                "good",
                "--set",
                "relay",
                "--set",
                "workload.concurency=8",
                "--seed",
                "-1",
                "--until",
                "3",
            ),
            *("--set", "overlap=false", "--set", "barrier=coarse"),
            *("--json", str(target), "--trace", str(folder / "trace.json")),
        )
        == 2
    )
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "overlapsim: 6 problems",
        "  --set relay: found no key with a value; expected KEY=VALUE",
        "  --set workload.concurency: found an unknown key (= 8); expected arrival_rate_per_s, client_delay_us, "
        "concurrency, output_tokens, prompt_tokens or requests. Did you mean concurrency?",
        "  --seed: found -1; expected at least 0",
        '  --set barrier: found "coarse" with overlap = false; expected no barrier: the synchronous loop has one '
        "stream and nothing in flight to order. Remove barrier, or set overlap = true.",
        '  --until: found "3"; expected a relative half-width between 0 and 100 %, as 0.2%',
        f'  --trace: found "{folder}/trace.json", in no existing folder; expected a path in a folder that exists',
    ]
    assert not calls
    assert not target.exists()
    assert not folder.exists()


def test_one_problem_is_one_line(small_configs, capsys):
    assert status("run", "god") == 2
    assert capsys.readouterr().err == (
        'overlapsim: scenario: found "god"; expected a path or one of good. Did you mean good?\n'
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "good", "--sed", "1"],
        ["rum"],
        ["list"],
        [],
    ],
)
def test_usage_errors_end_with_2(arguments, small_configs, capsys):
    assert status(*arguments) == 2
    shown = capsys.readouterr()
    assert "Usage: overlapsim" in shown.err + shown.out
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["list", "devises"],
            'kind: found "devises"; expected algorithms, devices, scenarios, studies, relays or barriers. '
            "Did you mean devices?",
        ),
        (["run", "good", "--seed", "x"], '--seed: found "x"; expected a whole number'),
        (["run", "good", "--replications=1.5"], '--replications: found "1.5"; expected a whole number'),
        (["study", "s", "--jobs", "0"], '--jobs: found "0"; expected a whole number, at least 1'),
        (
            ["study", "s", "--solver", "scren"],
            '--solver: found "scren"; expected simpy or screen. Did you mean screen?',
        ),
        (
            ["overlay", "good", "t", "-o", "o", "--iteration", "-"],
            '--iteration: found "-"; expected a whole number',
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_as_every_other_wrong_input(
    arguments, said, small_configs, capsys
):
    assert status(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.err == f"overlapsim: {said}\n"
    assert shown.out == ""


def test_ctrl_c_ends_any_command_in_a_line(small_configs, monkeypatch, capsys):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.commands.run.load_resolved", interrupted)
    assert status("run", "good") == 130
    assert capsys.readouterr().err.strip() == "overlapsim: interrupted"


def test_an_output_that_takes_ascii_alone_shows_the_sign_of_a_number():
    code = "from sim.cli import main; main(['compare', 'toy_dT', 'toy_dF', '--set', 'workload.requests=2'])"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert b"\\xb5s" in ended.stdout  # µs
    assert b"\\u2212" in ended.stdout  # minus
    assert ended.stderr == b""


def test_bytes_that_are_no_text_are_shown(small_configs, capsys):
    assert status("run", "\udcff") == 2
    assert "\\udcff" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("algorithms", ["block@e-1", "needs_war_barrier", "needs_cpu_seq_lens"]),
        ("devices", ["small", "exact", "cuda", "e-1"]),
        ("scenarios", ["good", "A good one."]),
        ("studies", ["studies"]),
        ("relays", ["direct_carry", "unified"]),
        ("barriers", ["unguarded", "coarse", "read_done", "self_fence"]),
    ],
)
def test_list_names_what_there_is(kind, texts, small_configs, capsys):
    assert status("list", kind) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in texts)


def test_list_shows_a_declaration_with_both_flags_as_views(small_configs, capsys):
    assert status("list", "algorithms", "--show", "fenced@e-1") == 0
    shown = capsys.readouterr().out
    assert "#   needs_war_barrier = false\n#   needs_cpu_seq_lens = false\n" in shown
    assert shown.endswith((small_configs / "algorithms" / "fenced@e-1.toml").read_text())
    assert status("list", "algorithms", "--show", "chain@e-1") == 0
    assert "#   needs_war_barrier = true\n#   needs_cpu_seq_lens = true\n" in capsys.readouterr().out


def test_list_shows_whose_default_a_policy_is(small_configs, capsys):
    assert status("list", "barriers", "--show", "self_fence") == 0
    assert capsys.readouterr().out.endswith("default of: fenced@e-1\n")
    assert status("list", "relays", "--show", "direct") == 2
    assert capsys.readouterr().err == (
        'overlapsim: --show: found "direct"; expected one of direct_carry or unified. Did you mean direct_carry?\n'
    )


def test_starting_the_program_loads_no_engine():
    """Each command imports what it needs; typing a wrong name must not cost a second."""
    code = (
        "import sys; from sim.cli import main\n"
        "try: main(['list', 'relays'])\n"
        "except SystemExit: pass\n"
        "heavy = {'simpy', 'scipy', 'pandas', 'matplotlib', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_disk_that_is_full_is_said_in_a_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    def full(self: Path, text: str) -> int:
        self.touch()
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    assert status("run", "toy_dF", "--trace", str(tmp_path / "t.json")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("overlapsim: ")
    assert line.endswith("No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_stops_reading_costs_no_file(small_configs, calls, tmp_path, monkeypatch):
    def gone(*_: Any, **__: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("sim.commands.run.print_table", gone)
    assert status("run", "good", "--json", str(tmp_path / "r.json")) == 1
    assert (tmp_path / "r.json").is_file()


def test_a_file_that_is_no_text_is_not_shown(tmp_path, small_configs, capsys):
    path = tmp_path / "odd.toml"
    path.write_bytes(b"\xd0\x00")
    assert status("list", "devices", "--show", str(path)) == 2
    assert "which is no text" in capsys.readouterr().err


def test_what_is_captured_is_no_wider_than_100_columns(capsys):
    from sim.commands.run import print_summary

    hazard = {**RESULT["hazards"][0], "margin_us": 2.5, "explanation": "the reader sees what comes next " * 6}
    hazard |= {
        side: {"operation": "a long name of an operation", "lane": "forward"} for side in ("first", "second")
    }
    print_summary({**RESULT, "hazards": [hazard], "notes": ["a note that goes on and on " * 9]})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("- harmful: write_after_read on req_to_token") for line in lines)
