"""The request pool on the device and its slots on the host.

``req_to_token`` maps (pool row, position) to a KV slot. The scheduler side writes it (decode preparation and
prefill, on the schedule or plan stream), the forward reads it. Slots are handed out last in, first out; slot
0 belongs to padding. Beside it stand a few facts of a request that verification looks up by pool row.
"""

from __future__ import annotations

import torch

from gpu_validation.device.backend import Backend


class RequestPool:
    """``rows`` requests of up to ``width`` positions; one more row, the last, belongs to padding.

    Attributes
    ----------
    req_to_token [rows + 1, width] int32. prompt_lengths [rows + 1] int32.
    forced [rows + 1, outputs] int8: drafts to accept in a step that starts at this many generated tokens;
        −1: free.
    uniforms [rows + 1, outputs] float32: the draw for each generated token of sampled verification.
    """

    def __init__(self, backend: Backend, rows: int, width: int, outputs: int):
        device = backend.device
        self.rows, self.width, self.outputs = rows, width, outputs
        self.req_to_token = torch.zeros(rows + 1, width, dtype=torch.int32, device=device)
        self.prompt_lengths = torch.zeros(rows + 1, dtype=torch.int32, device=device)
        self.forced = torch.full((rows + 1, outputs), -1, dtype=torch.int8, device=device)
        self.uniforms = torch.zeros(rows + 1, outputs, dtype=torch.float32, device=device)


class SlotAllocator:
    """Free KV slots and which pool row holds which, as the host knows it.

    A row may begin with slots that it shares with others: a cached prefix, never given back.
    """

    def __init__(self, slots: int, rows: int):
        self._free = list(range(slots - 1, 0, -1))
        self._held: list[list[int]] = [[] for _ in range(rows)]
        self._shared: list[list[int]] = [[] for _ in range(rows)]

    @property
    def free(self) -> int:
        return len(self._free)

    def held(self, row: int) -> int:
        """Positions of a row that have a slot."""
        return len(self._shared[row]) + len(self._held[row])

    def positions(self, row: int) -> list[int]:
        """Slots of a row in order of position."""
        return self._shared[row] + self._held[row]

    def share(self, row: int, slots: list[int]) -> None:
        """A row without any begins with these."""
        self._shared[row] = slots

    def take(self, count: int) -> list[int]:
        """``count`` slots that belong to no row. Raises MemoryError when the pool is exhausted."""
        if count > len(self._free):
            raise MemoryError(f"{count} KV slots wanted, {len(self._free)} free")
        taken = self._free[-count:]
        del self._free[-count:]
        return taken

    def extend(self, row: int, count: int) -> list[int]:
        """``count`` more slots for a row. Raises MemoryError when the pool is exhausted."""
        taken = self.take(count)
        self._held[row] += taken
        return taken

    def give_back(self, row: int) -> None:
        self._free += self._held[row]
        self._held[row], self._shared[row] = [], []
