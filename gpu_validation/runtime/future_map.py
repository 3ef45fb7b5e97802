"""What one forward leaves for the next, on the device: lengths and relayed fields, by pool row and by
reference.

*Publish* scatters the new lengths as soon as they are known and records ``publish_ready``; *stash* scatters
the relayed fields at the end of the forward; *resolve* (a relay policy) reads them. Both also leave their
values in batch order in a ring of two, for the relay that hands over by reference. A private stream copies
the lengths to a pinned mirror for host-length policies that want them exactly.

Knows no algorithm: fields come from what the worker declares.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from gpu_validation.device.backend import Backend, Stream

#: what a slot holds after it was read, in debug mode; lengths and tokens are never negative
POISON = -7777


@dataclass(frozen=True)
class Field:
    """One relayed value a row: ``width`` elements of ``dtype``."""

    name: str
    width: int
    dtype: torch.dtype


class FutureMap:
    """``rows`` pool rows (one more for padding), up to ``batch`` rows a step."""

    def __init__(
        self,
        backend: Backend,
        kernels: ModuleType,
        fields: tuple[Field, ...],
        rows: int,
        batch: int,
        result_width: int,
        pinned: bool,
        debug: bool = False,
    ):
        device = backend.device
        self.backend, self.kernels, self.fields, self.debug = backend, kernels, fields, debug
        self.result_width = result_width
        self.lengths_by_row = torch.zeros(rows + 1, dtype=torch.int32, device=device)
        self.by_row = {f.name: torch.zeros(rows + 1, f.width, dtype=f.dtype, device=device) for f in fields}
        self.carried_lengths = [torch.zeros(batch, dtype=torch.int32, device=device) for _ in range(2)]
        self.carried = [
            {f.name: torch.zeros(batch, f.width, dtype=f.dtype, device=device) for f in fields}
            for _ in range(2)
        ]
        self.gathered_lengths = [torch.zeros(batch, dtype=torch.int32, device=device) for _ in range(2)]
        self.gathered = {f.name: torch.zeros(batch, f.width, dtype=f.dtype, device=device) for f in fields}
        self.results = [torch.zeros(batch, result_width, dtype=torch.int32, device=device) for _ in range(2)]
        self.results_on_host = [
            backend.host_buffer((batch, result_width), torch.int32, pinned) for _ in range(2)
        ]
        self.mirror = backend.host_buffer((rows + 1,), torch.int32, pinned)
        self.publish_ready = backend.event()
        self.mirror_ready = backend.event()
        if debug:
            self._poison_everything()

    def _poison_everything(self) -> None:
        for buffer in (self.lengths_by_row, *self.by_row.values()):
            buffer.fill_(POISON)

    def publish(self, new_lengths: Tensor, result: Tensor, pool_rows: Tensor, rows: int, step: int) -> None:
        """On the current (forward) stream: lengths and the step's result; the caller records the event."""
        self.backend.launch(
            self.kernels.publish,
            new_lengths,
            result,
            pool_rows,
            rows,
            self.result_width,
            self.lengths_by_row,
            self.carried_lengths[step % 2],
            self.results[step % 2],
        )

    def stash(self, field: Field, source: Tensor, pool_rows: Tensor, rows: int, step: int) -> None:
        """On the current (forward) stream: one relayed field, ``source`` [at least rows, width]."""
        self.backend.launch(
            self.kernels.scatter_rows,
            source,
            pool_rows,
            rows,
            field.width,
            self.by_row[field.name],
            self.carried[step % 2][field.name],
        )

    def gather_lengths(self, pool_rows: Tensor, rows: int, step: int) -> Tensor:
        """On the current stream, which has waited for ``publish_ready``: lengths in batch order."""
        out = self.gathered_lengths[step % 2]
        self.backend.launch(self.kernels.gather_rows, self.lengths_by_row, pool_rows, rows, 1, out)
        return out

    def gather_field(self, field: Field, pool_rows: Tensor, rows: int) -> Tensor:
        """On the current (forward) stream: a relayed field in batch order."""
        out = self.gathered[field.name]
        self.backend.launch(
            self.kernels.gather_rows, self.by_row[field.name], pool_rows, rows, field.width, out
        )
        if self.debug:
            self.backend.launch(self.kernels.poison_rows, self.by_row[field.name], pool_rows, rows, POISON)
        return out

    def poison_lengths(self, pool_rows: Tensor, rows: int, stream: Stream) -> None:
        """Debug only, after every reader of this step: lengths must be published again before the next
        read.
        """
        stream.wait_event(self.mirror_ready)
        self.backend.launch(self.kernels.poison_rows, self.lengths_by_row, pool_rows, rows, POISON)
