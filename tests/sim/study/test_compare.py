"""``overlapsim compare``: paired, with a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.cli import main
from sim.config.loader import load_resolved
from sim.errors import InputError
from sim.study.compare import compare

SHORT = {
    "workload.requests": 8,
    "workload.concurrency": 4,
    "workload.output_tokens": 200,
    "run.replications": 3,
}


def run(*arguments: str) -> int:
    try:
        main(["compare", *arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_scenario_against_itself_differs_by_nothing_and_cannot_tell() -> None:
    side = load_resolved("h200_dflash", SHORT)
    comparison = compare(side, side)
    assert comparison.throughput.absolute.mean == 0
    assert comparison.throughput.absolute.ci95 == (0, 0)
    assert comparison.verdict == "cannot tell"


def test_exact_host_lengths_are_slower_than_none_where_the_device_is_busy() -> None:
    comparison = compare(
        load_resolved("h200_dflash", SHORT), load_resolved("h200_dflash", {**SHORT, "host_lengths": "exact"})
    )
    assert comparison.verdict == "slower"
    assert comparison.cycle is not None
    assert comparison.cycle.relative.mean > 0


def test_swapping_the_sides_turns_the_difference_round() -> None:
    a, b = load_resolved("h200_dflash", SHORT), load_resolved("h200_dflash", {**SHORT, "barrier": "coarse"})
    there, back = compare(a, b), compare(b, a)
    assert there.throughput.absolute.mean == pytest.approx(-back.throughput.absolute.mean)


def test_until_replicates_until_the_difference_is_known_that_well() -> None:
    a = load_resolved("h200_dflash", SHORT)
    b = load_resolved("h200_dflash", {**SHORT, "host_lengths": "exact"})
    loose = compare(a, b).throughput.relative.ci95
    assert loose is not None
    wanted = (loose[1] - loose[0]) / 4
    tight = compare(a, b, until=wanted)
    assert tight.a.replications == tight.b.replications > 3
    assert tight.throughput.relative.ci95 is not None
    assert (tight.throughput.relative.ci95[1] - tight.throughput.relative.ci95[0]) / 2 <= wanted


def test_sides_with_other_seeds_are_refused() -> None:
    with pytest.raises(InputError, match=r"run\.seed: found 1 in A and 2 in B"):
        compare(load_resolved("toy_dF"), load_resolved("toy_dF", {"run.seed": 2}))


def test_the_command_prints_the_verdict_and_writes_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "c.json"
    options = [x for key, value in SHORT.items() for x in ("--set", f"{key}={value}")]
    assert (
        run("h200_dflash", "h200_dflash", *options, "--set-b", "host_lengths=exact", "--json", str(out)) == 0
    )
    assert "verdict: B is slower" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["verdict"] == "slower"
    assert written["a"]["scenario"]["host_lengths"] == "none"
    assert written["b"]["scenario"]["host_lengths"] == "exact"
    low, high = written["throughput_tok_s"]["relative"]["ci95"]
    assert low < written["throughput_tok_s"]["relative"]["mean"] < high


def test_the_same_command_writes_the_same_but_for_wall_time(tmp_path: Path) -> None:
    texts = []
    for name in ("a.json", "b.json"):
        run("toy_dF", "toy_dT", "--json", str(tmp_path / name))
        content = json.loads((tmp_path / name).read_text())
        for side in ("a", "b"):
            content[side].pop("wall_s")
        texts.append(json.dumps(content))
    assert texts[0] == texts[1]


def test_problems_of_both_sides_and_of_the_options_come_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("toy_dF", "toy_dF", "--set", "relay=unifid", "--set-b", "barrier=corse", "--until", "3") == 2
    said = capsys.readouterr().err
    assert "overlapsim: 3 problems" in said
    assert "--set relay" in said
    assert "--set-b barrier" in said
    assert "--until" in said
