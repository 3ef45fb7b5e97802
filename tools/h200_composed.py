"""Step programs that the data set does not measure, composed from the pieces it does.

The order of operations is that of the engine's source (semantics 1.4, 1.5, 1.9 and 2.4 to 2.6); host sections and
seam kernels are DFLASH's, taken whole or in shares, and graphs are scaled by layers, tokens and vocabulary. Every
program and every cost here has status ``assumed`` and says why.
"""

from __future__ import annotations

from typing import Any

from h200_composed_costs import CHAIN_BLOCK, LOOKUP_BLOCK

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
    LENGTHS,
    PROMPT,
    F,
    S,
    op,
    polled,
    prefill_until_publish,
    queued_and_processed,
)
from sim.program.step_program import Kind, Mark, Operation, Phase, Speculation, StepProgram, StreamName

PREP = StreamName.PREP
READS_VERIFY = ("req_to_token[0:seq+B]",)


def _kernel(
    name: str, cost: str, host: str, share: float, kind: Kind = Kind.KERNEL, **more: Any
) -> Operation:
    return op(Phase.FORWARD, name, kind, stream=F, cost=cost, host=host, share=share, **more)


def _opening(label: str, changed: list[Operation], host_known: bool, stashes: bool) -> list[Operation]:
    """Up to the forward's first kernel, as DFLASH's newer release without its watermark copies.

    A worker that stashes nothing gathers nothing at the forward's entry (semantics 1.9).
    """
    gather = op(
        Phase.ENTER,
        "enter.gather",
        Kind.KERNEL,
        stream=F,
        cost="relay.gather_tokens",
        host=f"host.{label}.gather_tokens" if label == "v0515" else "host.v0515.gather_tokens",
        when=("gathered",),
        reads=("future_map.tokens[rows]",),
    )
    return [
        *polled(label),
        *changed,
        op(
            Phase.PREPARE,
            "prepare.loop",
            Kind.HOST,
            cost=f"host.{label}.prepare",
            share=0.5 if host_known else 0.7,
        ),
        op(
            Phase.PREPARE,
            "prepare.lengths",
            Kind.COPY,
            stream=PREP,
            cost="dflash.prepare.lengths",
            host=f"host.{label}.prepare",
            share=0.05,
            direction="h2d",
        ),
        op(
            Phase.PREPARE,
            "prepare.assign",
            Kind.KERNEL,
            stream=PREP,
            cost="dflash.prepare.assign",
            host=f"host.{label}.prepare",
            share=0.2,
            writes=("req_to_token[allocated:committed+2B]", "allocator"),
        ),
        op(Phase.ENTER, "enter.join", Kind.WAIT, stream=F, on=S, host=f"host.{label}.enter", share=0.4),
        *([gather] if stashes else []),
        op(Phase.ENTER, "enter.isolation", Kind.HOST, cost=f"host.{label}.enter", share=0.6),
    ]


def _closing(
    label: str, copies: StreamName, before_queue: list[Operation], rewrites: tuple[str, ...] = ()
) -> list[Operation]:
    copy = f"host.{label}.copy"
    join = [op(Phase.COPY, "copy.join", Kind.WAIT, stream=copies, on=F, host=copy, share=0.2)]
    return [
        *(join if copies is not F else []),
        op(
            Phase.COPY,
            "copy.tokens",
            Kind.COPY,
            stream=copies,
            cost="dflash.copy.tokens",
            host=copy,
            share=0.3,
            direction="d2h",
        ),
        op(Phase.COPY, "copy_done", Kind.RECORD, stream=copies, event="copy_done", host=copy, share=0.2),
        op(Phase.COPY, "copy.finish", Kind.HOST, cost=copy, share=0.3),
        *before_queue,
        *queued_and_processed(label, (*rewrites, "allocator")),
    ]


