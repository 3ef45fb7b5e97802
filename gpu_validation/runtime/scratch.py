"""Host and device buffers of decode preparation, handed to the device in one copy a step.

A group is a pair of equally large int32 buffers, one on the host (pinned where possible) and one on the
device. Groups form a ring of two: step i + 2 writes the group of step i, whose copy is over because the host
has waited for result i by then (run-ahead depth one). The buffers of a ring grow together, and only ever
grow.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu_validation.device.backend import Backend

#: lists at the head of a group, one entry a row: pool row, first column, count, offset, length
LISTS = 5


class Group:
    """``lists`` [LISTS, rows] and ``slots`` [the rest] are views of ``host``; ``on_device`` has the same
    layout.
    """

    def __init__(self, backend: Backend, rows: int, slots: int, pinned: bool):
        size = LISTS * rows + slots
        self.rows = rows
        self.host = backend.host_buffer((size,), torch.int32, pinned)
        self.on_device = torch.zeros(size, dtype=torch.int32, device=backend.device)
        flat: NDArray[np.int32] = self.host.numpy()
        self.lists = flat[: LISTS * rows].reshape(LISTS, rows)
        self.slots = flat[LISTS * rows :]
        self.pool_rows: Tensor = self.on_device[:rows]
        self.lengths: Tensor = self.on_device[4 * rows : 5 * rows]


class ScratchRing:
    """Two groups for up to ``rows`` rows with ``slots_per_row`` new slots each."""

    def __init__(self, backend: Backend, rows: int, slots_per_row: int, pinned: bool):
        self._backend, self._pinned = backend, pinned
        self._slots_per_row = slots_per_row
        self._allocate(rows)

    def _allocate(self, rows: int) -> None:
        self.rows = rows
        self._groups = [
            Group(self._backend, rows, rows * self._slots_per_row, self._pinned) for _ in range(2)
        ]

    def group(self, step: int, rows: int, slots: int = 0) -> Group:
        """The group of step number ``step``, large enough for ``rows`` rows and ``slots`` slots in all.

        Growing waits for the device, since work in flight may still read the old buffers.
        """
        needed = max(rows, -(-slots // self._slots_per_row))
        if needed > self.rows:
            self._backend.synchronize()
            self._allocate(max(needed, 2 * self.rows))
        return self._groups[step % 2]
