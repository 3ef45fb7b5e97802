"""Whatever a trace holds, the reader answers with a result or with an InputError, never with anything else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.ingest.pipeline import ingest
from tests.sim.ingest.conftest import OLD_C1, document

#: the base document is shared: no test changes it in place
BASE = document(OLD_C1)
FILES = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([10**400, -(10**400)]),  # no float holds them
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def answers(path: Path) -> None:
    refused: InputError | None = None
    try:
        result = ingest([path])
    except InputError as error:
        refused = error
    if refused is None:
        assert result.program.operations
        assert result.summary.lines()
    else:
        assert refused.problems
        assert all(p.where and p.expected for p in refused.problems)


@FILES
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    answers(path)


@FILES
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_damaged_bytes_of_a_real_file(tmp_path: Path, seed: int, damages: int) -> None:
    draw = random.Random(seed)
    raw = bytearray(OLD_C1.read_bytes() if seed % 2 else gzip.decompress(OLD_C1.read_bytes()))
    for _ in range(damages):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    path = tmp_path / "trace.json"
    path.write_bytes(bytes(raw))
    answers(path)


@FILES
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(BASE["traceEvents"]) - 1),
            st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]),
            ODD,
        ),
        min_size=1,
        max_size=12,
    )
)
def test_odd_values_in_real_events(tmp_path: Path, changes: list[tuple[int, str, Any]]) -> None:
    events = list(BASE["traceEvents"])
    for index, key, value in changes:
        events[index] = {**events[index], key: value}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    answers(path)


@FILES
@given(st.integers(0, 2**32), st.floats(0.001, 0.6))
def test_real_events_with_some_missing(tmp_path: Path, seed: int, share: float) -> None:
    draw = random.Random(seed)
    events = [e for e in BASE["traceEvents"] if draw.random() > share]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    answers(path)


@FILES
@given(ODD)
def test_odd_documents(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": value, "deviceProperties": value}))
    answers(path)
