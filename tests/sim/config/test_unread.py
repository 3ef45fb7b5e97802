"""No key of a profile is taken and ignored without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from sim.capabilities import Barrier, HostLengths, PrepStream, Relay
from sim.config import paths, unread
from sim.config.declarations import load_profile, load_program
from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.errors import InputError
from sim.program.expand import Expander
from sim.program.policies import Policies, Situation, policies_of
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Kind
from sim.run import simulate

HOST, WAKE = '"host.x"', '"call.wake.lengths.synchronize"'


def with_cost(configs: Path, name: str, text: str) -> None:
    profile = configs / "devices" / "small.toml"
    profile.write_text(profile.read_text() + f"{name} = {{ {text} }}\n")


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ('"call.first_launch"', "value = 1.0, per_context = 0.1", "per_context"),
        ('"call.first_launch"', "value = 1.0, within_sd = 0.1", "within_sd"),
        ('"call.first_launch"', "value = 1.0, boot_sd = 0.1", "boot_sd"),
        ('"call.wake"', "value = 1.0, within_sd = 0.1", "within_sd"),
        ('"call.wake"', "value = [1.0, 2.0], batch = [1, 8]", "batch"),
        ('"hop.launch"', "value = 1.0, per_batch = 0.1", "per_batch"),
        ('"hop.cross_stream"', "value = 1.0, per_token = 0.1", "per_token"),
        (WAKE, "value = [1.0, 2.0], batch = [1, 8], per_context = [0.0, 0.1]", "per_context"),
        (WAKE, "value = 1.0, per_token = 0.1", "per_token"),
        (HOST, "value = 1.0, relief = 0.1", "relief"),
        (HOST, "value = [1.0, 2.0], batch = [1, 8], relief = [0.0, 0.1]", "relief"),
        (HOST, "value = 1.0, context_floor = 0.1", "context_floor"),
        (HOST, "value = 1.0, per_empty = 0.1", "per_empty"),
    ],
)
def test_a_key_that_nothing_reads_is_refused_naming_it(small_configs, name, text, key):
    with_cost(small_configs, name, text)
    with pytest.raises(InputError) as refused:
        load_profile("small")
    (problem,) = refused.value.problems
    assert problem.where == f"small.toml: costs.{name}"
    assert problem.found.startswith(f"{key} = ")
    assert problem.expected.startswith(f"no {key}: ")


def test_what_is_read_and_what_says_nothing_is_taken(small_configs):
    with_cost(small_configs, '"call.wake"', "value = [1.0, 1.0], batch = [1, 8], within_sd = 0.0")
    with_cost(small_configs, WAKE, "value = [1.0, 2.0], batch = [1, 8]")
    with_cost(small_configs, '"call.first_launch"', "value = [1.0, 2.0], batch = [1, 8], per_token = 0.1")
    with_cost(small_configs, HOST, "value = 1.0, within_sd = 0.1, per_context = 0.1, relief = 0.0")
    load_profile("small")


@pytest.mark.parametrize("name", paths.names("devices"))
def test_every_shipped_profile_is_read_whole(name):
    profile = load_profile(name)
    assert unread.problems(profile.costs, name) == []
    for program in (p for p in paths.names("algorithms") if p.endswith(f"@{profile.engine}")):
        loaded = load_program(program, profile.engine)
        assert unread.beside(profile, loaded) == []
        assert unread.notes(profile, loaded) == []


# -- beside a program ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "users"),
    [
        ('"verify"', "value = 9.0, relief = 0.1", 'block@e-1 launches as publish "publish"'),
        (
            '"lengths.copy"',
            "value = 9.0, relief = 0.1",
            "the policies launch as a kernel or copy (lengths.copy)",
        ),
    ],
)
def test_relief_on_what_is_no_graph_is_refused(small_configs, name, text, users):
    """``verify`` is a graph of the small program and the cost of its publish, a kernel."""
    with_cost(small_configs, name, text)
    with pytest.raises(InputError) as refused:
        load_resolved("good")
    (problem,) = refused.value.problems
    assert problem.found == f"relief on a cost that {users}"
    assert problem.where == f"device profile small: costs.{name.strip(chr(34)) if '.' not in name else name}"


def test_relief_on_a_graph_is_taken_and_lost_in_an_expression_with_a_note(small_configs):
    program = small_configs / "algorithms" / "block@e-1.toml"
    text = program.read_text()
    with_cost(small_configs, '"verify"', "value = 9.0, relief = 0.1")
    program.write_text(_own_publish(text))
    with_cost(small_configs, '"small"', "value = 1.0")
    assert not [n for n in load_resolved("good").notes if "relief" in n]
    program.write_text(_own_publish(text).replace('cost = "verify"', 'cost = "verify + 1"', 1))
    (note,) = [n for n in load_resolved("good").notes if "relief" in n]
    assert note == 'the cost "verify + 1" is taken without the relief of verify'


def _own_publish(text: str) -> str:
    """The small program with a cost of its own for its publish."""
    head, _, tail = text.rpartition('cost = "verify"')
    return f'{head}cost = "small"{tail}'


def test_a_wake_that_no_wait_goes_by_is_noted_with_the_nearest(small_configs):
    with_cost(small_configs, '"call.wake.length.synchronize"', "value = 9.0")
    with_cost(small_configs, '"call.wake.lengths.synchronize"', "value = 9.0")
    with_cost(small_configs, '"call.wake.barrier.wait.held"', "value = 9.0")
    (note,) = [n for n in load_resolved("good").notes if "wake" in n]
    assert note.startswith(
        "call.wake.length.synchronize of profile small counts nowhere: block@e-1 has no wait "
    )
    assert "Did you mean lengths.synchronize" in note


def test_the_note_is_part_of_the_result():
    toy = load_resolved("toy_dT", {"run.replications": 1, "workload.requests": 1})
    stated = {**toy.profile.costs, "call.wake.nothing": Cost(value=1.0)}
    profile = toy.profile.model_copy(update={"costs": stated})
    notes = unread.notes(profile, toy.program)
    (note,) = notes
    assert 'no wait "nothing". Its waits: block_tables, fence.synchronize' in note
    assert note in simulate(replace(toy, notes=notes)).notes


def expanded(name: str) -> Iterator[tuple[Policies, Primitive]]:
    """Everything that a program and every choice of policies expand to."""
    toy = load_resolved(name)
    base = policies_of(toy)
    choices = product(Relay, HostLengths, Barrier, PrepStream, (True, False), (True, False), (True, False))
    for relay, lengths, barrier, prep, overlap, pinned, plain in choices:
        platform = base.platform
        if not plain:
            platform = replace(
                platform,
                publish_wait_on_stream=False,
                private_d2h_stream=False,
                stream_wait_holds_host=True,
                graph_launch_holds_host=True,
            )
        policies = replace(
            base,
            relay=relay,
            host_lengths=lengths,
            barrier=barrier,
            prep_stream=prep,
            overlap=overlap,
            pinned=pinned,
            platform=platform,
        )
        for prefill in (False, True):
            iteration = Expander(toy.program, policies).expand(Situation(prefill=prefill))
            for p in (*iteration.receive, *iteration.launch, *iteration.process):
                yield policies, p


@pytest.mark.parametrize("name", ["toy_dT", "toy_eagle", "toy_ngram", "toy_none"])
def test_every_wait_and_launch_of_a_policy_is_known_here(name):
    program = load_resolved(name).program
    declared = {op.name for op in (*program.operations, *program.prefill)}
    waits, launches = set(), set()
    for _, p in expanded(name):
        if p.act is Act.SYNC and p.name not in declared and not p.name.endswith(".held"):
            waits.add(p.name)
        if p.act is Act.LAUNCH and p.name not in declared:
            assert p.kind is not Kind.GRAPH
            launches.add(p.device)
    assert waits <= set(unread.POLICY_WAITS)
    assert launches <= set(unread.POLICY_LAUNCHES)
    if name == "toy_dT":
        assert waits == set(unread.POLICY_WAITS)
        assert launches == set(unread.POLICY_LAUNCHES)
