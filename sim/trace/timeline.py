"""Records as text: one line an operation, in host order; what golden timelines are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.trace.record import HOST_LANE, Record


def _number(ns: int) -> str:
    us = ns / 1000
    return f"{us:.0f}" if us == int(us) else f"{us:.3f}"


def lines(records: Sequence[Record]) -> Iterator[str]:
    """``iteration  lane  start–end  operation`` with what an idle lane waited for; times in µs.

    Host records of launches are left out: the device line shows when the launch ended (``@``).
    """
    iteration = None
    for r in records:
        if r.act in ("launch", "record") and r.lane == HOST_LANE:
            continue
        if r.iteration != iteration:
            iteration = r.iteration
            yield f"-- iteration {iteration}"
        span = f"{_number(r.start):>6} {_number(r.end):>6}"
        if r.act == "event":
            yield f"{r.lane:>9} {_number(r.start):>6}        record {r.event}"
        elif r.lane == HOST_LANE:
            what = f"{r.act} {r.event}" if r.event else r.name
            yield f"{r.lane:>9} {span} {what}"
        else:
            idle = f"  (idle: {r.cause})" if r.cause else ""
            yield f"{r.lane:>9} {span} {r.name} @{_number(r.issued)}{idle}"
