"""The stretch of decoding that a steady run of ``data/sglang_h200`` averages over, as scenario keys.

The cycle grows with the context, so a prediction must look at the same iterations. The data set states them for each
concurrency, alike in all configurations because all saw the same acceptances: ``full_batch_cycles`` intervals after
the first five, at ``accepted_per_step`` tokens a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from sim.ingest.device import DROPPED
from sim.ingest.timings import Row

#: prompt tokens of every request of the data set
PROMPT = 128


@dataclass(frozen=True)
class Window:
    """``cycles`` full-batch intervals at ``tokens_per_step`` committed tokens a step and request."""

    concurrency: int
    cycles: int
    tokens_per_step: float

    def keys(self) -> dict[str, object]:
        """Scenario keys of a run whose full-batch cycles are exactly these: all requests alike, none lucky."""
        steps = self.cycles + DROPPED
        accepted = self._accepted(steps + 1)
        return {
            "workload.concurrency": self.concurrency,
            "workload.requests": self.concurrency,
            "workload.prompt_tokens": PROMPT,
            "workload.output_tokens": 1 + sum(a + 1 for a in accepted[:steps]),
            "acceptance": {"model": "recorded", "values": [self._by_position(accepted)]},
        }

    def _accepted(self, steps: int) -> list[int]:
        """Accepted drafts of each step, spread evenly: the mean over any stretch is the mean of all."""
        ends = [int(k * self.tokens_per_step + 0.5) for k in range(steps + 1)]
        return [b - a - 1 for a, b in pairwise(ends)]

    def _by_position(self, accepted: list[int]) -> list[int]:
        """A step may start at any position of the stretch that the step before it ends in."""
        return [a for a in accepted for _ in range(a + 1)]


def windows(rows: list[Row]) -> list[Window]:
    """One window a concurrency, from steady rows. Raises ValueError if rows of one concurrency differ."""
    found: dict[int, Window] = {}
    for row in rows:
        window = Window(row.batch, round(row["full_batch_cycles"]), row["accepted_per_step"])
        if found.setdefault(row.batch, window) != window:
            raise ValueError(f"rows at concurrency {row.batch} saw different iterations")
    return [found[c] for c in sorted(found)]
