"""Cuts a trace into decode iterations and folds the iterations of one call sequence into a typical one.

An iteration is a list of entries in host program order: runtime calls of consequence and the opening and closing
of annotations. Between two entries lies host work, described by its time and by what the profiler recorded in it
(operators and minor calls), because that is what profiling costs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median

from sim.errors import InputError, Problem
from sim.ingest.kineto import HOW_TO_RECORD, Activity, ActivityKind, Call, CallKind, Trace
from sim.ingest.sections import ITERATION_STARTS, with_sections

_BATCH = re.compile(r"\bbs=(\d+)")
#: digits; more are no batch
_LONGEST_BATCH = 6
#: a leading iteration is a transient of the profiler when its host time differs from the later median by this
TRANSIENT = 0.10
#: steady iterations a trace must have
FEWEST = 3


@dataclass(frozen=True)
class Entry:
    """One entry of one iteration; microseconds.

    ``gap``: host time since the previous entry ended; ``operators`` and ``minor`` count what was recorded in it.
    ``call``: duration of the runtime call itself. ``span``: first start to last end of its device activities.
    ``pitch``: from the start of its first activity to the start of the next activity on the same stream.
    ``lag``: from the end of the call to the start of the first activity. ``idle_before``: how long the stream had
    been idle when the first activity started. Device fields are zero where the call causes none.
    """

    kind: str
    label: str
    offset: float
    gap: float
    operators: float
    minor: float
    call: float = 0.0
    span: float = 0.0
    pitch: float = 0.0
    lag: float = 0.0
    idle_before: float = 0.0
    nodes: int = 0
    stream: tuple[int, int] = (-1, -1)
    activity: str = ""
    waits_on: int = -1


@dataclass(frozen=True)
class Iteration:
    index: int
    start: float
    length: float
    batch: int | None
    entries: list[Entry]
    #: device start and end of each entry's activities (its host time where it has none)
    device: list[tuple[float, float]]
    #: device start of the largest graph: cycles of traces are measured from target to target
    target_start: float
    #: device span of every graph, in order
    graphs: tuple[float, ...]

    @property
    def signature(self) -> tuple[tuple[str, str], ...]:
        """Kinds of calls and annotations in order; kernel names are left out, as they change with sizes."""
        return tuple(
            (e.kind, _BATCH.sub("", e.label) if e.kind in ("open", "close") else "") for e in self.entries
        )

    @property
    def host(self) -> float:
        """Host time without waits and graph launches, microseconds."""
        waits = (CallKind.SYNCHRONIZE, CallKind.GRAPH)
        return sum(e.gap + (0.0 if e.kind in waits else e.call) for e in self.entries)


@dataclass(frozen=True)
class TracedProgram:
    """The steady decode iteration of one trace: medians over its iterations, means if it is simulated."""

    trace: Trace
    batch: int
    #: the iterations used, transients and odd ones left out
    iterations: list[Iteration]
    entries: list[Entry]
    #: index of the first used iteration among all complete ones of the trace
    first: int
    notes: list[str] = field(default_factory=list)

    def times(self, iteration: int, entry: int) -> tuple[float, float]:
        """Device start and end of one entry of one used iteration."""
        return self.iterations[iteration].device[entry]

    @property
    def cycle(self) -> float:
        """Typical time from target start to target start of iterations that follow each other, microseconds."""
        pairs = pairwise(self.iterations)
        centre = centre_of(self.trace)
        return centre([b.target_start - a.target_start for a, b in pairs if b.index == a.index + 1])


def centre_of(trace: Trace) -> Callable[[Sequence[float]], float]:
    """Mean for simulated traces, whose costs are stated as means; median where a profiler makes outliers."""
    return fmean if trace.named else median


def split(trace: Trace) -> list[Iteration]:
    """All complete decode iterations of ``trace``, transients included.

    Raises:
        InputError: no complete iteration with a graph launch in it.
    """
    trace = with_sections(trace)
    starts = _starts(trace)
    following = _stream_neighbours(trace.activities)
    call_starts = [c.start for c in trace.calls]
    iterations = []
    for index, (begin, end) in enumerate(pairwise(starts)):
        calls = trace.calls[bisect_left(call_starts, begin) : bisect_left(call_starts, end)]
        graphs = [c for c in calls if c.kind is CallKind.GRAPH and c.activities]
        if not graphs:
            continue  # a prefill or an idle turn of the loop
        target = max(graphs, key=lambda c: (len(c.activities), _span(c)))
        entries, device = _entries(trace, calls, begin, end, following)
        iterations.append(
            Iteration(
                index=index,
                start=begin,
                length=end - begin,
                batch=_batch(trace, begin, end),
                entries=entries,
                device=device,
                target_start=target.activities[0].start,
                graphs=tuple(_span(c) for c in graphs),
            )
        )
    if not iterations:
        raise InputError(
            Problem(
                trace.path,
                f"{len(starts)} iteration starts and no complete decode iteration with a graph launch",
                "at least 4 complete decode iterations replayed from graphs",
                HOW_TO_RECORD,
            )
        )
    return iterations


def fold(trace: Trace, batch: int | None = None) -> TracedProgram:
    """The steady decode iteration of ``trace``: one call sequence, the typical value of every figure.

    Args:
        batch: rows, where the trace's annotations do not say.

    Raises:
        InputError: too few steady iterations, or no batch size known.
    """
    trace = with_sections(trace)
    every = split(trace)
    common, _ = Counter((i.signature, i.batch) for i in every).most_common(1)[0]
    same = [i for i in every if (i.signature, i.batch) == common]
    notes = []
    if len(same) < len(every):
        notes.append(
            f"{len(every) - len(same)} of {len(every)} iterations differ from the usual call sequence or batch "
            "(prefills, filters or merges between them) and were left out"
        )
    first = 0 if trace.named else transients(same)  # a simulation has no profiler
    steady = same[first:]
    if first:
        notes.append(f"the first {first} iterations are start-up transients of the profiler and were dropped")
    rows = common[1] if common[1] is not None else batch
    problems = []
    if rows is None:
        problems.append(
            Problem(
                trace.path,
                "no batch size in any annotation",
                "an annotation with bs=<rows>",
                "name the batch size in the file (…_c8.json.gz) or record with the engine's step annotations",
            )
        )
    if not any(b.index == a.index + 1 for a, b in pairwise(steady)) or len(steady) < FEWEST:
        problems.append(
            Problem(
                trace.path,
                f"{len(steady)} steady decode iterations of one call sequence",
                f"at least {FEWEST}, two of them in a row",
                HOW_TO_RECORD,
            )
        )
    if problems or rows is None:
        raise InputError(problems)
    return TracedProgram(trace, rows, steady, _typical(steady, centre_of(trace)), first, notes)


def transients(iterations: list[Iteration]) -> int:
    """How many leading iterations are slowed by the profiler's start-up (or cut short by it).

    The host's time and the cycle of an iteration are compared with the medians of the second half.
    """
    if len(iterations) < 4:
        return 0
    half = iterations[len(iterations) // 2 :]
    host = median(i.host for i in half)
    length = median(i.length for i in half)
    for n, i in enumerate(iterations[: len(iterations) // 2]):
        if abs(i.host / host - 1) < TRANSIENT and abs(i.length / length - 1) < TRANSIENT:
            return n
    return len(iterations) // 2


def _starts(trace: Trace) -> list[float]:
    names = {s.name for s in trace.spans}
    name = next((n for n in ITERATION_STARTS if n in names), None)
    return [s.start for s in trace.spans if s.name == name]


def batch_of(digits: str) -> int | None:
    """The rows that ``digits`` state, None where that is no number of rows."""
    return int(digits) or None if len(digits) <= _LONGEST_BATCH else None


def _batch(trace: Trace, begin: float, end: float) -> int | None:
    sizes = [
        size
        for s in trace.spans
        if begin <= s.start < end
        and (found := _BATCH.search(s.name)) is not None
        and (size := batch_of(found.group(1))) is not None
    ]
    return max(sizes) if sizes else None


def _stream_neighbours(activities: list[Activity]) -> dict[Activity, tuple[float, float]]:
    """For every activity: end of the previous and start of the next activity of its stream."""
    lanes: dict[tuple[int, int], list[Activity]] = defaultdict(list)
    for a in activities:
        lanes[a.stream].append(a)
    found = {}
    for lane in lanes.values():
        for n, a in enumerate(lane):
            before = lane[n - 1].end if n else a.start
            after = lane[n + 1].start if n + 1 < len(lane) else a.end
            found[a] = (before, after)
    return found


def _entries(
    trace: Trace, calls: list[Call], begin: float, end: float, following: dict[Activity, tuple[float, float]]
) -> tuple[list[Entry], list[tuple[float, float]]]:
    # (start, rank among equal times, end, kind, label, call): what ends at an instant comes before what begins
    # there, a call inside the annotation that opens with it, the iteration's end last.
    points: list[tuple[float, int, float, str, str, Call | None]] = [
        (end, 4, end, "close", "iteration", None)
    ]
    minor = []
    for c in calls:
        if c.kind is CallKind.MINOR:
            minor.append(c.start)
        else:
            points.append((c.start, 2, c.end, c.kind, _label(c), c))
    # Named calls need no annotations, whose ends may coincide with calls in any order.
    for s in [] if trace.named else trace.spans:
        if begin <= s.start < end:
            until = min(s.end, end)
            points.append((s.start, 1, s.start, "open", s.name, None))
            points.append((until, 0 if until > s.start else 3, until, "close", s.name, None))
    points.sort(key=lambda p: p[:2])
    entries = []
    times = []
    last = begin
    for start, _, stop, kind, label, call in points:
        count = bisect_left(trace.operators, start) - bisect_left(trace.operators, last)
        queries = bisect_left(minor, start) - bisect_left(minor, last)
        device: dict[str, float] = {}
        span = (start, stop)
        stream, activity, nodes = (-1, -1), "", 0
        if call is not None and call.activities:
            own = call.activities
            before, _ = following[own[0]]
            _, after = following[own[-1]]
            stream, activity, nodes = own[0].stream, own[0].name, len(own)
            span = (own[0].start, own[-1].end)
            device = {
                "span": own[-1].end - own[0].start,
                "pitch": after - own[0].start,
                "lag": own[0].start - stop,
                "idle_before": own[0].start - before,
            }
        entries.append(
            Entry(
                kind,
                label,
                start - begin,
                max(0.0, start - last),
                count,
                queries,
                stop - start,
                nodes=nodes,
                stream=stream,
                activity=activity,
                waits_on=-1 if call is None else call.waits_on,
                **device,
            )
        )
        times.append(span)
        last = max(last, stop)
    return entries, times


def _span(call: Call) -> float:
    return call.activities[-1].end - call.activities[0].start


def _label(call: Call) -> str:
    if call.operation:
        return call.operation
    if not call.activities:
        return call.kind.value
    first = call.activities[0]
    return "memset" if first.kind is ActivityKind.MEMSET else first.name


def _typical(iterations: list[Iteration], centre: Callable[[Sequence[float]], float]) -> list[Entry]:
    folded = []
    for column in zip(*(i.entries for i in iterations), strict=True):
        figures = {
            name: centre([getattr(e, name) for e in column])
            for name in (
                "offset",
                "gap",
                "operators",
                "minor",
                "call",
                "span",
                "pitch",
                "lag",
                "idle_before",
            )
        }
        folded.append(replace(column[0], **figures))
    return folded
