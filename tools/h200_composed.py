"""Step programs that the data set does not measure, composed from the pieces it does.

The order of operations is that of the engine's source (semantics 1.4, 1.5, 1.9 and 2.4 to 2.6); host sections and
seam kernels are DFLASH's, taken whole or in shares, and graphs are scaled by layers, tokens and vocabulary. Every
program and every cost here has status ``assumed`` and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.capabilities import (
    Capabilities,
    Carry,
    HostLengthNeed,
    LengthSource,
    PrepStream,
    ReadEnd,
    WriteFence,
)
from sim.config.profile import Cost
from sim.ingest.assemble import BATCHES
from sim.program.step_program import Kind, Mark, Operation, Phase, Speculation, StepProgram, StreamName

F, S, PREP = StreamName.FORWARD, StreamName.SCHEDULE, StreamName.PREP
READS_VERIFY = ("req_to_token[0:seq+B]",)

#: positions a request verifies, where the scenario does not say (SGLang's defaults: chain of three drafts and the
#: bonus; lookup of eight)
CHAIN_BLOCK, LOOKUP_BLOCK = 4, 8
#: layers of a small standalone drafter and its hidden size (Qwen3-0.6B) against the target's 36 and 4096
SMALL_LAYERS, SMALL_HIDDEN, TARGET_HIDDEN = 28, 1024, 4096
#: reduced vocabulary of an EAGLE3 drafter against the target's
EAGLE3_VOCABULARY, VOCABULARY = 32_000, 151_936
DRAFT_LAYERS = 5
#: device time of one graph node, µs (primitives_us.json: 400 nodes in 441 µs), and nodes of one transformer layer
NODE, NODES_A_LAYER = 1.1, 15


@dataclass(frozen=True)
class Measured:
    """What the composition draws on, over :data:`BATCHES` (µs)."""

    #: target graph at block 16 and its slope over the context
    target: np.ndarray
    target_context: np.ndarray
    #: drafter of five layers without a head
    draft: np.ndarray
    #: projection onto the vocabulary and its argmax, 16 rows a request
    head: np.ndarray
    #: all seam kernels of one metadata build
    metadata: np.ndarray
    argmax: np.ndarray
    #: µs a call of a launch, through the framework
    launch: float


def costs(m: Measured) -> dict[str, Cost]:
    """Costs that only composed programs use."""
    batches = np.array(BATCHES, dtype=float)

    def at_tokens(values: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """A table over the batch at block 16, read at other token counts; flat below its first entry."""
        return np.interp(tokens, 16 * batches, values)

    def cost(value: np.ndarray, source: str, context: np.ndarray | None = None) -> Cost:
        return Cost(
            value=tuple(round(float(v), 2) for v in value),
            batch=BATCHES,
            per_context=0.0 if context is None else tuple(round(float(v), 5) for v in context),
            valid_range={"batch": (BATCHES[0], BATCHES[-1])},
            status="assumed",
            source=source,
        )

    layer = at_tokens(m.draft, batches) / DRAFT_LAYERS
    head = at_tokens(m.head, batches)
    small_head = head * SMALL_HIDDEN / TARGET_HIDDEN
    reduced_head = head * EAGLE3_VOCABULARY / VOCABULARY
    small = np.maximum(
        SMALL_LAYERS * NODES_A_LAYER * NODE, SMALL_LAYERS * layer * (SMALL_HIDDEN / TARGET_HIDDEN) ** 2
    )
    passes = CHAIN_BLOCK - 2  # the first draft comes with the previous step's extension
    # One query a row reads 36 layers × 8 heads × 128 × 2 (K, V) × 2 bytes a token, at 60 % of 4.8 TB/s.
    decode_context = batches * 36 * 8 * 128 * 2 * 2 / (0.6 * 4.8e12) * 1e6
    target = "graph.target read at the same number of tokens, flat below 16"
    return {
        "graph.decode": cost(
            at_tokens(m.target, batches),
            f"{target}; context slope: KV read at 60 % of the memory's bandwidth",
            decode_context,
        ),
        "graph.target.chain": cost(
            at_tokens(m.target, CHAIN_BLOCK * batches),
            f"{target}; the verify kernel pads queries to 16, so the context slope is the measured one",
            m.target_context,
        ),
        "graph.target.lookup": cost(
            at_tokens(m.target, LOOKUP_BLOCK * batches),
            f"{target}; context slope as measured",
            m.target_context,
        ),
        "graph.draft.eagle": cost(
            passes * (layer + head),
            f"{passes} passes of one layer (a fifth of the measured five-layer drafter) and the full head",
        ),
        "graph.draft.eagle3": cost(
            passes * (layer + reduced_head),
            f"{passes} passes of one layer and a head of {EAGLE3_VOCABULARY} words",
        ),
        "graph.draft.standalone": cost(
            (passes + 1) * (small + small_head),
            f"{passes + 1} passes of a drafter of {SMALL_LAYERS} layers and "
            f"hidden size {SMALL_HIDDEN}: bound by {NODES_A_LAYER} graph nodes a layer",
        ),
        "graph.extend.eagle": cost(layer + head, "one layer over the accepted tokens and the full head"),
        "graph.extend.eagle3": cost(layer + reduced_head, "one layer and the reduced head"),
        "graph.extend.standalone": cost(small + small_head, "one pass of the small drafter"),
        "seam.metadata": cost(m.metadata, "sum of the measured verify metadata kernels"),
        "seam.argmax": cost(m.argmax, "the measured argmax over 16 rows a request, read at one"),
        "seam.tree": Cost(value=8.0, status="assumed", source="four small kernels that build the tree"),
        "seam.accept": Cost(
            value=15.0,
            per_batch=2.0,
            status="assumed",
            source="argmax and accept kernels over a few rows a request",
        ),
        "seam.move": Cost(
            value=10.0,
            per_batch=0.3,
            status="assumed",
            source="moves the accepted tokens' KV: two small kernels over all layers",
        ),
        "seam.mask": Cost(
            value=2.0, per_batch=8.0, status="assumed", source="four small kernels a request (semantics 1.9)"
        ),
        "seam.copy": Cost(value=2.0, status="assumed", source="a small pinned copy, as the traced ones"),
        "host.ngram.lookup": Cost(
            value=30.0,
            per_batch=15.0,
            status="assumed",
            source="corpus lookup and tree build in C++ for each request; no measurement, order of magnitude",
        ),
        "host.ngram.mask": Cost(
            value=0.0,
            per_batch=round(4 * m.launch, 2),
            status="assumed",
            source="four launches a request at call.launch (semantics 1.9)",
        ),
        "host.ngram.update": Cost(
            value=20.0, per_batch=10.0, status="assumed", source="corpus insertion; no measurement"
        ),
    }


def _op(phase: Phase, name: str, kind: Kind, **more: Any) -> Operation:
    return Operation(phase=phase, name=name, kind=kind, **more)


def _kernel(
    name: str, cost: str, host: str, share: float, kind: Kind = Kind.KERNEL, **more: Any
) -> Operation:
    return _op(Phase.FORWARD, name, kind, stream=F, cost=cost, host=host, share=share, **more)


def _opening(label: str, changed: list[Operation], host_known: bool) -> list[Operation]:
    """Up to the forward's first kernel, as DFLASH's newer release without its watermark copies."""
    gather = f"host.{label}.gather_tokens" if label == "v0515" else "host.v0515.gather_tokens"
    return [
        _op(Phase.RECEIVE, "receive", Kind.HOST, cost=f"host.{label}.receive"),
        _op(Phase.SCHEDULE, "schedule", Kind.HOST, cost=f"host.{label}.schedule"),
        *changed,
        _op(
            Phase.PREPARE,
            "prepare.loop",
            Kind.HOST,
            cost=f"host.{label}.prepare",
            share=0.5 if host_known else 0.7,
        ),
        _op(
            Phase.PREPARE,
            "prepare.lengths",
            Kind.COPY,
            stream=PREP,
            cost="dflash.prepare.lengths",
            host=f"host.{label}.prepare",
            share=0.05,
            direction="h2d",
        ),
        _op(
            Phase.PREPARE,
            "prepare.assign",
            Kind.KERNEL,
            stream=PREP,
            cost="dflash.prepare.assign",
            host=f"host.{label}.prepare",
            share=0.2,
            writes=("req_to_token[allocated:committed+2B]", "allocator"),
        ),
        _op(Phase.ENTER, "enter.join", Kind.WAIT, stream=F, on=S, host=f"host.{label}.enter", share=0.4),
        _op(
            Phase.ENTER,
            "enter.gather",
            Kind.KERNEL,
            stream=F,
            cost="relay.gather_tokens",
            host=gather,
            when=("gathered",),
            reads=("future_map.tokens[rows]",),
        ),
        _op(Phase.ENTER, "enter.isolation", Kind.HOST, cost=f"host.{label}.enter", share=0.6),
    ]


def _closing(
    label: str, copies: StreamName, before_queue: list[Operation], rewrites: tuple[str, ...] = ()
) -> list[Operation]:
    copy = f"host.{label}.copy"
    join = [_op(Phase.COPY, "copy.join", Kind.WAIT, stream=copies, on=F, host=copy, share=0.2)]
    return [
        *(join if copies is not F else []),
        _op(
            Phase.COPY,
            "copy.tokens",
            Kind.COPY,
            stream=copies,
            cost="dflash.copy.tokens",
            host=copy,
            share=0.3,
            direction="d2h",
        ),
        _op(Phase.COPY, "copy_done", Kind.RECORD, stream=copies, event="copy_done", host=copy, share=0.2),
        _op(Phase.COPY, "copy.finish", Kind.HOST, cost=copy, share=0.3),
        *before_queue,
        _op(Phase.QUEUE, "queue", Kind.HOST, cost=f"host.{label}.queue"),
        _op(
            Phase.PROCESS,
            "process",
            Kind.HOST,
            cost=f"host.{label}.process",
            stream=S,
            writes=(*rewrites, "allocator"),
        ),
    ]


def _decode(label: str) -> list[Operation]:
    """Non-speculative decode (semantics 1.4): metadata, graph, sample, publish, stash."""
    return [
        _kernel(
            "decode.metadata", "seam.metadata", f"host.{label}.verify", 0.8, reads=("req_to_token[0:seq]",)
        ),
        _op(
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
            writes=("future_map.new_seq_lens[rows]",),
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
        _kernel(
            "publish", "dflash.publish", accept, 0.2, Kind.PUBLISH, writes=("future_map.new_seq_lens[rows]",)
        ),
        _kernel("extend.metadata", "seam.metadata", draft, 0.9, reads=READS_VERIFY),
        _op(
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
        _op(Phase.FORWARD, "history.tokens", Kind.COPY, stream=F, cost="seam.copy", direction="d2h"),
        _op(Phase.FORWARD, "history.drain", Kind.SYNCHRONIZE, on=F),
        _op(Phase.FORWARD, "history.lengths", Kind.COPY, stream=F, cost="seam.copy", direction="d2h"),
        _op(Phase.FORWARD, "history.lengths_drain", Kind.SYNCHRONIZE, on=F),
        _op(
            Phase.FORWARD,
            "lookup",
            Kind.HOST,
            cost="host.ngram.lookup",
            marks=(Mark.FIRST_USE_OF_HOST_LENGTHS,),
        ),
        _op(Phase.FORWARD, "tree.upload", Kind.COPY, stream=F, cost="seam.copy", direction="h2d"),
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
        _kernel(
            "publish", "dflash.publish", accept, 0.2, Kind.PUBLISH, writes=("future_map.new_seq_lens[rows]",)
        ),
    ]


def _prefill(label: str, copies: StreamName, tail: list[Operation]) -> list[Operation]:
    return [
        _op(Phase.RECEIVE, "receive", Kind.HOST, cost=f"host.{label}.receive"),
        _op(Phase.SCHEDULE, "schedule", Kind.HOST, cost=f"host.{label}.schedule"),
        _op(Phase.PREPARE, "prefill.prepare", Kind.HOST, cost="host.prefill.prepare"),
        _op(
            Phase.PREPARE,
            "prefill.write_rows",
            Kind.KERNEL,
            stream=S,
            cost="prefill.write_rows",
            writes=("req_to_token[0:prompt]", "allocator"),
        ),
        _op(Phase.ENTER, "enter.join", Kind.WAIT, stream=F, on=S),
        _op(Phase.ENTER, "prefill.enter", Kind.HOST, cost="host.prefill.enter"),
        _op(
            Phase.FORWARD, "prefill.input_ids", Kind.COPY, stream=F, cost="prefill.input_ids", direction="h2d"
        ),
        _op(
            Phase.FORWARD,
            "prefill.target",
            Kind.KERNEL,
            stream=F,
            cost="prefill.target",
            host="host.prefill.target",
            marks=(Mark.TARGET,),
            reads=("req_to_token[0:prompt]",),
            writes=("kv[0:prompt]",),
        ),
        _op(
            Phase.FORWARD,
            "publish",
            Kind.PUBLISH,
            stream=F,
            cost="dflash.publish",
            writes=("future_map.new_seq_lens[rows]",),
        ),
        *tail,
        *_closing(label, copies, [], rewrites=("req_to_token[0:prompt]",)),
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
        update = [_op(Phase.QUEUE, "corpus.update", Kind.HOST, cost="host.ngram.update")] if lookup else []
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
                    *_opening(label, changed, host_known),
                    *forward,
                    *_closing(label, copies, update),
                ),
                prefill=tuple(_prefill(label, copies, tail)),
            )
        )
    return found
