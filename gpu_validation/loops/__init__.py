"""The two scheduler loops on a real device: the same phases, in another order; the twin of
:mod:`sim.loops`.
"""

from __future__ import annotations

from gpu_validation.runtime.server import Server
from gpu_validation.runtime.step import Step


def overlapped(server: Server) -> None:
    """Launch forward i, then process result i − 1."""
    pending: Step | None = None
    while True:
        server.receive()
        server.barrier.at_loop_top()
        batch = server.schedule()
        if batch is None and pending is None and server.exhausted:
            return
        launched = None
        if batch is not None:
            launched = server.launch(batch)
        if pending is not None:
            server.process(pending)
        pending = launched


def synchronous(server: Server) -> None:
    """Launch forward i and process its result before anything else."""
    while True:
        server.receive()
        batch = server.schedule()
        if batch is None and server.exhausted:
            return
        if batch is not None:
            server.process(server.launch(batch))


def run(server: Server) -> None:
    """The loop that the server's policies ask for, to the last request."""
    server.lap("start")
    if server.policies.overlap:
        overlapped(server)
    else:
        synchronous(server)
    server.backend.synchronize()
