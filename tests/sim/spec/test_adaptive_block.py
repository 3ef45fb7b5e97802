"""A block that follows the load: one program, the block of each batch's size."""

from __future__ import annotations

import json

import pytest

from sim.config.loader import load_resolved
from sim.errors import InputError
from sim.program.step_program import AdaptiveBlock, Speculation
from sim.run import simulate

STEADY = {
    "workload.requests": "4",
    "workload.concurrency": "4",
    "workload.output_tokens": "200",
    "acceptance": '{ model = "per_position", probabilities = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3] }',
    "run.replications": "1",
}


def answer(**overrides: str) -> dict[str, object]:
    result = simulate(load_resolved("h200_dflash", {**STEADY, **overrides}), new_boots=False).to_json()
    return {k: result[k] for k in ("throughput_tok_s", "cycle_us", "accepted_per_step", "iterations")}


def test_the_first_entry_that_holds_the_batch_counts_and_the_scenario_caps_it() -> None:
    width = Speculation(
        kind="block",
        block_size=16,
        max_block_size=64,
        adaptive=(AdaptiveBlock(up_to_batch=8, block_size=16), AdaptiveBlock(up_to_batch=32, block_size=8)),
    )
    assert [width.block_at(b, 16) for b in (1, 8, 9, 32, 500)] == [16, 16, 8, 8, 8]
    assert width.block_at(1, 12) == 12


def test_without_entries_the_scenario_decides() -> None:
    assert Speculation(kind="block", block_size=16, max_block_size=64).block_at(5, 7) == 7


@pytest.mark.parametrize(("concurrency", "block"), [("4", "16"), ("16", "8"), ("48", "6")])
def test_a_constant_batch_runs_as_with_the_fixed_block_of_its_size(concurrency: str, block: str) -> None:
    # One request a slot and lengths that end together keep the batch constant until it is gone.
    load = {
        "workload.concurrency": concurrency,
        "workload.requests": concurrency,
        "acceptance": '{ model = "match_expected", mean_accepted_drafts = 2 }',
    }
    adaptive = answer(algorithm="dflash_adaptive", **load)
    assert json.dumps(adaptive) == json.dumps(answer(algorithm="dflash_blocks", block_size=block, **load))


def test_a_batch_that_shrinks_widens_its_block() -> None:
    # 12 rows run with 8 positions until requests finish and 8 or fewer are left.
    load = {
        "workload.concurrency": "12",
        "workload.requests": "12",
        "workload.output_tokens": "{ values = [40, 400] }",
        "acceptance": '{ model = "per_position", probabilities = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] }',
    }
    narrow = answer(algorithm="dflash_blocks", block_size="8", **load)
    adaptive = answer(algorithm="dflash_adaptive", **load)
    assert adaptive["accepted_per_step"]["with_bonus"] > narrow["accepted_per_step"]["with_bonus"]  # type: ignore[index]
    assert adaptive["iterations"] < narrow["iterations"]  # type: ignore[operator]


def test_entries_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending without repeats"):
        Speculation(
            kind="block",
            block_size=16,
            max_block_size=64,
            adaptive=(
                AdaptiveBlock(up_to_batch=8, block_size=4),
                AdaptiveBlock(up_to_batch=8, block_size=2),
            ),
        )


def test_an_unknown_key_of_an_entry_names_file_and_key(tmp_path: object) -> None:
    path = tmp_path / "mine.toml"  # type: ignore[operator]
    path.write_text(
        'algorithm = "mine"\nengine = "sglang-0.5.15"\nextends = "dflash@sglang-0.5.15"\n'
        "[speculation]\nadaptive = [{ up_to = 8, block_size = 4 }]\n"
    )
    with pytest.raises(InputError, match=r"speculation\.adaptive"):
        load_resolved("h200_dflash", {"algorithm": str(path)})
