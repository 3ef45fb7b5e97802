"""Harmful or benign: what an unordered conflict can do to a result (semantics 4.3 and 4.4).

Harmful unless a rule below shows that nothing wrong can come of it.
"""

from __future__ import annotations

from enum import StrEnum

from sim.hazards.order import HazardKind, Operation
from sim.program.buffers import Access
from sim.program.step_program import Phase


class Severity(StrEnum):
    HARMFUL = "harmful"
    BENIGN = "benign"


class Reason(StrEnum):
    RECYCLED_ROW = "recycled_row"
    TOO_EARLY_EVENT = "too_early_event"
    FOREIGN_SLOTS = "foreign_slots"
    SWA_MAPPING = "swa_mapping"
    UNPUBLISHED = "unpublished"
    STAGING_REUSED = "staging_reused"
    OVERWRITTEN = "overwritten"
    SAME_CONTENT = "same_content"
    MASKED_COLUMNS = "masked_columns"
    DELAYED_ONLY = "delayed_only"


EXPLANATIONS = {
    Reason.RECYCLED_ROW: "the row of a finished request is given to a new one while a forward still reads it for "
    "the old: that forward gathers slots of the new owner and writes KV to them",
    Reason.TOO_EARLY_EVENT: "read_done is recorded before this read, so the barrier lets a new owner's row in "
    "while the old one is still read",
    Reason.FOREIGN_SLOTS: "KV slots of a finished request are filled for a new one on another stream while a "
    "forward still writes them for the old",
    Reason.SWA_MAPPING: "the sliding-window mapping changes under a forward that translates with it: a live "
    "request attends to foreign slots",
    Reason.UNPUBLISHED: "read before what it needs is sure to be written: a live request computes with old values",
    Reason.STAGING_REUSED: "memory is filled again before the copy queued from it is sure to have run",
    Reason.OVERWRITTEN: "written anew while an earlier access may still be to come",
    Reason.SAME_CONTENT: "result processing rewrites a live row with slots that hold the same content",
    Reason.MASKED_COLUMNS: "a live row's new columns lie beyond what the forward uses: wider reads are masked by "
    "length",
    Reason.DELAYED_ONLY: "one event serves two iterations and was recorded again: the waiter goes on a step late, "
    "with nothing corrupted",
}


def judge(
    kind: HazardKind,
    first: Operation,
    second: Operation,
    access: Access,
    same_owner: bool,
    waits_for_read_done: bool,
) -> tuple[Severity, Reason]:
    """``first`` was issued before ``second``; ``access`` is the first one's, ``same_owner`` whether both act for
    one request (always true of buffers without rows)."""
    if not same_owner and access.by_slot:
        return Severity.HARMFUL, Reason.FOREIGN_SLOTS
    if not same_owner and access.buffer == "req_to_token":
        early = waits_for_read_done and first.after_read_done and kind is HazardKind.WRITE_AFTER_READ
        return Severity.HARMFUL, Reason.TOO_EARLY_EVENT if early else Reason.RECYCLED_ROW
    if access.buffer == "swa_map":
        return Severity.HARMFUL, Reason.SWA_MAPPING
    if access.buffer == "req_to_token" and kind is not HazardKind.WRITE_AFTER_WRITE:
        writer = second if kind is HazardKind.WRITE_AFTER_READ else first
        if writer.phase is Phase.PROCESS:
            return Severity.BENIGN, Reason.SAME_CONTENT
        if kind is HazardKind.WRITE_AFTER_READ:
            return Severity.BENIGN, Reason.MASKED_COLUMNS
    if kind is HazardKind.READ_BEFORE_PUBLISH:
        return Severity.HARMFUL, Reason.UNPUBLISHED
    if kind is HazardKind.REUSE_BEFORE_COPY:
        return Severity.HARMFUL, Reason.STAGING_REUSED
    return Severity.HARMFUL, Reason.OVERWRITTEN
