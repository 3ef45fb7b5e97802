"""Every way a trace can be wrong gets a message that says what is missing and how to record it, or is handled."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sim.errors import InputError
from sim.ingest.iterations import fold
from sim.ingest.kineto import HOW_TO_RECORD, read_trace
from sim.ingest.pipeline import ingest
from tests.sim.ingest.conftest import DATA, NEW_C1, NEW_C32, OLD_C1, Events, document

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


@pytest.mark.parametrize(
    ("literal", "found"),
    [("9" * 5000, "a number too long to read"), ("[" * 100_000, "JSON too deep to read")],
)
def test_what_python_does_not_read_is_refused(tmp_path: Path, literal: str, found: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [], "x": {literal}')
    assert found in message(path)


@pytest.mark.parametrize(
    "literal", ["NaN", "-Infinity", "1e400", "9" * 400, "-5", "null", '"x"', "true", "[]"]
)
@pytest.mark.parametrize("key", ["dur", "ts"])
def test_events_without_a_usable_time_are_left_out_and_counted(
    tmp_path: Path, key: str, literal: str
) -> None:
    loaded = document(NEW_C1)
    first = next(e for e in loaded["traceEvents"] if e["cat"] == "kernel")
    first[key] = "@"
    path = tmp_path / NEW_C1.name.removesuffix(".gz")
    path.write_text(json.dumps(loaded).replace('"@"', literal))
    readable = literal == "true" or (key, literal) == ("ts", "-5")
    notes = ingest([path]).notes if not readable else []
    assert readable or any("left out: 1 events without a usable time" in n for n in notes)


def test_a_trace_of_nothing_but_unusable_events_says_so(altered: Altered) -> None:
    text = message(altered(lambda events: [{**e, "dur": -1} for e in events]))
    assert re.search(r"no device activity beside \d+ events without a usable time", text)


@pytest.mark.parametrize("factor", [1e6, 1e12, 1e100, 1e290])
def test_times_in_another_unit_are_refused(altered: Altered, factor: float) -> None:
    def scaled(events: Events) -> Events:
        return [{**e, "ts": e["ts"] * factor, "dur": e.get("dur", 0) * factor} for e in events]

    text = message(altered(scaled))
    assert "Input should be" not in text
    assert "expected times in microseconds" in text or "without a usable time" in text


def test_lanes_of_numbers_and_of_names_are_told_apart(altered: Altered) -> None:
    def mixed(events: Events) -> Events:
        kernels = [e for e in events if e["cat"] == "kernel"]
        for e in kernels[::2]:
            e["tid"] = str(e["tid"])
        for e in kernels:
            e["ts"], e["dur"] = kernels[0]["ts"], 0
        return events

    path = altered(mixed)
    read_trace(path)


@pytest.mark.parametrize("size", ["0", "9" * 20, "9" * 5000])
def test_a_batch_that_is_none_is_asked_for(altered: Altered, size: str) -> None:
    def renamed(events: Events) -> Events:
        return [{**e, "name": re.sub(r"bs=\d+", f"bs={size}", e["name"])} for e in events]

    assert "no batch size in any annotation" in message(altered(renamed, name="trace.json"))
    assert "no batch size in any annotation" in message(altered(renamed, name=f"t_c{size[:90]}.json"))


def timings_message(table: Path) -> str:
    with pytest.raises(InputError) as caught:
        ingest([NEW_C1, NEW_C32], table)
    return str(caught.value)


@pytest.mark.parametrize("text", ["nan", "inf", "0", "-1", "1e308", "1e-308", "9" * 5000, "x"])
@pytest.mark.parametrize("column", ["concurrency", "host_run_batch_us", "cycle_mean_us"])
def test_figures_that_are_none_are_named_with_their_line(tmp_path: Path, column: str, text: str) -> None:
    header, *rows = (DATA / "cycles.csv").read_text().splitlines()
    at = header.split(",").index(column)
    cells = rows[0].split(",")
    rows[0] = ",".join([*cells[:at], text, *cells[at + 1 :]])
    table = tmp_path / "t.csv"
    table.write_text("\n".join([header, *rows]))
    assert f"{table}:2: {column}: found" in timings_message(table)


@pytest.mark.parametrize(
    "series",
    [
        b"",
        b"junk",
        (DATA / "cycle_series_us.npz").read_bytes()[:3000],
        np.array([np.nan] * 20),
        np.array([-1.0] * 20),
        np.ones((2, 20)),
        np.float64(3),
        np.array(["x"]),
    ],
)
def test_a_series_that_is_none_is_named(tmp_path: Path, series: object) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes((DATA / "cycles.csv").read_bytes())
    archive = tmp_path / "cycle_series_us.npz"
    if isinstance(series, bytes):
        archive.write_bytes(series)
    else:
        np.savez(archive, **{"0.5.15|default|c1": series})
    assert f"{archive}: found" in timings_message(table)


def test_a_table_without_an_optional_column_says_nothing_of_it(tmp_path: Path) -> None:
    header, *rows = (DATA / "cycles.csv").read_text().splitlines()
    table = tmp_path / "t.csv"
    table.write_text("\n".join([header.replace("host_resolve_us", "other"), *rows]))
    assert "host.relay.resolve" in ingest([NEW_C1, NEW_C32], table).profile.costs
