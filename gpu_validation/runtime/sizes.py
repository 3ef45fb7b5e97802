"""How large the buffers of a run are; knows nothing of devices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """``rows`` requests at once, each of at most ``prompt`` + ``output`` tokens."""

    rows: int
    prompt: int
    output: int
    graph_batches: tuple[int, ...]

    def width(self, block: int) -> int:
        """Positions of a pool row: the last request may overshoot by a block, and two more are reserved
        ahead.
        """
        return -(-(self.prompt + self.output + 4 * block) // 64) * 64
