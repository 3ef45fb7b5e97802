"""What a scenario leaves open is filled from declarations, and each value says where it came from."""

from __future__ import annotations

import hashlib

import pytest

from sim.config import paths
from sim.config.loader import load_resolved
from sim.config.resolve import provides_read_end, refill_batching, resolve
from sim.config.scenario import Scenario


def resolved(write_scenario, text: str, **overrides: object):
    return load_resolved(write_scenario(text), overrides)


def test_policies_come_from_the_program_and_say_so(write_scenario):
    result = resolved(write_scenario, "")
    scenario = result.scenario
    assert (scenario.engine, scenario.platform) == ("e-1", "cuda")
    assert (scenario.relay, scenario.host_lengths, scenario.barrier) == ("unified", "none", "read_done")
    assert (scenario.prep_stream, scenario.d2h_stream) == ("schedule", "private")
    assert (scenario.block_size, scenario.draft_steps, scenario.topk) == (16, None, None)
    assert result.reasons == {
        "engine": "profile small",
        "platform": "profile small",
        "d2h_stream": "platform cuda",
        "host_lengths": "declared by block@e-1",
        "relay": "declared by block@e-1",
        "prep_stream": "declared by block@e-1",
        "barrier": "declared by block@e-1",
        "block_size": "declared by block@e-1",
        "draft_steps": "not used: block@e-1 has none",
        "topk": "not used: block@e-1 has none",
        "serving.min_free_slots": "declared by block@e-1: refill batching at max_running_requests 64",
    }


def test_what_the_scenario_sets_replaces_the_declaration(write_scenario):
    result = resolved(
        write_scenario,
        'engine = "e-1"\nrelay = "direct_carry"\nhost_lengths = "exact"\nbarrier = "coarse"\n'
        'prep_stream = "plan"\n'
        "block_size = 8\n[serving]\nmin_free_slots = 0",
    )
    scenario = result.scenario
    assert (scenario.relay, scenario.host_lengths, scenario.barrier) == ("direct_carry", "exact", "coarse")
    assert (scenario.prep_stream, scenario.block_size, scenario.serving.min_free_slots) == ("plan", 8, 0)
    keys = (
        "engine",
        "relay",
        "host_lengths",
        "barrier",
        "prep_stream",
        "block_size",
        "serving.min_free_slots",
    )
    assert {result.reasons[key] for key in keys} == {"scenario"}


def test_a_worker_with_its_own_fence_keeps_it_on_either_platform(write_scenario):
    for platform in ("cuda", "hip"):
        result = resolved(write_scenario, f'platform = "{platform}"\n', algorithm="fenced")
        assert result.scenario.barrier == "self_fence"
        assert (result.scenario.relay, result.scenario.host_lengths) == ("direct_carry", "bound")
        assert result.scenario.prep_stream == "plan"


def test_the_schedulers_barrier_is_off_by_default_on_hip(write_scenario):
    result = resolved(write_scenario, 'platform = "hip"')
    assert (result.scenario.barrier, result.scenario.d2h_stream) == ("unguarded", "schedule")
    assert result.reasons["barrier"] == "platform hip: the scheduler's barrier is off by default"
    assert result.reasons["d2h_stream"] == "platform hip: lengths are copied on the schedule stream"


def test_the_synchronous_loop_uses_no_relay_barrier_or_preparation_stream(write_scenario):
    result = resolved(write_scenario, "overlap = false")
    assert (result.scenario.relay, result.scenario.barrier, result.scenario.prep_stream) == (None, None, None)
    assert result.reasons["relay"] == "not used: the synchronous loop runs on one stream"


def test_a_resolved_scenario_resolves_to_itself(write_scenario):
    for text in ("", "overlap = false", 'platform = "hip"'):
        once = resolved(write_scenario, text).scenario
        assert resolve(Scenario.model_validate(once.model_dump(mode="json"))).scenario == once


@pytest.mark.parametrize(("slots", "free"), [(1, 0), (7, 0), (8, 2), (13, 3), (19, 4), (64, 4)])
def test_refill_batching_waits_for_a_share_of_the_slots(slots, free):
    assert refill_batching(slots) == free


def test_a_chain_ties_its_block_to_its_steps(write_scenario):
    chain = resolved(write_scenario, "", algorithm="chain").scenario
    assert (chain.block_size, chain.draft_steps, chain.topk) == (4, 3, 1)
    by_steps = resolved(write_scenario, "draft_steps = 5", algorithm="chain").scenario
    assert (by_steps.block_size, by_steps.draft_steps) == (6, 5)
    by_block = resolved(write_scenario, "block_size = 3", algorithm="chain").scenario
    assert (by_block.block_size, by_block.draft_steps) == (3, 2)


def test_acceptance_beyond_the_drafts_is_clipped_and_said(write_scenario):
    result = resolved(write_scenario, "", algorithm="chain")
    assert result.scenario.acceptance.mean_accepted_drafts == 3.0
    assert result.reasons["acceptance.mean_accepted_drafts"] == "clipped to block_size - 1 = 3"
    assert result.notes == [
        "acceptance.mean_accepted_drafts 5.4 is clipped to the 3 drafts of a step: every draft is accepted"
    ]


def test_recorded_acceptance_beyond_the_drafts_is_said(write_scenario):
    result = resolved(
        write_scenario, 'acceptance = { model = "recorded", values = [[1, 9], [2]] }', algorithm="chain"
    )
    assert result.notes == ["recorded acceptances above the 3 drafts of a step count as 3: the largest is 9"]


def test_no_and_bounded_host_lengths_are_said_to_be_one_point_where_nothing_consumes_them(write_scenario):
    same = "host_lengths none and bound are the same point here: the program consumes no host lengths"
    assert same in resolved(write_scenario, 'host_lengths = "bound"').notes
    assert same in resolved(write_scenario, 'host_lengths = "none"').notes
    assert same not in resolved(write_scenario, 'host_lengths = "exact"').notes
    assert same not in resolved(write_scenario, 'host_lengths = "bound"', algorithm="fenced").notes


def test_a_read_end_needs_a_known_place_and_a_mark(write_scenario):
    provided = {
        name: provides_read_end(resolved(write_scenario, "", algorithm=name).program)
        for name in ("block", "chain", "fenced", "lookup", "plain")
    }
    assert provided == {"block": True, "chain": True, "fenced": False, "lookup": False, "plain": False}


def test_results_carry_the_profiles_hash_and_the_reasons(write_scenario, small_configs):
    result = resolved(write_scenario, "")
    content = (small_configs / "devices" / "small.toml").read_bytes()
    assert result.profile_sha256 == hashlib.sha256(content).hexdigest()
    shown = result.to_json()
    assert shown["barrier"] == "read_done"
    assert shown["reasons"] == result.reasons


@pytest.mark.parametrize("name", paths.names("scenarios"))
def test_every_shipped_scenario_resolves(name):
    assert load_resolved(name).scenario.barrier is not None