def _decode(label: str) -> list[Operation]:
    """Non-speculative decode (semantics 1.4): metadata, graph, sample, publish, stash."""
    return [
        _kernel(
            "decode.metadata", "seam.metadata", f"host.{label}.verify", 0.8, reads=("req_to_token[0:seq]",)
        ),
        op(
            Phase.FORWARD,
            "read_done",
            Kind.RECORD,
            stream=F,
            event="read_done",
            marks=(Mark.LAST_SHARED_READ,),
        ),
        _kernel(
            "decode.graph",
            "graph.decode",
            f"host.{label}.verify",
            0.1,
            Kind.GRAPH,
            marks=(Mark.DRAFT, Mark.TARGET),
            writes=("kv[seq]",),
        ),
        _kernel("sample", "seam.argmax", f"host.{label}.accept", 0.5),
        _kernel(
            "publish",
            "dflash.publish",
            f"host.{label}.accept",
            0.25,
            Kind.PUBLISH,
            writes=(LENGTHS,),
        ),
        _kernel(
            "stash",
            "dflash.stash",
            f"host.{label}.accept",
            0.25,
            Kind.STASH,
            writes=("future_map.tokens[rows]",),
        ),
    ]


def _chain(label: str, algorithm: str) -> list[Operation]:
    """EAGLE family with topk 1 (semantics 1.5): draft, verify, publish, draft-extend in a graph."""
    draft, verify, accept, tail = (f"host.{label}.{s}" for s in ("draft", "verify", "accept", "tail"))
    return [
        _kernel(
            "draft.metadata",
            "seam.metadata",
            draft,
            0.9,
            marks=(Mark.FIRST_USE_OF_HOST_LENGTHS,),
            reads=("req_to_token[seq:seq+B]",),
        ),
        _kernel("draft.graph", f"graph.draft.{algorithm}", draft, 0.1, Kind.GRAPH, marks=(Mark.DRAFT,)),
        _kernel("tree", "seam.tree", verify, 0.15),
        _kernel("verify.metadata", "seam.metadata", verify, 0.85, reads=READS_VERIFY),
        _kernel(
            "verify.graph",
            "graph.target.chain",
            verify,
            0.1,
            Kind.GRAPH,
            marks=(Mark.TARGET,),
            writes=("kv[seq:seq+B]",),
        ),
        _kernel("accept", "seam.accept", accept, 0.8),
        _kernel("publish", "dflash.publish", accept, 0.2, Kind.PUBLISH, writes=(LENGTHS,)),
        _kernel("extend.metadata", "seam.metadata", draft, 0.9, reads=READS_VERIFY),
        op(
            Phase.FORWARD,
            "read_done",
            Kind.RECORD,
            stream=F,
            event="read_done",
            marks=(Mark.LAST_SHARED_READ,),
        ),
        _kernel(
            "extend.graph",
            f"graph.extend.{algorithm}",
            draft,
            0.1,
            Kind.GRAPH,
            marks=(Mark.SELF_FENCE,),
            writes=("draft_kv[seq:seq+B]",),
        ),
        _kernel("extend.topk", "seam.argmax", tail, 0.15),
        _kernel(
            "stash",
            "dflash.stash",
            tail,
            0.15,
            Kind.STASH,
            writes=("future_map.tokens[rows]", "future_map.topk[rows]", "future_map.hidden[rows]"),
        ),
    ]


def _lookup(label: str) -> list[Operation]:
    """NGRAM (semantics 1.9): the host reads the previous result, which drains the forward stream, then looks up."""
    verify, accept = f"host.{label}.verify", f"host.{label}.accept"
    return [
        op(Phase.FORWARD, "history.tokens", Kind.COPY, stream=F, cost="seam.copy", direction="d2h"),
        op(Phase.FORWARD, "history.drain", Kind.SYNCHRONIZE, on=F),
        op(Phase.FORWARD, "history.lengths", Kind.COPY, stream=F, cost="seam.copy", direction="d2h"),
        op(Phase.FORWARD, "history.lengths_drain", Kind.SYNCHRONIZE, on=F),
        op(
            Phase.FORWARD,
            "lookup",
            Kind.HOST,
            cost="host.ngram.lookup",
            marks=(Mark.FIRST_USE_OF_HOST_LENGTHS,),
        ),
        op(Phase.FORWARD, "tree.upload", Kind.COPY, stream=F, cost="seam.copy", direction="h2d"),
        _kernel("mask", "seam.mask", "host.ngram.mask", 1.0, marks=(Mark.DRAFT,)),
        _kernel("verify.metadata", "seam.metadata", verify, 0.9, reads=READS_VERIFY),
        _kernel(
            "verify.graph",
            "graph.target.lookup",
            verify,
            0.1,
            Kind.GRAPH,
            marks=(Mark.TARGET,),
            writes=("kv[seq:seq+B]",),
        ),
        _kernel("accept", "seam.accept", accept, 0.6),
        _kernel(
            "move",
            "seam.move",
            accept,
            0.2,
            reads=READS_VERIFY,
            marks=(Mark.LAST_SHARED_READ, Mark.SELF_FENCE),
            writes=("kv[seq:seq+B]",),
        ),
        _kernel("publish", "dflash.publish", accept, 0.2, Kind.PUBLISH, writes=(LENGTHS,)),
    ]


