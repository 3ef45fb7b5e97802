#!/usr/bin/env python
"""Cuts a few iterations out of an engine's trace, small enough to be kept as a test.

    python tools/cut_trace.py TRACE OUT --iterations 0 9 [--graph-nodes 8]

Keeps the host events of the iterations asked for, the device activities they caused (of a graph the first, the last
and a few between, so that spans stay) and of the arguments only what timing needs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

START = "scheduler.recv_requests"
HOST = ("cpu_op", "user_annotation")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def cut(document: dict[str, Any], first: int, last: int, nodes: int) -> dict[str, Any]:
    """The document with iterations ``first`` to ``last`` − 1; a last start is kept to end the last of them."""
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    starts = sorted(e["ts"] for e in events if e["name"] == START)
    begin, end = starts[first], starts[last]
    host = [e for e in events if _is_host(e) and begin <= e["ts"] < end]
    closing = [e for e in events if e["name"] == START and e["ts"] == end]
    asked = {e["args"].get("correlation") for e in host if "correlation" in e.get("args", {})}
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        if e.get("cat") in DEVICE and e["args"].get("correlation") in asked:
            groups[e["args"]["correlation"]].append(e)
    device = [e for group in groups.values() for e in _thinned(sorted(group, key=lambda e: e["ts"]), nodes)]
    kept = [_bare(e) for e in sorted([*host, *closing, *device], key=lambda e: e["ts"])]
    return {"deviceProperties": document.get("deviceProperties", [])[:1], "traceEvents": kept}


def _is_host(event: dict[str, Any]) -> bool:
    category = event.get("cat", "")
    return category in HOST or category.endswith(("runtime", "driver"))


def _thinned(group: list[dict[str, Any]], nodes: int) -> list[dict[str, Any]]:
    """A graph's share of its nodes, first and last among them; what is no graph stays."""
    if len(group) < 20:
        return group
    step = max(1, len(group) // nodes)
    return [*group[:-1:step], group[-1]]


def _bare(event: dict[str, Any]) -> dict[str, Any]:
    kept = {k: event[k] for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
    kept["name"] = kept["name"][:64]
    args = {k: event["args"][k] for k in ("correlation", "stream") if k in event.get("args", {})}
    return kept | ({"args": args} if args else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--iterations", type=int, nargs=2, default=(0, 9), metavar=("FIRST", "END"))
    parser.add_argument("--graph-nodes", type=int, default=8)
    options = parser.parse_args()
    document = json.loads(gzip.decompress(options.trace.read_bytes()))
    text = json.dumps(cut(document, *options.iterations, options.graph_nodes), separators=(",", ":"))
    options.out.write_bytes(gzip.compress(text.encode(), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
