"""One iteration as it travels through the loop, and the places a worker announces on its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from gpu_validation.runtime.scratch import Group
from sim.serving.request import Batch


@dataclass(slots=True, eq=False)
class Step:
    """``number`` counts launches; buffers that alternate between steps use its parity."""

    number: int
    batch: Batch
    rows: int
    #: rows of the graph that runs it
    padded: int
    scratch: Group
    #: device, batch order
    pool_rows: Tensor
    lengths: Tensor
    fields: dict[str, Tensor] = field(default_factory=dict)
    #: positions that page tables must cover: a bound, or the longest length the host knows, plus the block
    width: int = 0
    #: longest committed length this step can have, from what the host knew when it prepared the step
    bound: int = 0
    copy_done: Any = None
    host_rows: list[int] = field(default_factory=list)


class Places(Protocol):
    """Called by a worker where it passes a place that policies act on; the words are those of step
    programs.
    """

    def first_use_of_host_lengths(self, step: Step) -> None:
        """Afterwards ``step.width`` is what the host may rely on."""

    def last_shared_read(self, step: Step) -> None:
        """From here on this forward reads no buffer that the schedule stream writes."""

    def publish(self, step: Step, new_lengths: Tensor, result: Tensor) -> None:
        """The new lengths [≥ rows] int32 and the result [≥ rows, result width] int32 are final."""

    def self_fence(self, step: Step) -> None:
        """Everything the worker's own fence must cover has been launched."""
