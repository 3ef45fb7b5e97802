"""Algorithms a user declares: expressions for costs, programs that extend others, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.config import paths
from sim.config.consistent import problems as inconsistencies
from sim.config.loader import load_program, load_resolved
from sim.config.profile import Cost, at_batch
from sim.config.resolve import Resolved
from sim.errors import InputError
from sim.run import simulate

HEAD = 'algorithm = "mine"\nengine = "toy-0.5.15"\nextends = "dflash@toy-0.5.15"\n'
Declare = Callable[..., Resolved]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Writes ``mine.toml`` from the toy block drafter and resolves a scenario that uses it."""

    def resolved(text: str, **overrides: object) -> Resolved:
        path = tmp_path / "mine.toml"
        path.write_text(HEAD + text)
        return load_resolved("toy_dF", {"algorithm": str(path), **overrides})

    return resolved


def refused(declare: Declare, text: str) -> str:
    with pytest.raises(InputError) as error:
        declare(text)
    return str(error.value)


def derived(resolved: Resolved, text: str) -> Cost:
    return resolved.profile.costs[text]


def at(cost: Cost, batch: int, tokens: int = 0, context: int = 0) -> float:
    value = at_batch(cost.value, cost.batch, batch) + cost.per_batch * batch + cost.per_token * tokens
    return (value + at_batch(cost.per_context, cost.batch, batch) * context) * cost.ns_per_unit / 1000


# -- expressions ------------------------------------------------------------------------------------------


def test_an_expression_is_the_arithmetic_it_spells(declare: Declare) -> None:
    text = "2 * graph.draft + layers * (batch + 1) / 4 - 0.5"
    resolved = declare(f'[parameters]\nlayers = 8\n[[replace]]\nname = "draft"\ncost = "{text}"\n')
    graph = resolved.profile.costs["graph.draft"]
    for batch in (1, 3, 64):
        tokens = 16 * batch
        expected = 2 * at(graph, batch, tokens) + 8 * (batch + 1) / 4 - 0.5
        assert at(derived(resolved, text), batch, tokens) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "batch", "tokens", "context", "expected"),
    [
        ("tokens", 3, 48, 0, 48),
        ("0.5 * tokens + 2", 3, 7, 0, 5.5),
        ("block_size * batch", 3, 48, 0, 48),
        ("batch * batch", 7, 112, 0, 49),
        ("batch * context * 0.01", 5, 80, 300, 15),
        ("max(batch, 10) + min(1, 2, 3)", 4, 64, 0, 11),
        ("ceil(batch / 8) * 10", 9, 144, 0, 20),
        ("ceil(tokens / 128)", 9, 144, 0, 2),
        ("-batch + 100", 1, 16, 0, 99),
    ],
)
def test_batch_tokens_and_context_are_exact_at_every_batch(
    declare: Declare, text: str, batch: int, tokens: int, context: int, expected: float
) -> None:
    resolved = declare(f'[[replace]]\nname = "draft"\ncost = "{text}"\n')
    assert at(derived(resolved, text), batch, tokens, context) == pytest.approx(expected)


def test_a_program_with_an_expression_runs_and_costs_what_it_says(declare: Declare) -> None:
    plain = simulate(load_resolved("toy_dF")).cycle_us.mean
    same = simulate(declare('[[replace]]\nname = "draft"\ncost = "1 * graph.draft"\n')).cycle_us.mean
    longer = simulate(declare('[[replace]]\nname = "draft"\ncost = "graph.draft + 100"\n')).cycle_us.mean
    assert plain is not None
    assert longer is not None
    assert same == plain
    # The device limits this one: what the graph takes longer, the cycle takes longer.
    assert longer == pytest.approx(plain + 100)


