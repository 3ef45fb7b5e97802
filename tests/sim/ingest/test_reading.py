"""Reading a trace: calls, iterations and what each call means."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.ingest.iterations import fold
from sim.ingest.kineto import CallKind, call_kind, read_trace
from sim.ingest.pieces import read
from sim.ingest.pipeline import ingest
from sim.ingest.sglang_dflash import V0514, V0515
from sim.ingest.template import align
from tests.sim.ingest.conftest import DATA, NEW_C1, NEW_C32, OLD_C1, OLD_C32, Events

Altered = Callable[..., Path]


@pytest.mark.parametrize("prefix", ["cuda", "hip", "mu"])
def test_calls_are_understood_without_their_vendors_prefix(prefix: str) -> None:
    assert call_kind(f"{prefix}GraphLaunch", ()) is CallKind.GRAPH
    assert call_kind(f"{prefix}EventRecordWithFlags", ()) is CallKind.RECORD
    assert call_kind(f"{prefix}StreamWaitEvent", ()) is CallKind.WAIT
    assert call_kind(f"{prefix}EventSynchronize", ()) is CallKind.SYNCHRONIZE
    assert call_kind(f"{prefix}EventQuery", ()) is CallKind.MINOR


def test_a_trace_of_another_runtime_gives_the_same_program_and_costs(altered: Altered) -> None:
    def renamed(events: Events) -> Events:
        for e in events:
            if e["cat"] in ("cuda_runtime", "cuda_driver"):
                e["cat"] = "hip_runtime"
                e["name"] = e["name"].replace("cuda", "hip").replace("cuLaunch", "hipExtModuleLaunch")
        return events

    one, other = ingest([NEW_C1]), ingest([altered(renamed, name="trace_0.5.15_default_c1.json")])
    assert other.program.operations == one.program.operations
    assert {n: c.value for n, c in other.profile.costs.items()} == {
        n: c.value for n, c in one.profile.costs.items()
    }


@pytest.mark.parametrize(
    ("path", "batch", "cycle"),
    [(NEW_C1, 1, 7784), (NEW_C32, 32, 20695), (OLD_C1, 1, 9418), (OLD_C32, 32, 20892)],
    ids=lambda v: v.name if isinstance(v, Path) else None,
)
def test_iterations_batch_and_cycle_are_found(path: Path, batch: int, cycle: float) -> None:
    traced = fold(read_trace(path))
    assert traced.batch == batch
    assert traced.cycle == pytest.approx(cycle, abs=1)


@pytest.mark.parametrize(
    ("path", "template"), [(NEW_C1, V0515), (NEW_C32, V0515), (OLD_C1, V0514), (OLD_C32, V0514)]
)
def test_the_template_knows_every_launch_but_split_kernels_and_memsets(path: Path, template: object) -> None:
    pieces = read(fold(read_trace(path)), template)  # type: ignore[arg-type]
    assert len(pieces.folded) <= 4
    assert all(
        "memset" in name or "splitK" in name or "elementwise_kernel<128, 4" in name for name in pieces.folded
    )


def test_operations_come_in_the_engines_order() -> None:
    names = [op.name for op in ingest([OLD_C1]).program.operations]
    order = [
        "receive",
        "schedule",
        "filter",
        "prepare.loop",
        "prepare.assign",
        "enter.join",
        "draft.block",
        "draft.graph",
        "head.gemm",
        "verify.graph",
        "publish",
        "append.store_4",
        "verify_done",
        "stash",
        "copy.tokens",
        "copy_done",
        "queue",
        "process",
    ]
    assert [n for n in names if n in order] == order


def test_records_of_freed_memory_do_not_pass_for_a_plan_stream() -> None:
    rows = align(
        V0514,
        [
            ("open", "scheduler.get_next_batch_to_run"),
            ("record", "record"),
            ("record", "record"),
            ("synchronize", "synchronize"),
            ("copy", "Memcpy HtoD (Pinned -> Device)"),
        ],
    )
    assert rows[3] is not None
    assert rows[3].before == "schedule"


def test_without_annotations_the_pattern_of_calls_gives_the_sections(altered: Altered) -> None:
    def bare(events: Events) -> Events:
        return [e for e in events if e["cat"] != "user_annotation"]

    one, other = ingest([NEW_C1]), ingest([altered(bare, name="trace_0.5.15_default_c1.json")])
    assert any("no scheduler annotations" in n for n in other.notes)
    assert [op.name for op in other.program.operations] == [op.name for op in one.program.operations]
    assert other.profile.costs["graph.target"].value == one.profile.costs["graph.target"].value
    for section in ("draft", "verify", "tail"):
        name = f"host.v0515.{section}"
        assert other.profile.costs[name].value == pytest.approx(one.profile.costs[name].value, rel=0.05)


@pytest.mark.parametrize(("stream", "verdict"), [(13, "confirm 1 of 1 waits"), (49, "confirm 0 of 1 waits")])
def test_sync_records_are_held_against_the_program(altered: Altered, stream: int, verdict: str) -> None:
    """The result copies wait for the forward stream (13 in this trace), says the program."""

    def recorded(events: Events) -> Events:
        waits = [e for e in events if e["name"] == "cudaStreamWaitEvent"]
        copies = [e for e in events if e["name"] == "copy_result_to_cpu"]
        joins = [max((w for w in waits if w["ts"] < c["ts"]), key=lambda w: w["ts"]) for c in copies]
        for n, join in enumerate(joins):
            join["args"] = {"correlation": 10**8 + n}
        records = [
            {
                "ph": "X",
                "cat": "cuda_sync",
                "name": "Stream Wait Event",
                "pid": 0,
                "tid": 45,
                "ts": j["ts"],
                "dur": 0,
                "args": {"correlation": j["args"]["correlation"], "wait_on_stream": stream},
            }
            for j in joins
        ]
        return [*events, *records]

    result = ingest([altered(recorded)])
    assert any(verdict in n for n in result.notes), result.notes
    assert any("wait for another stream" in n for n in result.notes) == (stream != 13)
    assert not any("no cuda_sync records" in n for n in result.notes)


def test_seven_megabytes_are_read_in_three_seconds() -> None:
    began = time.perf_counter()
    ingest([DATA / "trace_0.5.14_plan_stream_c32.json.gz"])
    assert time.perf_counter() - began < 3.0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="counts memory with getrusage")
def test_two_hundred_megabytes_are_read_in_a_minute_and_three_gigabytes(tmp_path: Path) -> None:
    """Iterations of a real trace repeated: time stamps and correlation ids move on, nothing else changes."""
    import json

    from tests.sim.ingest.conftest import document

    events = document(DATA / "trace_0.5.15_default_c32.json.gz")["traceEvents"]
    starts = sorted(e["ts"] for e in events if e["name"] == "scheduler.recv_requests")
    begin, end = starts[3], starts[10]
    spans = [e for e in events if e.get("ph") == "X" and isinstance(e["pid"], int) and e["pid"] >= 0]
    host = [e for e in spans if e["pid"] > 0 and begin <= e["ts"] < end]
    ids = {e["args"]["correlation"] for e in host if "correlation" in e.get("args", {})}
    base = [*host, *(e for e in spans if e["pid"] == 0 and e.get("args", {}).get("correlation") in ids)]
    path = tmp_path / "large_c32.json"
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        turn = 0
        while file.tell() < 200e6:
            for e in base:
                args = dict(e.get("args", {}))
                if "correlation" in args:
                    args["correlation"] += turn * 10**7
                file.write(
                    ("," if file.tell() > 20 else "")
                    + json.dumps({**e, "ts": e["ts"] + turn * (end - begin), "args": args})
                )
            turn += 1
        file.write("]}")
    began = time.perf_counter()
    result = ingest([path])
    assert time.perf_counter() - began < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 3e6
    assert len(result.pieces[0].traced.iterations) > 6 * turn
