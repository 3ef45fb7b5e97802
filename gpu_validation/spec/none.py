"""No speculation: one token a step. The host knows every length, so no event is published."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_validation.device.backend import Stream
from gpu_validation.runtime.future_map import Field
from gpu_validation.runtime.step import Step
from gpu_validation.spec.base import LAST_SHARED_READ, Worker, graph, kernel, publish, stash
from sim.capabilities import Capabilities, Carry, HostLengthNeed, LengthSource, ReadEnd
from sim.program.step_program import Mark, Operation

TOKEN = Field("token", 1, torch.int64)


class NoSpeculation(Worker):
    name = "none"
    kind = "none"
    fields = (TOKEN,)
    capabilities = Capabilities(
        length_source=LengthSource.HOST_KNOWN,
        host_length_need=HostLengthNeed.NONE,
        relay_schema=("token",),
        carry=Carry.BY_ROW,
        read_end=ReadEnd.PRE_REPLAY,
        consumes_host_lengths=False,
    )

    def capture(self, stream: Stream) -> None:
        self._decode = self.graphs(stream, self._decode_body)

    def _decode_body(self, batch: int) -> None:
        self.verify_forward(batch)
        self.accept(batch)

    def forward(self, step: Step) -> None:
        self.verify.fill(step)
        self.lap("decode.metadata")
        self.places.last_shared_read(step)
        self._tokens(step)
        self.lap("decode.tokens")
        self._decode[step.padded].replay()
        self.lap("decode")
        self.places.publish(step, self.new_lengths, self.result)

    def _tokens(self, step: Step) -> None:
        self.setting.backend.launch(
            self.kernels.block_tokens, step.fields["token"], 1, step.rows, step.padded, 1, 0, self.block_ids
        )

    def relayed(self) -> dict[str, Tensor]:
        return {"token": self.bonus}

    def operations(self) -> list[Operation]:
        return [
            kernel("decode.metadata", marks=LAST_SHARED_READ, reads=("req_to_token[0:seq+1]",)),
            kernel("decode.tokens"),
            graph("decode", marks=(Mark.TARGET,)),
            publish(),
            stash("stash.token"),
        ]