def test_a_derived_cost_is_as_good_as_the_worst_it_is_made_of() -> None:
    resolved = load_resolved("h200_dflash", {"algorithm": "dflash_captured@sglang-0.5.15"})
    (text,) = (name for name in resolved.profile.costs if "+" in name)
    cost = resolved.profile.costs[text]
    used = [resolved.profile.costs[name] for name in text.split(" + ")]
    assert cost.within_sd == max(c.within_sd for c in used)
    assert cost.status in {c.status for c in used}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 * graph.drft", 'an unknown name "graph.drft"'),
        ("2 * graph.drft", "Did you mean graph.draft"),
        ("context * context", "not linear in context"),
        ("max(context, 100)", "not linear in context"),
        ("1 / (batch - 1)", "a division by 0"),
        ("2 *", "invalid syntax"),
        ("__import__('os').system('true')", "numbers, names"),
        ("(lambda: 1)()", "numbers, names"),
        ("[batch for batch in (1, 2)]", "numbers, names"),
        ("batch ** 2", "numbers, names"),
        ("batch if batch else 1", "numbers, names"),
        ("open('x')", "numbers, names"),
        ("min()", "min of numbers"),
        ("1e999 * batch", "a finite number"),
        ("1 + " * 200 + "1", "at most 500"),
        ("True * batch", "numbers, names"),
    ],
)
def test_what_is_no_cost_is_refused_with_operation_and_reason(declare: Declare, text: str, said: str) -> None:
    message = refused(declare, f"[[replace]]\nname = \"draft\"\ncost = '''{text}'''\n")
    assert message.startswith('mine@toy-0.5.15: operations "draft": cost: found')
    assert said in message


def test_a_prefill_s_cost_must_be_linear_in_tokens(declare: Declare) -> None:
    text = '[[replace]]\nin = "prefill"\nname = "target"\ncost = "ceil(tokens / 128)"\n'
    assert "not linear in tokens" in refused(declare, text)


def test_nothing_of_an_expression_is_executed(declare: Declare, tmp_path: Path) -> None:
    target = tmp_path / "executed"
    refused(declare, f"[[replace]]\nname = \"draft\"\ncost = '''open(\"{target}\", \"w\")'''\n")
    assert not target.exists()


# -- extends ----------------------------------------------------------------------------------------------


def names(resolved: Resolved) -> list[str]:
    return [operation.name for operation in resolved.program.operations]


def test_a_program_without_changes_is_its_base(declare: Declare) -> None:
    resolved = declare("")
    base = load_program("dflash", "toy-0.5.15")
    assert resolved.program.operations == base.operations
    assert resolved.program.prefill == base.prefill
    assert resolved.program.algorithm == "mine"


def test_operations_are_removed_replaced_and_inserted(declare: Declare) -> None:
    resolved = declare(
        """
remove = ["verify.meta"]
[[replace]]
name = "draft"
share = 2.0
[[insert]]
after = "draft"
phase = "forward"
name = "refine"
kind = "kernel"
stream = "forward"
cost = "kernel.small"
[[insert]]
before = "draft"
phase = "forward"
name = "look"
kind = "host"
cost = "host.queue"
"""
    )
    order = names(resolved)
    assert "verify.meta" not in order
    assert order[order.index("draft") - 1 : order.index("draft") + 2] == ["look", "draft", "refine"]
    (draft,) = (op for op in resolved.program.operations if op.name == "draft")
    assert (draft.share, draft.cost) == (2.0, "graph.draft")


def test_capabilities_are_replaced_key_by_key(declare: Declare) -> None:
    resolved = declare('[capabilities]\nhost_length_need = "exact"\n')
    assert resolved.program.capabilities.needs_cpu_seq_lens
    assert resolved.program.capabilities.read_end == "pre_replay"
    assert resolved.scenario.host_lengths == "exact"


