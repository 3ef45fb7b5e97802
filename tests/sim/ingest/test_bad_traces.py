"""Every way a trace can be wrong gets a message that says what is missing and how to record it, or is handled."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.ingest.iterations import fold
from sim.ingest.kineto import HOW_TO_RECORD, read_trace
from sim.ingest.pipeline import ingest
from tests.sim.ingest.conftest import NEW_C1, OLD_C1, Events

Altered = Callable[..., Path]


def message(*traces: Path) -> str:
    with pytest.raises(InputError) as caught:
        ingest(traces)
    return str(caught.value)


def test_a_gzip_file_cut_short_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "cut.json.gz"
    path.write_bytes(NEW_C1.read_bytes()[:20_000])
    assert "damaged gzip file" in message(path)


def test_json_cut_in_the_middle_says_where_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.decompress(NEW_C1.read_bytes())[:300_000])
    text = message(path)
    assert re.search(r"no JSON at byte \d+ \(300000 bytes\)", text)
    assert "export the trace again" in text


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"null", b'{"traceEvents": 3}', b"\x1f\x8b", b"\xff\xfe"]
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.json"
    path.write_bytes(content)
    assert str(path) in message(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "found no such file" in message(tmp_path / "absent.json")


def without(*categories: str) -> Callable[[Events], Events]:
    return lambda events: [e for e in events if e["cat"] not in categories]


def test_a_cpu_only_run_is_recognised(altered: Altered) -> None:
    text = message(altered(without("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")))
    assert "0 runtime calls but no device activity" in text
    assert "CPU-only run" in text
    assert HOW_TO_RECORD in text


def test_a_trace_without_device_activities_says_how_to_record_them(altered: Altered) -> None:
    text = message(altered(without("kernel", "gpu_memcpy", "gpu_memset")))
    assert "no device activity" in text
    assert HOW_TO_RECORD in text


def test_a_trace_without_a_host_side_is_refused(altered: Altered) -> None:
    assert "no runtime call" in message(altered(without("cuda_runtime", "cuda_driver")))


def test_a_trace_without_a_scheduler_thread_is_refused(altered: Altered) -> None:
    def cut_links(events: Events) -> Events:
        for e in events:
            if e["cat"] in ("cuda_runtime", "cuda_driver"):
                e["args"] = {"correlation": 10**9 + e["args"].get("correlation", 0)}
        return events

    assert "no runtime call shares a correlation id" in message(altered(cut_links))


def test_a_trace_without_a_complete_decode_iteration_is_refused(altered: Altered) -> None:
    text = message(altered(lambda events: [e for e in events if "GraphLaunch" not in e["name"]]))
    assert "no complete decode iteration" in text
    assert HOW_TO_RECORD in text


def test_too_few_iterations_are_refused(altered: Altered) -> None:
    starts = sorted(e["ts"] for e in document_events(OLD_C1) if e["name"] == "scheduler.recv_requests")
    path = altered(lambda events: [e for e in events if e["ts"] <= starts[2]], of=OLD_C1)
    assert re.search(r"[12] steady decode iterations of one call sequence", message(path))


def document_events(path: Path) -> Events:
    from tests.sim.ingest.conftest import document

    events: Events = document(path)["traceEvents"]
    return events


def test_two_ranks_in_one_file_are_refused(altered: Altered) -> None:
    def doubled(events: Events) -> Events:
        other = [
            {**e, "pid": 4242, "args": {**e.get("args", {}), "correlation": e["args"]["correlation"] + 10**7}}
            for e in events
            if e["cat"] in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
        ]
        device = [
            {**e, "pid": 1, "args": {**e["args"], "correlation": e["args"]["correlation"] + 10**7}}
            for e in events
            if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        ]
        return [*events, *other, *device]

    text = message(altered(doubled))
    assert "2 processes that launch work" in text
    assert "one rank a file" in text


def test_prefills_between_decodes_are_left_out_and_mentioned(altered: Altered) -> None:
    """The second steady iteration gets an eager launch more, as a prefill or a filter would bring."""
    starts = sorted(e["ts"] for e in document_events(NEW_C1) if e["name"] == "scheduler.recv_requests")

    def interleave(events: Events) -> Events:
        launch = next(
            e for e in events if e["name"] == "cudaLaunchKernel" and starts[3] < e["ts"] < starts[4]
        )
        kernel = next(
            e
            for e in events
            if e["cat"] == "kernel" and e["args"]["correlation"] == launch["args"]["correlation"]
        )
        more = {**launch, "ts": launch["ts"] - 2.0, "dur": 1.0, "args": {"correlation": 10**8}}
        its = {**kernel, "ts": kernel["ts"] - 1.0, "dur": 0.5, "args": {"correlation": 10**8, "stream": 13}}
        return [*events, more, its]

    result = ingest([altered(interleave)])
    assert any("1 of 8 iterations differ from the usual call sequence" in n for n in result.notes)
    assert all(i.index != 3 for i in result.pieces[0].traced.iterations)


def test_a_skewed_device_clock_is_handled_and_mentioned(altered: Altered) -> None:
    def skewed(events: Events) -> Events:
        for e in events:
            if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
                e["ts"] -= 20_000.0
        return events

    plain = ingest([NEW_C1])
    result = ingest([altered(skewed)])
    assert any("clock skew" in n for n in result.notes)
    for name in ("graph.target", "graph.draft.v0515", "dflash.append.kv_gemm"):
        assert result.profile.costs[name].value == pytest.approx(plain.profile.costs[name].value, rel=0.15)
    assert result.profile.costs["host.v0515.draft"].value == plain.profile.costs["host.v0515.draft"].value


def test_an_unknown_batch_size_asks_for_it(altered: Altered) -> None:
    def unnamed(events: Events) -> Events:
        return [e for e in events if "bs=" not in e["name"]]

    assert "no batch size in any annotation" in message(altered(unnamed, name="trace.json"))
    assert ingest([altered(unnamed, name="trace_c1.json")]).pieces[0].traced.batch == 1


def test_every_problem_of_every_trace_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{")
    text = message(tmp_path / "a.json", tmp_path / "b.json", NEW_C1)
    assert "a.json" in text
    assert "b.json" in text


def test_an_engine_without_a_program_is_told_how_far_the_nearest_one_goes(altered: Altered) -> None:
    def renamed(events: Events) -> Events:
        return [{**e, "name": "unheard_of"} if e["cat"] == "kernel" else e for e in events]

    assert re.search(r"the nearest program, dflash@sglang-0\.5\.1\d, knows \d+%", message(altered(renamed)))


def test_start_up_transients_are_dropped(altered: Altered) -> None:
    traced = fold(read_trace(NEW_C1))
    assert traced.first == 2
    assert len(traced.iterations) == 6
