"""SGLang's DFLASH worker, release by release: what its traces show, what they do not, and what it declares.

The calls of a decode iteration are in :mod:`sim.ingest.sglang_dflash_rows`.
"""

from __future__ import annotations

from sim.capabilities import (
    Capabilities,
    Carry,
    HostLengthNeed,
    LengthSource,
    PrepStream,
    ReadEnd,
    WriteFence,
)
from sim.ingest.sglang_common import (
    ASSUMED,
    PROMPT,
    F,
    changed_batch,
    op,
    prefill_until_publish,
    queued_and_processed,
)
from sim.ingest.sglang_dflash_rows import decode_rows
from sim.ingest.template import Template
from sim.program.step_program import Kind, Operation, Phase, Speculation, StreamName

BLOCK = 16
SPECULATION = Speculation(kind="block", block_size=BLOCK, min_block_size=2, max_block_size=32)
#: the older release's own arithmetic of a safe upper bound, which the policy `bound` inserts
BOUND_US = 4.0


def _prefill(v15: bool, label: str) -> tuple[Operation, ...]:
    """Prefill (semantics 1.10, 2.7): the host builds device tensors from lists after the target forward was enqueued,
    which waits for it."""
    own = "" if v15 else f".{label}"
    copies = StreamName.COPY if v15 else F
    join = (op(Phase.COPY, "copy.join", Kind.WAIT, stream=copies, on=F),) if v15 else ()
    return (
        *prefill_until_publish(label, f"dflash.publish{own}"),
        op(Phase.FORWARD, "prefill.lists_to_device", Kind.SYNCHRONIZE, on=F),
        op(
            Phase.FORWARD,
            "prefill.append",
            Kind.KERNEL,
            stream=F,
            cost="prefill.append",
            host=f"host.{label}.tail",
            share=0.9,
            writes=("draft_kv[0:prompt]",),
        ),
        op(
            Phase.FORWARD,
            "stash",
            Kind.STASH,
            stream=F,
            cost=f"dflash.stash{own}",
            host=f"host.{label}.tail",
            share=0.1,
            writes=("future_map.verified_id[rows]",),
        ),
        *join,
        op(Phase.COPY, "copy.tokens", Kind.COPY, stream=copies, cost="dflash.copy.tokens", direction="d2h"),
        op(Phase.COPY, "copy_done", Kind.RECORD, stream=copies, event="copy_done"),
        op(Phase.COPY, "copy.finish", Kind.HOST, cost=f"host.{label}.copy", share=0.5),
        *queued_and_processed(label, (PROMPT, "allocator")),
    )


def _template(v15: bool) -> Template:
    label = "v0515" if v15 else "v0514"
    switch = Operation(
        phase=Phase.PREPARE,
        name="prepare.plan_switch",
        kind=Kind.HOST,
        cost=f"host.{label}.plan_switch",
        when=("plan_stream",),
    )
    return Template(
        algorithm="dflash",
        engine="sglang-0.5.15" if v15 else "sglang-0.5.14",
        label=label,
        description="block drafting with a five-layer drafter; "
        + (
            "unified relay through the FutureMap, head folded into the draft graph, results on a copy stream"
            if v15
            else "direct carry, eager head, own fence verify_done, results on the forward stream"
        ),
        rows=decode_rows(v15),
        capabilities=Capabilities(
            length_source=LengthSource.PUBLISHED,
            host_length_need=HostLengthNeed.NONE if v15 else HostLengthNeed.BOUND,
            relay_schema=("verified_id",),
            carry=Carry.BY_ROW if v15 else Carry.BY_REF_IF_UNCHANGED,
            read_end=ReadEnd.PRE_REPLAY,
            write_fence=WriteFence.SCHEDULER if v15 else WriteFence.SELF,
            decode_prep=PrepStream.SCHEDULE,
            consumes_host_lengths=not v15,
        ),
        speculation=SPECULATION,
        admission_min_free="refill_batching",
        changed=changed_batch(v15),
        optional={} if v15 else {"prepare.lengths": switch},
        prefill=_prefill(v15, label),
        bound_us=0.0 if v15 else BOUND_US,
        assumed=ASSUMED,
    )


V0515, V0514 = _template(True), _template(False)
TEMPLATES = {t.engine: t for t in (V0515, V0514)}
