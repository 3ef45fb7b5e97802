"""``ingest``, ``overlay`` and ``run --host-state-from`` as people use them: statuses, messages, files."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from tests.sim.ingest.conftest import DATA, NEW_C1, NEW_C32, OLD_C1, ROOT, Events, document

Altered = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program; its exit status, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        shown = capsys.readouterr()
        code = ended.value.code
        return 0 if code is None else int(code), shown.out, shown.err

    return call


@pytest.fixture
def written(tmp_path: Path) -> Path:
    folder = tmp_path / "written"
    folder.mkdir()
    return folder


# -- bad input --------------------------------------------------------------------------------------------------


def without(*categories: str) -> Callable[[Events], Events]:
    return lambda events: [e for e in events if e["cat"] not in categories]


def no_link(events: Events) -> Events:
    """Helper threads of a process that launches nothing: no call belongs to a device activity."""
    for e in events:
        if e["cat"] in RUNTIME:
            e["args"] = {"correlation": 10**9 + e["args"].get("correlation", 0)}
    return events


def two_ranks(events: Events) -> Events:
    def other(e: dict[str, Any], pid: int) -> dict[str, Any]:
        return {**e, "pid": pid, "args": {**e["args"], "correlation": e["args"]["correlation"] + 10**7}}

    linked = [e for e in events if "correlation" in e.get("args", {})]
    return [
        *events,
        *(other(e, 4242) for e in linked if e["cat"] in RUNTIME),
        *(other(e, 1) for e in linked if e["cat"] in DEVICE),
    ]


def only_prefills(events: Events) -> Events:
    return [e for e in events if "GraphLaunch" not in e["name"]]


BAD = {
    "without device activities": (without(*DEVICE), "no device activity"),
    "of a CPU-only run": (without(*DEVICE, *RUNTIME), "CPU-only run"),
    "without a scheduler thread": (no_link, "no runtime call shares a correlation id"),
    "without a complete decode iteration": (only_prefills, "no complete decode iteration"),
    "of two ranks": (two_ranks, "one rank a file"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_trace_that_cannot_be_read_gets_a_message_and_leaves_nothing(
    what: str, altered: Altered, run: Run, written: Path
) -> None:
    change, says = BAD[what]
    code, out, err = run("ingest", altered(change), "-o", written / "p.toml", "--json", written / "s.json")
    assert code == 2
    assert out == ""
    assert says in err
    assert "record" in err or "export one trace for each rank" in err
    assert list(written.iterdir()) == []


@pytest.mark.parametrize("name", ["cut.json.gz", "cut.json"])
def test_a_file_cut_short_gets_a_message_and_leaves_nothing(
    name: str, tmp_path: Path, run: Run, written: Path
) -> None:
    raw = NEW_C1.read_bytes()
    path = tmp_path / name
    path.write_bytes(raw[:20_000] if name.endswith("gz") else gzip.decompress(raw)[:300_000])
    code, _, err = run("ingest", path, "-o", written / "p.toml")
    assert code == 2
    assert "export" in err
    assert list(written.iterdir()) == []


def test_prefills_in_between_and_a_skewed_clock_are_handled_and_mentioned(
    altered: Altered, run: Run, written: Path
) -> None:
    starts = sorted(
        e["ts"] for e in document(NEW_C1)["traceEvents"] if e["name"] == "scheduler.recv_requests"
    )

    def disturbed(events: Events) -> Events:
        for e in events:
            if e["cat"] in DEVICE:
                e["ts"] -= 20_000.0
        launch = next(
            e for e in events if e["name"] == "cudaLaunchKernel" and starts[3] < e["ts"] < starts[4]
        )
        kernel = next(
            e for e in events if e["cat"] == "kernel" and e["args"] == {**e["args"], **launch["args"]}
        )
        return [
            *events,
            {**launch, "ts": launch["ts"] - 2.0, "dur": 1.0, "args": {"correlation": 10**8}},
            {**kernel, "ts": kernel["ts"] - 1.0, "dur": 0.5, "args": {"correlation": 10**8, "stream": 13}},
        ]

    code, out, err = run("ingest", altered(disturbed), "-o", written / "p.toml")
    assert (code, err) == (0, "")
    assert "clock skew" in out
    assert "1 of 8 iterations differ from the usual call sequence" in out
    assert sorted(p.name for p in written.iterdir()) == ["dflash@sglang-0.5.15.toml", "p.toml"]


def test_every_wrong_path_is_named_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    code, _, err = run("ingest", NEW_C1, "-o", tmp_path / "p.json", "--json", tmp_path / "no" / "s.json")
    assert code == 2
    assert "a file name that ends in .toml" in err
    assert "--json" in err


def test_tables_that_cannot_be_read_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("engine,phase\n0.5.15,steady\n")
    code, _, err = run("ingest", NEW_C1, "-o", tmp_path / "p.toml", "--timings", tmp_path / "t.csv")
    assert code == 2
    assert "host_publish_us" in err
    code, _, err = run("ingest", NEW_C1, "-o", tmp_path / "p.toml", "--primitives", tmp_path / "absent.json")
    assert code == 2
    assert "found no such file" in err
    code, _, err = run("ingest", NEW_C1, "-o", tmp_path / "p.toml", "--engine", "unheard-of")
    assert code == 2
    assert "sglang-0.5.15" in err
    assert not (tmp_path / "p.toml").exists()


# -- what ingest writes -----------------------------------------------------------------------------------------


def test_traces_timings_and_primitives_become_files_that_run_uses(run: Run, written: Path) -> None:
    profile, summary = written / "h200.toml", written / "s.json"
    tables = ("--timings", DATA / "cycles.csv", "--primitives", DATA / "primitives_us.json")
    code, out, _ = run("ingest", NEW_C1, NEW_C32, *tables, "-o", profile, "--json", summary)
    assert code == 0
    assert "limited by: gpu" in out
    said = json.loads(summary.read_text())
    assert {c["time"] for c in said["self_check"]} == {"profiled", "unprofiled"}
    assert all(abs(c["error"]) < 0.015 for c in said["self_check"])
    assert all(f"{c['error']:+.2%}" in out for c in said["self_check"])
    assert said["notes"]
    result = written / "r.json"
    keys = (
        "workload.concurrency=8",
        "workload.requests=8",
        f"device={profile}",
        f"algorithm={said['program']}",
    )
    code, _, _ = run("run", "h200_dflash", *(a for k in keys for a in ("--set", k)), "--json", result)
    assert code == 0
    assert json.loads(result.read_text())["cycle_us"]["mean"] == pytest.approx(10_013, rel=0.01)


def slowed(tmp_path: Path) -> Path:
    """Timings whose cycles are not those of the traces."""
    lines = (DATA / "cycles.csv").read_text().splitlines()
    column = lines[0].split(",").index("cycle_mean_us")
    table = [lines[0]]
    for line in lines[1:]:
        cells = line.split(",")
        cells[column] = str(2 * float(cells[column]))
        table.append(",".join(cells))
    path = tmp_path / "slowed.csv"
    path.write_text("\n".join(table) + "\n")
    return path


def test_a_profile_that_misses_by_more_than_5_per_cent_is_refused_unless_told(
    run: Run, tmp_path: Path, written: Path
) -> None:
    given = ("ingest", OLD_C1, "--timings", slowed(tmp_path), "-o", written / "p.toml")
    code, out, err = run(*given)
    assert code == 2
    assert "0.5.14 default at 1" in err
    assert "expected at most 5%" in err
    assert "unprofiled time): measured 17,356 us" in out
    assert list(written.iterdir()) == []
    code, _, err = run(*given, "--force")
    assert (code, err) == (0, "")
    assert (written / "p.toml").exists()


@pytest.mark.parametrize("scenario", ["toy_cN", "toy_dT", "toy_ngram", "h200_dflash_exact"])
def test_a_trace_of_our_own_comes_back_with_the_same_cycle(scenario: str, run: Run, written: Path) -> None:
    trace, profile = written / "own.json.gz", written / "p.toml"
    small = ("--set", "workload.concurrency=4", "--set", "workload.requests=4", "--replications", 1)
    assert run("run", scenario, *small, "--trace", trace)[0] == 0
    code, _, _ = run("ingest", trace, "-o", profile, "--json", written / "s.json")
    assert code == 0
    said = json.loads((written / "s.json").read_text())
    assert [c["time"] for c in said["self_check"]] == ["profiled"]
    assert abs(said["self_check"][0]["error"]) < 0.005


# -- overlay ----------------------------------------------------------------------------------------------------


def test_an_overlay_holds_the_real_trace_and_as_much_of_the_simulation(run: Run, written: Path) -> None:
    both = written / "both.json"
    code, out, _ = run("overlay", "h200_dflash", NEW_C1, "-o", both, "--set", "workload.concurrency=1")
    assert code == 0
    assert "iteration 5 of the simulation" in out
    assert f"iteration 2 of {NEW_C1.name}" in out
    events = json.loads(both.read_text())["traceEvents"]
    real = document(NEW_C1)["traceEvents"]
    assert events[: len(real)] == real
    ours = [e for e in events[len(real) :] if "ts" in e]
    assert {e["pid"] for e in ours} == {900_000, 900_001}
    assert min(e["ts"] for e in real) <= min(e["ts"] for e in ours)
    assert max(e["ts"] for e in ours) <= max(e["ts"] for e in real)


def test_an_overlay_at_an_iteration_that_is_not_there_leaves_nothing(run: Run, written: Path) -> None:
    code, _, err = run("overlay", "h200_dflash", NEW_C1, "-o", written / "b.json", "--iteration", 99)
    assert code == 2
    assert "--iteration: found 99; expected 0 to 7" in err
    assert list(written.iterdir()) == []


# -- a known host state -----------------------------------------------------------------------------------------


def boot(tmp_path: Path, **cells: str) -> Path:
    """The rows of cycles.csv whose columns hold ``cells``."""
    lines = (DATA / "cycles.csv").read_text().splitlines()
    header = lines[0].split(",")
    kept = [x for x in lines[1:] if all(x.split(",")[header.index(k)] == v for k, v in cells.items())]
    path = tmp_path / "boot.csv"
    path.write_text("\n".join([lines[0], *kept]) + "\n")
    return path


def test_a_run_shows_the_prediction_with_and_without_the_boots_host_state(run: Run, tmp_path: Path) -> None:
    timings = boot(tmp_path, engine="0.5.14", configuration="default")
    keys = ("--set", "workload.concurrency=4", "--set", "workload.requests=4", "--json", tmp_path / "r.json")
    code, out, _ = run("run", "h200_dflash_0514_default", *keys, "--host-state-from", timings)
    assert code == 0
    result = json.loads((tmp_path / "r.json").read_text())
    known = result["conditioned"]
    assert known["host_state"] == pytest.approx(0.839, abs=0.005)
    assert known["read_from"] == "0.839, from run_batch of 0.5.14 default, replicate 1, at 4"
    assert known["cycle_us"]["mean"] < 0.99 * result["cycle_us"]["mean"]
    widths = [r["cycle_us"]["pi95"][1] - r["cycle_us"]["pi95"][0] for r in (result, known)]
    assert widths[1] < widths[0] / 2
    assert "cycle at host state 0.839" in out


def test_the_state_comes_from_a_section_that_the_policies_leave_without_a_wait(
    run: Run, tmp_path: Path
) -> None:
    timings = boot(tmp_path, engine="0.5.15", configuration="default", replicate="2")
    read = {}
    for lengths in ("none", "exact", "exact_deferred"):
        keys = (f"host_lengths={lengths}", "workload.concurrency=16", "workload.requests=16")
        code, _, _ = run(
            *("run", "h200_dflash", "--replications", 1, "--json", tmp_path / "r.json"),
            *(a for k in keys for a in ("--set", k)),
            *("--host-state-from", timings),
        )
        assert code == 0
        known = json.loads((tmp_path / "r.json").read_text())["conditioned"]
        read[lengths] = known["read_from"].split(", from ")[1].split()[0]
        assert known["host_state"] == pytest.approx(1.58, abs=0.05)
    assert read == {"none": "run_batch", "exact": "run_batch", "exact_deferred": "schedule"}


def test_a_state_nobody_can_read_is_refused(run: Run, tmp_path: Path) -> None:
    timings = boot(tmp_path, engine="0.5.14")
    code, _, err = run("run", "h200_dflash", "--host-state-from", timings)
    assert code == 2
    assert "boot.csv: engine: found 0.5.14; expected steady rows of 0.5.15" in err
    code, _, err = run("run", "toy_cN", "--host-state-from", timings)
    assert code == 2
    assert "state host_scale" in err


# -- predictions that stay --------------------------------------------------------------------------------------


def test_the_blind_predictions_are_as_they_were_made() -> None:
    made = {
        "blind.json": "21abfa014927e8440b44a7fbb45a30339b628b36a32fb5b45b74934ff6afdffe",
        "blind.csv": "1d978fae5153437c2bcdc94be9f619c9bc3324da2bcc538e8b8d2798223692cf",
        "blind.md": "cc40102b8eab7f5d33999e4087a87b6e6f459fcff5849a408dfde7b312232810",
    }
    for name, digest in made.items():
        content = (ROOT / "reports" / "h200_predictions" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name
