"""A wait that nobody will satisfy ends the run with its name and who should have recorded it; nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hazard_lab import SMALL, edited, program, resolved

from sim.cli import main
from sim.errors import WaitError
from sim.program.step_program import Kind, Operation, Phase, StepProgram, StreamName
from sim.run import simulate


def message(altered: StepProgram, overrides: dict[str, str] | None = None) -> str:
    with pytest.raises(WaitError) as caught:
        simulate(resolved(altered, overrides))
    return str(caught.value)


def test_an_algorithm_that_never_publishes() -> None:
    assert message(edited(program(), drop=["publish"])) == (
        'resolve.wait_publish (resolve) waits for event "publish_ready", which nothing recorded before it. '
        "Expected: an operation of kind publish in the forward before it, prefills included; a program that "
        "publishes nothing, or nothing for an empty batch, leaves its waiters alone."
    )


def test_a_prefill_that_returns_before_it_creates_the_event() -> None:
    """As an empty batch does: publish returns early, and the first decode waits for what never was."""
    for lengths in ("none", "exact", "exact_deferred"):
        text = message(edited(program(), drop=["publish"], decode=False), {"host_lengths": lengths})
        assert text.startswith('resolve.wait_publish (resolve) waits for event "publish_ready"'), lengths
        assert "nothing for an empty batch, leaves its waiters alone" in text


def test_a_host_wait_for_the_same_event_ends_too() -> None:
    text = message(edited(program(), drop=["publish"], decode=False), {"platform": "hip"})
    assert text.startswith('resolve.wait_publish (resolve) waits for event "publish_ready"')


def test_a_result_whose_copy_is_never_recorded() -> None:
    assert message(edited(program(), drop=["copy.done"])) == (
        'result.synchronize (process) waits for event "copy_done", which nothing recorded before it. Expected: an '
        "operation of kind record with event copy_done in phase copy, after the result's copies."
    )


def test_an_idle_rank_that_never_records_what_a_busy_one_waits_for() -> None:
    """A data-parallel rank without a batch records nothing; the collective of the others waits on the host."""
    joined = Operation(phase=Phase.FORWARD, name="peers.wait", kind=Kind.SYNCHRONIZE, event="peers_ready")
    assert message(edited(program(), before={"draft": [joined]}, prefill=False)) == (
        'peers.wait (forward) waits for event "peers_ready", which nothing recorded before it. Expected: an '
        "operation of kind record with event peers_ready, earlier or in the iteration before."
    )


def test_an_idle_rank_that_skips_the_record_in_its_prefill_alone() -> None:
    """The record is there, but comes after the first wait: what a rank sees that idles until its first decode."""
    ready = Operation(
        phase=Phase.QUEUE,
        name="peers.record",
        kind=Kind.RECORD,
        stream=StreamName.FORWARD,
        event="peers_ready",
    )
    joined = Operation(phase=Phase.FORWARD, name="peers.wait", kind=Kind.SYNCHRONIZE, event="peers_ready")
    before = {"draft": [joined], "queue": [ready]}
    idle = edited(program(), before=before, prefill=False)
    assert message(idle).startswith('peers.wait (forward) waits for event "peers_ready"')
    simulate(
        resolved(edited(idle, before={"queue": [ready]}, decode=False))
    )  # recorded by every iteration: it ends


def test_an_event_recorded_only_when_something_joined_the_batch() -> None:
    """Wait and record are conditional on different things: the wait comes first in some iteration."""
    record = Operation(
        phase=Phase.QUEUE,
        name="joined.record",
        kind=Kind.RECORD,
        stream=StreamName.FORWARD,
        event="joined",
        when=("merged",),
    )
    wait = Operation(
        phase=Phase.PREPARE, name="joined.wait", kind=Kind.WAIT, stream=StreamName.SCHEDULE, event="joined"
    )
    altered = edited(program(), before={"queue": [record], "prepare": [wait]}, prefill=False)
    assert 'joined.wait (prepare) waits for event "joined"' in message(altered)


def test_requests_that_no_free_row_will_ever_admit_end_the_run() -> None:
    r = resolved(None, {"serving.max_running_requests": "2"})
    from sim.replication import Replication

    replication = Replication(r, 0)
    replication.scheduler.pool._free.clear()  # as if rows had leaked
    replication.scheduler._admit = list  # type: ignore[method-assign]
    with pytest.raises(WaitError, match="nothing runs that could free more"):
        _drain(replication)


def _drain(replication: object) -> None:
    """Runs with clients that send and leave, so that nothing else can arrive."""
    replication.inbox.open_sources = 0  # type: ignore[attr-defined]
    replication._start_clients = lambda: replication.scheduler.submit(  # type: ignore[attr-defined]
        replication.workload.make(0)  # type: ignore[attr-defined]
    )
    replication.run()  # type: ignore[attr-defined]


def test_the_command_line_says_it_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = tmp_path / "silent.toml"
    silent.write_text(
        """
algorithm = "silent"
engine = "toy-0.5.15"
[capabilities]
length_source = "published"
host_length_need = "none"
[speculation]
kind = "block"
block_size = 4
max_block_size = 4
[[operations]]
phase = "forward"
name = "verify"
kind = "graph"
stream = "forward"
cost = "graph.target"
[[operations]]
phase = "copy"
name = "copy.done"
kind = "record"
stream = "forward"
event = "copy_done"
[[prefill]]
phase = "copy"
name = "copy.done"
kind = "record"
stream = "forward"
event = "copy_done"
"""
    )
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(f'device = "toy"\nengine = "toy-0.5.15"\nalgorithm = "{silent}"\n')
    with pytest.raises(SystemExit) as exit_:
        main(["run", str(scenario)])
    assert exit_.value.code == 2
    shown = capsys.readouterr().err
    # A program that can never publish is refused when it is read, before anything waits.
    assert "no operation of kind publish" in shown
    assert "Traceback" not in shown


def test_fail_on_hazard_exits_with_one_on_harmful_conflicts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    settings = [x for k, v in SMALL.items() if k not in ("device", "engine") for x in ("--set", f"{k}={v}")]
    with pytest.raises(SystemExit) as unsafe:
        main(["run", "toy_dF", *settings, "--set", "barrier=unguarded", "--fail-on-hazard"])
    assert unsafe.value.code == 1
    assert "UNSAFE: 3 harmful conflicts that nothing orders" in capsys.readouterr().out
    with pytest.raises(SystemExit) as benign:
        main(["run", "toy_dF", *settings, "--fail-on-hazard"])
    assert benign.value.code == 0
    assert "safe: 2 benign conflicts and no harmful one" in capsys.readouterr().out
