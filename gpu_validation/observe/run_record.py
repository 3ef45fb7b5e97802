"""What one run leaves on disk: cycles, contexts and sections of every loop pass, device segments where timed.

A *pass* is one turn of the loop, from one "receive" to the next. Durations are nanoseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gpu_validation.observe.host_speed import witnessed_us
from gpu_validation.observe.sections import RUN_BATCH, SectionLog
from gpu_validation.runtime.server import Server

#: full-batch decode passes left out at the start of a run, as in the simulator's cycle
LEFT_OUT = 5


@dataclass
class Pass:
    rows: int
    prefill: bool
    context: float
    #: when run_batch was entered, since the start of the run
    entered_ns: int
    sections: dict[str, int]


@dataclass
class RunRecord:
    """``steady``: passes of full decode batches after the first few; ``cycles_ns[k]`` from pass steady[k] to the
    next pass, only where that is a full decode batch too."""

    concurrency: int
    duration_ns: int
    output_tokens: int
    #: digest of all output tokens: equal between variants that must commit the same
    tokens_sha256: str
    #: digest of the tokens committed when the first request finished: until then batches are alike in both loops
    full_sha256: str
    passes: list[Pass] = field(default_factory=list)
    #: device segments of the last passes by name, microseconds: of all where prefills are timed; empty unless timed
    segments_us: list[dict[str, float]] = field(default_factory=list)

    def steady(self) -> list[int]:
        """Indices of full-batch decode passes, the first :data:`LEFT_OUT` left out."""
        return [i for i, p in enumerate(self.passes) if not p.prefill and p.rows == self.concurrency][
            LEFT_OUT:
        ]

    def segments(self, i: int) -> dict[str, float]:
        """Device segments of pass ``i``; forwards launched before the first that was timed have none."""
        at = i - (len(self.passes) - len(self.segments_us))
        return self.segments_us[at] if at >= 0 else {}

    def cycles_ns(self) -> list[int]:
        """From the start of one full-batch launch to the next, where no other pass lies between."""
        steady = set(self.steady())
        return [
            self.passes[i + 1].entered_ns - self.passes[i].entered_ns
            for i in sorted(steady)
            if i + 1 in steady
        ]

    def witness_us(self, names: Sequence[str]) -> list[float]:
        """The host's speed in each of :meth:`cycles_ns`: microseconds of the sections ``names`` behind its launch."""
        steady = set(self.steady())
        return [witnessed_us(self.passes[i].sections, names) for i in sorted(steady) if i + 1 in steady]

    def contexts(self) -> list[float]:
        """Mean committed tokens a request at each of :meth:`cycles_ns`."""
        steady = set(self.steady())
        return [self.passes[i].context for i in sorted(steady) if i + 1 in steady]

    @property
    def throughput_tok_s(self) -> float:
        return self.output_tokens / self.duration_ns * 1e9

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> RunRecord:
        known = {f.name for f in fields(Pass)}  # older records hold more
        passes = [Pass(**{k: v for k, v in p.items() if k in known}) for p in data["passes"]]
        return RunRecord(**{**data, "passes": passes})


@dataclass
class _Turn:
    """One turn of the loop; ``entered`` stays None where nothing was launched."""

    entered: int | None = None
    sections: dict[str, int] = field(default_factory=dict)


def record_of(server: Server, log: SectionLog, concurrency: int) -> RunRecord:
    """The record of a finished run."""
    begin = finished = previous = log.laps[0][1]
    turns: list[_Turn] = []
    last = ""
    for name, end in log.laps[1:]:
        if name == "receive":
            turns.append(_Turn())
        turn = turns[-1]
        if name == RUN_BATCH:  # a mark; the moment since the section before belongs to that one
            turn.entered = end - begin
        else:
            last = name
        turn.sections[last] = turn.sections.get(last, 0) + end - previous
        previous = end
        if name == "process" and len(turns) - 1 <= server.last_finish:  # what is processed later is nobody's
            finished = end
    launched = [turn for turn in turns if turn.entered is not None]
    tokens = [server.tokens[i] for i in sorted(server.tokens)]
    return RunRecord(
        concurrency,
        finished - begin,
        sum(map(len, tokens)),
        _digest(tokens),
        _digest(server.tokens_at_first_finish),
        [
            Pass(
                len(launch.requests),
                launch.prefill,
                launch.context,
                turn.entered or 0,
                turn.sections,
            )
            for turn, launch in zip(launched, server.launches, strict=True)
        ],
    )


def _digest(tokens: list[list[int]]) -> str:
    return hashlib.sha256(repr(tokens).encode()).hexdigest()