def test_a_base_beside_the_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text(HEAD + '[[replace]]\nname = "draft"\nshare = 3.0\n')
    (tmp_path / "second.toml").write_text('algorithm = "second"\nextends = "first"\n')
    program = load_program(str(tmp_path / "second.toml"), "")
    assert next(op for op in program.operations if op.name == "draft").share == 3.0
    assert (program.algorithm, program.engine) == ("second", "toy-0.5.15")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('remove = ["drft"]', 'mine.toml: remove[0]: found no operation "drft"'),
        ('remove = ["drft"]', "Did you mean draft?"),
        ('[[replace]]\nname = "stsh"\nshare = 1.0', "mine.toml: replace[0]"),
        ('[[insert]]\nname = "x"\nkind = "host"', "neither after nor before"),
        ('[[insert]]\nafter = "draft"\nbefore = "draft"', "both after and before"),
        ('[[insert]]\nafter = "draft"\nin = "decoding"', 'mine.toml: insert[0].in: found "decoding"'),
        (
            '[[insert]]\nafter = "draft"\nname = "x"\nkind = "krnel"\nphase = "forward"',
            "Did you mean kernel?",
        ),
    ],
)
def test_a_change_that_meets_nothing_is_refused(declare: Declare, text: str, said: str) -> None:
    assert said in refused(declare, text + "\n")


def test_a_base_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('algorithm = "a"\nextends = "b"\n')
    (tmp_path / "b.toml").write_text('algorithm = "b"\nextends = "a"\n')
    with pytest.raises(InputError, match="at most 8 deep"):
        load_program(str(tmp_path / "a.toml"), "")


def test_an_unknown_base_is_refused_with_the_nearest(declare: Declare, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('algorithm = "x"\nextends = "dflash@toy-0.5.51"\n')
    with pytest.raises(InputError, match=r"x\.toml: extends.*Did you mean dflash@toy-0\.5\.15"):
        load_program(str(tmp_path / "x.toml"), "")


# -- consistency ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[[replace]]\nname = "block"\nreads = ["req_to_tokn[seq:seq+B]"]',
            'operations "block": reads: found an unknown buffer "req_to_tokn"',
        ),
        ('[[replace]]\nname = "block"\nreads = ["req_to_tokn[seq:seq+B]"]', "Did you mean req_to_token?"),
        (
            '[[replace]]\nname = "block"\nreads = ["batch.x"]\n[[replace]]\nname = "draft"\nwrites = ["batch.x"]',
            '"batch.x" before anything wrote it: "draft" comes later',
        ),
        ('[[replace]]\nname = "block"\nreads = ["batch.x"]', "which nothing writes in this iteration"),
        ('remove = ["publish"]', "no operation of kind publish"),
        (
            'remove = ["stash"]',
            'operations "enter.gather_tokens": reads: found "future_map.tokens", which nothing in operations writes',
        ),
        (
            'remove = [{ name = "stash", in = "prefill" }]',
            'operations "enter.gather_tokens": reads: found "future_map.tokens", which nothing in prefill writes',
        ),
        (
            '[[replace]]\nname = "block"\nreads = ["future_map.tokns[rows]"]',
            '"future_map.tokns", which nothing in operations or prefill writes',
        ),
        ('remove = ["copy.done"]', 'no operation of kind record with event "copy_done"'),
        (
            '[[insert]]\nbefore = "draft"\nphase = "forward"\nname = "w"\nkind = "wait"\nstream = "forward"\n'
            'event = "never"',
            'a wait for event "never", which nothing records',
        ),
        (
            '[[insert]]\nbefore = "draft"\nphase = "forward"\nname = "w"\nkind = "synchronize"\nevent = "later"\n'
            '[[insert]]\nafter = "draft"\nphase = "forward"\nname = "r"\nkind = "record"\nstream = "forward"\n'
            'event = "later"',
            'a circle: it waits for event "later", which is recorded only behind it',
        ),
        (
            '[[insert]]\nafter = "draft"\nphase = "forward"\nname = "k"\nkind = "kernel"\nstream = "forward"',
            'operations "k": cost: found nothing',
        ),
        (
            '[[insert]]\nafter = "draft"\nphase = "forward"\nname = "k"\nkind = "kernel"\ncost = "kernel.small"',
            'operations "k": stream: found nothing',
        ),
        ('[[replace]]\nname = "copy.join"\nevent = "copy_done"', "both event and on"),
    ],
)
def test_an_inconsistent_program_is_refused_with_operation_and_reason(
    declare: Declare, text: str, said: str
) -> None:
    message = refused(declare, text + "\n")
    assert message.startswith("mine.toml: ")
    assert said in message


