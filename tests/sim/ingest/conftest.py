"""Cuts of real traces (tools/cut_trace.py), whole and altered."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DATA = ROOT / "data" / "sglang_h200"
TRACES = Path(__file__).parent / "traces"

NEW_C1 = TRACES / "trace_0.5.15_default_c1.json.gz"
NEW_C32 = TRACES / "trace_0.5.15_default_c32.json.gz"
OLD_C1 = TRACES / "trace_0.5.14_default_c1.json.gz"
OLD_C32 = TRACES / "trace_0.5.14_plan_stream_c32.json.gz"

Events = list[dict[str, Any]]


def document(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return loaded


@pytest.fixture
def altered(tmp_path: Path) -> Callable[..., Path]:
    """Writes a trace whose events went through a function; the name keeps what it says of the trace."""

    def write(change: Callable[[Events], Events], of: Path = NEW_C1, name: str | None = None) -> Path:
        loaded = document(of)
        loaded["traceEvents"] = change(loaded["traceEvents"])
        path = tmp_path / (name or of.name.removesuffix(".gz"))
        path.write_text(json.dumps(loaded))
        return path

    return write
