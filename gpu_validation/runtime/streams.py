"""The streams of an engine. In the synchronous loop all names mean one stream."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_validation.device.backend import Backend, Stream


@dataclass(frozen=True)
class Streams:
    schedule: Stream
    forward: Stream
    copy: Stream
    d2h: Stream
    plan: Stream

    @staticmethod
    def separate(backend: Backend) -> Streams:
        return Streams(*(backend.stream(name) for name in ("schedule", "forward", "copy", "d2h", "plan")))

    def merged(self) -> Streams:
        """Everything on the forward stream."""
        return Streams(*(self.forward,) * 5)
