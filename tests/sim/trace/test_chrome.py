"""The Perfetto file: lanes for the host and each stream, every arrow inside slices at both ends."""

from __future__ import annotations

import bisect
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sim.config.loader import load_resolved
from sim.run import simulate


def traced(path: Path, scenario: str) -> list[dict[str, Any]]:
    simulate(load_resolved(scenario, {}), trace=path)
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


@pytest.mark.parametrize("scenario", ["toy_cP", "toy_dT", "toy_eagle", "toy_none"])
def test_every_arrow_starts_and_ends_inside_a_slice_of_its_lane(tmp_path: Path, scenario: str) -> None:
    events = traced(tmp_path / "t.json", scenario)
    slices: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for e in events:
        if e["ph"] == "X" and e["cat"] != "user_annotation":
            slices[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for lane in slices.values():
        lane.sort()
    arrows: dict[tuple[str, Any], dict[str, dict[str, Any]]] = defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            assert e["ph"] not in arrows[e["cat"], e["id"]], "an arrow has one start and one end"
            arrows[e["cat"], e["id"]][e["ph"]] = e
    assert arrows
    for key, ends in arrows.items():
        assert set(ends) == {"s", "f"}, key
        assert ends["s"]["ts"] <= ends["f"]["ts"], key
        for end in ends.values():
            lane = slices[end["pid"], end["tid"]]
            i = bisect.bisect_right(lane, (end["ts"], float("inf"))) - 1
            assert i >= 0, (key, end)
            assert lane[i][0] <= end["ts"] <= lane[i][1], (key, end)


def test_lanes_are_named_once_and_only_if_something_runs_on_them(tmp_path: Path) -> None:
    events = traced(tmp_path / "t.json", "toy_dF")
    named = [e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"]
    assert named == ["scheduler thread", "stream 7: forward", "stream 17: schedule", "stream 20: copy"]


def test_a_name_that_ends_in_gz_is_compressed_and_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        traced(tmp_path / name, "toy_dF")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
