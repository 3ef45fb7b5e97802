"""What one run leaves on disk: cycles, contexts and sections of every loop pass, device segments where timed.

A *pass* is one turn of the loop, from one "receive" to the next. Durations are nanoseconds.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

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
    passes: list[Pass] = field(default_factory=list)
    #: device segments by name, microseconds, one entry a decode pass; empty unless timed
    segments_us: dict[str, list[float]] = field(default_factory=dict)

    def steady(self) -> list[int]:
        """Indices of full-batch decode passes, the first :data:`LEFT_OUT` left out."""
        full = [i for i, p in enumerate(self.passes) if not p.prefill and p.rows == self.concurrency]
        return full[LEFT_OUT:]

    def cycles_ns(self) -> list[int]:
        """From the start of one full-batch launch to the next, where no other pass lies between."""
        steady = set(self.steady())
        return [
            self.passes[i + 1].entered_ns - self.passes[i].entered_ns
            for i in sorted(steady)
            if i + 1 in steady
        ]

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
        return RunRecord(**{**data, "passes": [Pass(**p) for p in data["passes"]]})


def record_of(server: Server, log: SectionLog, concurrency: int) -> RunRecord:
    """The record of a finished run."""
    begin = log.laps[0][1]
    passes: list[Pass] = []
    launches = iter(server.launches)
    sections: dict[str, int] = {}
    previous = begin
    entered = 0
    finished = begin

    def close() -> None:
        if RUN_BATCH in sections:
            launched = next(launches)
            passes.append(
                Pass(len(launched.requests), launched.prefill, launched.context, entered, dict(sections))
            )
        sections.clear()

    for name, end in log.laps[1:]:
        if name == "receive":
            close()
        if name == RUN_BATCH:
            entered = end - begin
        if name == "process":
            finished = end
        sections[name] = sections.get(name, 0) + end - previous
        previous = end
    close()
    tokens = [server.tokens[i] for i in sorted(server.tokens)]
    digest = hashlib.sha256(repr(tokens).encode()).hexdigest()
    return RunRecord(concurrency, finished - begin, sum(map(len, tokens)), digest, passes)