def _prefill(label: str, copies: StreamName, tail: list[Operation]) -> list[Operation]:
    return [
        *prefill_until_publish(label, "dflash.publish"),
        *tail,
        *_closing(label, copies, [], rewrites=(PROMPT,)),
    ]


NON_SPECULATIVE = Capabilities(
    length_source=LengthSource.HOST_KNOWN,
    host_length_need=HostLengthNeed.NONE,
    relay_schema=("output_tokens",),
    carry=Carry.BY_ROW,
    read_end=ReadEnd.PRE_REPLAY,
    write_fence=WriteFence.SCHEDULER,
    decode_prep=PrepStream.SCHEDULE,
    consumes_host_lengths=False,
)
CHAIN = Capabilities(
    length_source=LengthSource.PUBLISHED,
    host_length_need=HostLengthNeed.NONE,
    relay_schema=("verified_id", "topk_p", "topk_index", "hidden_states"),
    carry=Carry.BY_ROW,
    read_end=ReadEnd.PRE_REPLAY,
    write_fence=WriteFence.SCHEDULER,
    decode_prep=PrepStream.SCHEDULE,
    consumes_host_lengths=False,
)
LOOKUP = Capabilities(
    length_source=LengthSource.PUBLISHED,
    host_length_need=HostLengthNeed.EXACT,
    relay_schema=(),
    carry=Carry.BY_ROW,
    read_end=ReadEnd.END,
    write_fence=WriteFence.SCHEDULER,
    decode_prep=PrepStream.SCHEDULE,
    consumes_host_lengths=True,
)
DESCRIPTIONS = {
    "none": "one token a step from a graph, no drafting",
    "standalone": "a small separate drafter proposes a chain of three",
    "eagle": "a one-layer drafter on the target's hidden states proposes a chain of three; draft-extend in a graph",
    "eagle3": "as eagle, on hidden states of three layers and with a reduced vocabulary",
    "ngram": "drafts are looked up on the host, which drains the device before every lookup",
}


def programs(engine: str, label: str, copies: StreamName, changed: list[Operation]) -> list[StepProgram]:
    """All composed programs of one engine release.

    ``copies`` is the stream of the result copies, ``changed`` the operations of filters and merges.
    """
    found = []
    for algorithm, description in DESCRIPTIONS.items():
        host_known = algorithm == "none"
        lookup = algorithm == "ngram"
        stash = _kernel(
            "stash", "dflash.stash", "call.launch", 1.0, Kind.STASH, writes=("future_map.tokens[rows]",)
        )
        extend = _kernel(
            "prefill.extend", "prefill.append", f"host.{label}.tail", 1.0, writes=("draft_kv[0:prompt]",)
        )
        tail = [] if lookup else [stash] if host_known else [extend, stash]
        forward = _decode(label) if host_known else _lookup(label) if lookup else _chain(label, algorithm)
        update = [op(Phase.QUEUE, "corpus.update", Kind.HOST, cost="host.ngram.update")] if lookup else []
        block = 1 if host_known else LOOKUP_BLOCK if lookup else CHAIN_BLOCK
        found.append(
            StepProgram(
                algorithm=algorithm,
                engine=f"sglang-{engine}",
                description=description,
                status="assumed",
                source="not measured: order of operations from the engine's source, host sections and seam kernels "
                "of the traced DFLASH worker, graphs scaled by layers, tokens and vocabulary",
                capabilities=NON_SPECULATIVE if host_known else LOOKUP if lookup else CHAIN,
                speculation=Speculation(
                    kind="none" if host_known else "lookup" if lookup else "chain",
                    block_size=block,
                    min_block_size=1 if host_known else 2,
                    max_block_size=1 if host_known else 16,
                    draft_steps=None if host_known or lookup else block - 1,
                    topk=None if host_known or lookup else 1,
                ),
                operations=(
                    *_opening(label, changed, host_known, stashes=not lookup),
                    *forward,
                    *_closing(label, copies, update),
                ),
                prefill=tuple(_prefill(label, copies, tail)),
            )
        )
    return found
