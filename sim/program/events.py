"""What to say of a wait that nobody will ever satisfy."""

from __future__ import annotations

from sim.errors import WaitError

#: event → who should have recorded it; events that programs name themselves have no entry
RECORDERS = {
    "publish_ready": "an operation of kind publish in the forward before it, prefills included; a program that "
    "publishes nothing, or nothing for an empty batch, leaves its waiters alone",
    "copy_done": "an operation of kind record with event copy_done in phase copy, after the result's copies",
    "result_ready": "an operation of kind record with event copy_done in phase copy, after the result's copies",
    "read_done": "an operation of kind record with event read_done, or the mark last_shared_read, in the forward",
    "self_fence": "the operation marked self_fence in the forward before it",
    "lengths_on_host": "the copy of the lengths in resolve",
}


def never_recorded(waiter: str, event: str) -> WaitError:
    """The error for ``waiter`` (an operation with its phase) when nothing recorded ``event`` before it."""
    who = RECORDERS.get(
        event, f"an operation of kind record with event {event}, earlier or in the iteration before"
    )
    return WaitError(
        f'{waiter} waits for event "{event}", which nothing recorded before it. Expected: {who}.'
    )
