#!/usr/bin/env python
"""Makes a long trace of a short one: its events again and again, later each time, with correlation ids of their own.

    python tools/repeat_trace.py TRACE OUT --copies 32

For measuring how long ``overlapsim ingest`` takes on large files; the copies join at the trace's ends, so one
iteration a copy is odd there and left out by ingest.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
#: numbers that tie events together: distinct in every copy
LINKS = ("correlation", "External id", "Ev Idx", "Record function id")


def repeated(events: list[Event], copies: int) -> Iterator[Event]:
    """Events without a duration once, the others ``copies`` times."""
    timed = [e for e in events if e.get("ph") == "X" and "ts" in e]
    yield from (e for e in events if e.get("ph") == "M")
    first = min(e["ts"] for e in timed)
    length = max(e["ts"] + e.get("dur", 0.0) for e in timed) - first + 100.0
    step = 1 + max(e["args"][k] for e in timed for k in LINKS if isinstance(e.get("args", {}).get(k), int))
    for copy in range(copies):
        for e in timed:
            args = {
                k: v + copy * step if k in LINKS and isinstance(v, int) and v else v
                for k, v in e.get("args", {}).items()
            }
            yield {**e, "ts": round(e["ts"] + copy * length, 3), **({"args": args} if args else {})}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--copies", type=int, required=True)
    options = parser.parse_args()
    raw = options.trace.read_bytes()
    document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    document["traceEvents"] = list(repeated(document["traceEvents"], options.copies))
    options.out.write_text(json.dumps(document, separators=(",", ":")))
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
