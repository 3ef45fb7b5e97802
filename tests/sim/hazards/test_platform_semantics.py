"""What a runtime makes of waits, graph launches and records, as rows of data; profiles over a base."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hazard_lab import SMALL, resolved

from sim.config import paths
from sim.config.declarations import load_profile, load_profile_with_hash
from sim.config.loader import load_resolved
from sim.errors import InputError
from sim.replication import Replication

STEADY = {"workload.requests": "2", "workload.output_tokens": "200", "workload.prompt_tokens": "16"}
PUBLISHED = [name for name in paths.names("devices") if name.endswith("_published")]


def cycle(semantics: dict[str, bool], overrides: dict[str, str] | None = None) -> float:
    r = resolved(None, {**STEADY, **(overrides or {})})
    profile = r.profile.model_copy(update={"semantics": semantics})
    result = Replication(replace(r, profile=profile), 0).run().cycle
    assert result is not None
    return result


def test_nothing_stated_changes_nothing() -> None:
    assert cycle({}) == cycle({"stream_wait_holds_host": False, "graph_launch_holds_host": False})


def test_a_wait_that_holds_the_host_takes_the_overlap_away() -> None:
    """The wait of the copy stream for the forward holds the loop until the forward is over."""
    assert cycle({"stream_wait_holds_host": True}) > cycle({}) + 50


def test_without_a_copy_stream_there_is_no_such_wait_to_pay_for() -> None:
    """What the results on the forward stream save on such a runtime (the barrier's wait is off as well)."""
    holding = {"stream_wait_holds_host": True, "result_copy_stream": False}
    on_copy_stream = {"stream_wait_holds_host": True, "result_copy_stream": True}
    unguarded = {"barrier": "unguarded"}
    assert cycle(holding, unguarded) < cycle(on_copy_stream, unguarded) - 50


def test_a_graph_launch_that_holds_the_host_leaves_little_of_the_overlap() -> None:
    synchronous = cycle({}, {"overlap": "false"})
    holding = cycle({"graph_launch_holds_host": True})
    assert cycle({}) < holding
    assert holding > cycle({}) + 0.5 * (synchronous - cycle({}))


def test_a_record_on_the_null_stream_waits_for_every_stream() -> None:
    """Entry of the forward records on the schedule stream, which then waits for the previous result's copy."""
    assert cycle({"record_joins_streams": True}) > cycle({})


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_profile_runs_and_says_that_nothing_was_measured(name: str) -> None:
    r = load_resolved("h200_none", {"device": name, "workload.requests": "4", "run.replications": "1"})
    assert r.profile.status == "published"
    assert any("published, not measured" in note for note in r.notes)
    assert {cost.status for cost in r.profile.costs.values()} <= {"published", "assumed"}
    assert all(cost.source for cost in r.profile.costs.values())
    assert Replication(r, 0).run().books.output_tokens > 0


def test_costs_of_a_base_are_scaled_and_no_longer_measured() -> None:
    base, over = load_profile("h200_sglang"), load_profile("mi355x_published")
    graph, host = "graph.decode", "host.v0515.process"
    assert over.costs[graph].value == pytest.approx([v * 0.6 for v in base.costs[graph].value])  # type: ignore[union-attr]
    assert over.costs[host].value == base.costs[host].value
    assert over.costs[graph].status == "assumed"
    assert over.costs["call.copy"].status == "published"
    assert over.host_state == base.host_state


def test_the_hash_of_a_profile_covers_its_base(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    _, digest = load_profile_with_hash("mi355x_published")
    original = paths.locate

    def elsewhere(name: str, kind: str, where: str) -> object:
        path = original(name, kind, where)
        if name != "h200_sglang":
            return path
        changed = tmp_path / path.name  # type: ignore[operator]
        changed.write_bytes(path.read_bytes() + b"\n# one comment more\n")
        return changed

    monkeypatch.setattr(paths, "locate", elsewhere)
    assert load_profile_with_hash("mi355x_published")[1] != digest


def test_a_base_that_needs_a_base_is_refused(tmp_path: object) -> None:
    path = tmp_path / "third.toml"  # type: ignore[operator]
    path.write_text('name = "third"\nstatus = "published"\nengine = "e"\nbase = "b200_published"\n[costs]\n')
    with pytest.raises(
        InputError, match=r"third.toml: base: found .*b200_published.*expected a complete profile"
    ):
        load_profile(str(path))


def test_the_scheduler_s_barrier_is_off_where_the_platform_says_so_and_the_check_says_what_that_means() -> (
    None
):
    hip = load_resolved("toy_dF", {**SMALL, "platform": "hip", "barrier": "unguarded"})
    found = Replication(hip, 0, hazards=True).run().hazards
    assert found is not None
    assert any(f.severity == "harmful" for f in found.findings.values())