def test_an_event_of_the_previous_iteration_needs_a_record_in_the_prefill() -> None:
    program = load_program("two_stage_prefetch", "sglang-0.5.15")
    waits = [op for op in program.operations if op.event == "first_stage_done" and op.kind == "wait"]
    assert waits
    assert any(op.event == "first_stage_done" for op in program.prefill)


@pytest.mark.parametrize("name", paths.names("algorithms"))
def test_every_shipped_program_is_consistent(name: str) -> None:
    assert load_program(name, "").operations


# -- the worked examples ----------------------------------------------------------------------------------

SHORT = {
    "workload.concurrency": 4,
    "workload.requests": 4,
    "workload.output_tokens": 200,
    "run.replications": 1,
}


def cycle(**overrides: object) -> float:
    mean = simulate(load_resolved("h200_dflash", {**SHORT, **overrides}), new_boots=False).cycle_us.mean
    assert mean is not None
    return mean


def test_prefetching_hides_device_work_and_costs_a_slow_host() -> None:
    serial, prefetched = "two_stage", "two_stage_prefetch"
    assert cycle(algorithm=prefetched) < cycle(algorithm=serial)
    # On a host eight times slower the host limits, and it has more calls to make.
    slow = {"host_scale": 8.0}
    assert cycle(algorithm=prefetched, **slow) > cycle(algorithm=serial, **slow)


def test_remedies_for_exact_lengths_recover_part_of_their_cost_and_add_up() -> None:
    exact = {"host_lengths": "exact"}
    none = cycle(algorithm="dflash")
    start = cycle(algorithm="dflash", **exact)
    captured = cycle(algorithm="dflash_captured", **exact)
    entry = cycle(algorithm="dflash_entry_first", **exact)
    both = cycle(algorithm="dflash_captured_entry_first", **exact)
    assert none < both < captured < entry < start


def test_the_point_neither_release_has_is_no_slower_than_the_release() -> None:
    assert cycle(algorithm="best_point") <= cycle(algorithm="dflash")


# -- costs at other rows ------------------------------------------------------------------------------------


def test_a_cost_can_be_asked_at_other_rows_with_or_without_its_context() -> None:
    resolved = load_resolved("h200_dflash", {"algorithm": "dflash_blocks", "block_size": 8})
    target = resolved.profile.costs["graph.target"]
    (text,) = (name for name in resolved.profile.costs if name.startswith("without_context(graph.target"))
    # 16 rows of 8 are as many tokens as 8 rows of 16; what grows with the context stays with the 16 rows.
    expected = at(target, 8) + at(target, 16, context=300) - at(target, 16)
    assert at(resolved.profile.costs[text], 16, context=300) == pytest.approx(expected)


def test_at_the_measured_block_nothing_changes() -> None:
    # Up to the luck of the derived costs, whose draws are keyed by their names.
    assert cycle(algorithm="dflash_blocks") == pytest.approx(cycle(algorithm="dflash"), rel=1e-3)


def test_rows_outside_the_measured_range_are_said() -> None:
    resolved = load_resolved("h200_dflash", {"algorithm": "dflash_blocks", "block_size": 32})
    (text,) = (name for name in resolved.profile.costs if name.startswith("without_context(graph.target"))
    # 32 rows of 16 tokens were the most: 16 rows of 32.
    assert resolved.profile.costs[text].valid_range["batch"] == (1, 16)
    assert resolved.profile.costs[text].status == "scaled"


@pytest.mark.parametrize(
    "text", ["at(graph.draft)", "at(2, batch)", "at(nothing, batch)", "without_context(batch, 1)"]
)
def test_at_wants_a_cost_and_rows(declare: Declare, text: str) -> None:
    assert "a cost of the profile, rows" in refused(
        declare, f'[[replace]]\nname = "draft"\ncost = "{text}"\n'
    )


def test_a_program_without_a_decode_step_is_refused() -> None:
    empty = load_program("dflash", "toy-0.5.15").model_copy(update={"operations": ()})
    found = [str(problem) for problem in inconsistencies(empty, "mine.toml")]
    assert "mine.toml: operations: found an empty list; expected the operations of a decode step" in found
