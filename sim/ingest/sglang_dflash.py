"""SGLang's DFLASH worker: what its traces show (order of semantics 1.7 and 1.8) and what they do not.

The two releases differ in the relay, the fence, the head of the drafter and the stream of the result copies. Names
of kernels are read off traces; the meaning of records and waits is the released source's.
"""

from __future__ import annotations

from typing import Any

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
from sim.ingest.template import Row, Template
from sim.program.step_program import Kind, Mark, Operation, Phase, Speculation, StreamName

BLOCK = 16
SPECULATION = Speculation(kind="block", block_size=BLOCK, min_block_size=2, max_block_size=32)
#: the older release's own arithmetic of a safe upper bound, which the policy `bound` inserts
BOUND_US = 4.0

_SCHEDULE_STREAM = StreamName.SCHEDULE
_F = StreamName.FORWARD


def _host(pattern: str, name: str, phase: Phase, section: str, kind: str = "close") -> Row:
    return Row(kind, pattern, "keep", name, phase, section, Kind.HOST)


def _kernel(pattern: str, name: str, section: str, kind: str = "launch", **more: object) -> Row:
    cost = more.pop("cost", f"dflash.{name}")
    return Row(kind, pattern, "keep", name, section=section, stream=_F, cost=cost, **more)  # type: ignore[arg-type]


def _policy(kind: str, pattern: str = "", section: str = "", **more: object) -> Row:
    return Row(kind, pattern, "policy", section=section, **more)  # type: ignore[arg-type]


def _metadata(phase: str, lengths_used: bool) -> list[Row]:
    """Static fills and Triton attention metadata, identical for draft and verify."""
    first = (Mark.FIRST_USE_OF_HOST_LENGTHS,) if lengths_used else ()
    rows = [_kernel("multi_tensor|multi", f"{phase}.fill", phase, marks=first)]
    if phase == "draft":
        rows.append(_kernel("DtoD", "draft.fill_embeds", phase, "copy", operation=Kind.COPY, direction="d2d"))
    steps = (
        ("elementwise", "lens_slice"),
        ("elementwise", "lens_cast"),
        ("scan", "kv_scan_init"),
        ("scan", "kv_scan"),
        ("elementwise", "kv_indptr"),
        ("kv_indices", "kv_indices"),
        ("elementwise", "qo_fill"),
        ("elementwise", "qo_step"),
        ("scan", "qo_scan_init"),
        ("scan", "qo_scan"),
    )
    for pattern, name in steps:
        reads = ("req_to_token[0:seq]" if phase == "draft" else "req_to_token[0:seq+B]",)
        rows.append(_kernel(pattern, f"{phase}.{name}", phase, reads=reads if name == "kv_indices" else ()))
    rows.append(_kernel("DtoD", f"{phase}.qo_indptr", phase, "copy", operation=Kind.COPY, direction="d2d"))
    return rows


def _until_forward(v15: bool) -> list[Row]:
    prep = StreamName.PREP
    rows = [
        _policy("wait", section="receive") if v15 else None,
        _host("get_next_batch", "receive", Phase.RECEIVE, "receive", kind="open"),
        # 0.5.14 without the plan stream waits here for verify_done; what lies before is batch selection
        None
        if v15
        else _policy(
            "synchronize",
            section="prepare",
            before="schedule",
            before_phase=Phase.SCHEDULE,
            before_section="schedule",
        ),
        # 0.5.14 with the plan stream: record on schedule, plan waits for it and for verify_done
        None
        if v15
        else _policy(
            "record",
            section="prepare",
            before="prepare.loop",
            before_phase=Phase.PREPARE,
            before_section="prepare",
        ),
        None if v15 else _policy("wait", section="prepare"),
        None if v15 else _policy("wait", section="prepare"),
        Row(
            "copy",
            "HtoD",
            "keep",
            "prepare.lengths",
            Phase.PREPARE,
            "prepare",
            Kind.COPY,
            prep,
            "dflash.prepare.lengths",
            direction="h2d",
            before="prepare.loop",
            before_phase=Phase.PREPARE,
            before_section="prepare",
        ),
        Row(
            "copy",
            "HtoD",
            "keep",
            "prepare.allocated",
            Phase.PREPARE,
            "prepare",
            Kind.COPY,
            prep,
            "dflash.prepare.allocated",
            direction="h2d",
        ),
        Row(
            "launch",
            "assign_req",
            "keep",
            "prepare.assign",
            Phase.PREPARE,
            "prepare",
            Kind.KERNEL,
            prep,
            "dflash.prepare.assign",
            writes=("req_to_token[allocated:committed+2B]", "allocator"),
        ),
        None if v15 else _policy("record", section="prepare"),
        None if v15 else _policy("wait", section="prepare"),
        _host("get_next_batch", "prepare.finish", Phase.PREPARE, "prepare"),
        Row("open", "run_batch", "fold", section="enter"),
        _policy("wait", section="resolve") if v15 else None,
        _policy("launch", "index_elementwise", section="resolve") if v15 else None,
        Row("record", "", "fold", section="enter"),
        Row("wait", "", "keep", "enter.join", Phase.ENTER, "enter", Kind.WAIT, _F, on=_SCHEDULE_STREAM),
        Row(
            "launch",
            "index_elementwise",
            "keep",
            "enter.tokens",
            Phase.ENTER,
            "gather_tokens",
            Kind.KERNEL,
            _F,
            "relay.gather_tokens",
            when=("gathered",),
            reads=("future_map.verified_id[rows]",),
        )
        if v15
        else None,
        Row("record", "", "keep", "enter.isolation", Phase.ENTER, "enter", Kind.HOST),
        Row("record", "", "keep", "enter.isolation", Phase.ENTER, "enter", Kind.HOST),
        Row("record", "", "keep", "enter.isolation", Phase.ENTER, "enter", Kind.HOST) if v15 else None,
    ]
    return [r for r in rows if r is not None]


def _forward(v15: bool) -> list[Row]:
    graph = Kind.GRAPH
    version = "v0515" if v15 else "v0514"
    rows = [
        _kernel("prepare_dflash_draft_block", "draft.block", "draft", reads=("req_to_token[seq:seq+B]",)),
        _kernel("index|gather", "draft.embed", "draft"),
        *_metadata("draft", lengths_used=True),
        Row(
            "record", "", "fold", section="draft"
        ),  # the draft runner's own read_done, which nobody waits for
        _kernel(
            "",
            "draft.graph",
            "draft",
            "graph",
            operation=graph,
            cost=f"graph.draft.{version}",
            marks=(Mark.DRAFT,),
        ),
    ]
    if not v15:
        rows += [
            _kernel("gemm|nvjet|cutlass", "head.gemm", "verify"),
            _kernel("reduce", "head.argmax", "verify"),
            _kernel("DtoD", "head.tokens", "verify", "copy", operation=Kind.COPY, direction="d2d"),
            _kernel("elementwise", "head.offset", "verify"),
        ]
    # contiguous copies are copies at batch 1 and strided kernels above
    for name in ("verify.draft_tokens", "verify.block_ids"):
        rows += [
            _kernel("DtoD", name, "verify", "copy"),
            _kernel("elementwise_kernel<128, 2", name, "verify"),
        ]
    rows += _metadata("verify", lengths_used=False)
    last = (Mark.LAST_SHARED_READ,)
    rows += [
        _kernel("DtoD", "verify.ids", "verify", "copy", operation=Kind.COPY, direction="d2d"),
        _kernel(
            "DtoD",
            "verify.positions",
            "verify",
            "copy",
            operation=Kind.COPY,
            direction="d2d",
            marks=() if v15 else last,
        ),
    ]
    if v15:
        rows.append(
            Row(
                "record",
                "",
                "keep",
                "read_done",
                Phase.FORWARD,
                "verify",
                Kind.RECORD,
                _F,
                event="read_done",
                marks=last,
            )
        )
    fence = (Mark.SELF_FENCE,)
    own = "" if v15 else f".{version}"  # what follows the target ran queued in both releases, and not alike
    rows += [
        _kernel(
            "",
            "verify.graph",
            "verify",
            "graph",
            operation=graph,
            cost=f"graph.target{own}",
            marks=(Mark.TARGET,),
            writes=("kv[seq:seq+B]",),
        ),
        _kernel("reduce", "accept.argmax", "accept", cost=f"dflash.accept.argmax{own}"),
        _kernel("_lab_force", "accept.force", "accept", cost=f"dflash.accept.force{own}"),
        _kernel("_lab_inc", "accept.count", "accept", cost=f"dflash.accept.count{own}"),
        _kernel("accept_bonus", "accept.accept", "accept", cost=f"dflash.accept.accept{own}"),
        _kernel(
            "index_elementwise",
            "publish",
            "publish",
            operation=Kind.PUBLISH,
            cost=f"dflash.publish{own}",
            writes=("future_map.new_seq_lens[rows]",),
        ),
        _policy("record", section="publish"),
        _kernel("gemm|nvjet|cutlass", "append.project", "tail", cost=f"dflash.append.project{own}"),
        _kernel("RMSNorm", "append.norm", "tail", cost=f"dflash.append.norm{own}"),
        _kernel("gemm|nvjet|cutlass", "append.kv_gemm", "tail", cost=f"dflash.append.kv_gemm{own}"),
        _kernel("fused_norm_rope", "append.rope", "tail", cost=f"dflash.append.rope{own}"),
        *(
            _kernel(
                "set_kv_buffer",
                f"append.store_{layer}",
                "tail",
                cost=f"dflash.append.store{own}",
                marks=fence if v15 and layer == 4 else (),
                writes=(f"draft_kv.{layer}[seq:seq+B]",),
            )
            for layer in range(5)
        ),
    ]
    stash = ("future_map.verified_id[rows]",)
    if v15:
        rows += [
            _kernel("elementwise", "stash.cast", "tail"),
            _kernel("index_elementwise", "stash", "tail", operation=Kind.STASH, writes=stash),
        ]
    else:
        rows += [
            Row(
                "record",
                "",
                "keep",
                "verify_done",
                Phase.FORWARD,
                "tail",
                Kind.RECORD,
                _F,
                event="verify_done",
                marks=fence,
            ),
            # the result copies follow on the same stream, with a longer gap than a kernel's
            _kernel(
                "index_elementwise",
                "stash",
                "tail",
                operation=Kind.STASH,
                writes=stash,
                cost=f"dflash.stash{own}",
            ),
        ]
    return rows


def _after_forward(v15: bool) -> list[Row]:
    copy = StreamName.COPY if v15 else _F
    rows = [
        Row("record", "", "fold", section="copy") if v15 else None,
        Row("wait", "", "keep", "copy.join", Phase.COPY, "copy", Kind.WAIT, copy, on=_F) if v15 else None,
        Row(
            "copy",
            "DtoH",
            "keep",
            "copy.tokens",
            Phase.COPY,
            "copy",
            Kind.COPY,
            copy,
            "dflash.copy.tokens",
            direction="d2h",
        ),
        Row(
            "copy",
            "DtoH",
            "keep",
            "copy.accepted",
            Phase.COPY,
            "copy",
            Kind.COPY,
            copy,
            "dflash.copy.accepted",
            direction="d2h",
        ),
        Row("record", "", "keep", "copy_done", Phase.COPY, "copy", Kind.RECORD, copy, event="copy_done"),
        _host("run_batch", "copy.finish", Phase.COPY, "copy"),
        # the wait for the previous result belongs to the loop; what precedes it is queueing
        Row("open", "process_batch", "fold", section="queue"),
        _policy(
            "synchronize", section="process", before="queue", before_phase=Phase.QUEUE, before_section="queue"
        ),
        # frees of finished requests are small kernels on the schedule stream
        Row(
            "close",
            "process_batch",
            "keep",
            "process",
            Phase.PROCESS,
            "process",
            Kind.HOST,
            _SCHEDULE_STREAM,
            writes=("allocator",),
        ),
        _host("^iteration$", "receive", Phase.RECEIVE, "receive"),
    ]
    return [r for r in rows if r is not None]


def _changed(v15: bool) -> tuple[Operation, ...]:
    """Filter and merge of the batch, once in a while (semantics 1.7 rows 2 and 2')."""

    def pair(name: str, fact: str) -> list[Operation]:
        return [
            Operation(phase=Phase.SCHEDULE, name=name, kind=Kind.HOST, cost=f"host.{name}", when=(fact,)),
            Operation(
                phase=Phase.SCHEDULE,
                name=f"{name}.rows",
                kind=Kind.KERNEL,
                stream=_SCHEDULE_STREAM,
                cost="batch.rows",
                when=(fact,),
            ),
        ]

    drain = Operation(
        phase=Phase.SCHEDULE,
        name="filter.allocated",
        kind=Kind.SYNCHRONIZE,
        on=_SCHEDULE_STREAM,
        when=("filtered",),
    )
    return (*pair("filter", "filtered"), *(() if v15 else (drain,)), *pair("merge", "merged"))


def _prefill(v15: bool, label: str) -> tuple[Operation, ...]:
    """Prefill (semantics 1.10, 2.7): the host builds device tensors from lists after the target forward was enqueued,
    which waits for it."""
    own = "" if v15 else f".{label}"
    copies = StreamName.COPY if v15 else _F

    def op(phase: Phase, name: str, kind: Kind, **more: Any) -> Operation:
        return Operation(phase=phase, name=name, kind=kind, **more)

    prompt = "req_to_token[0:prompt]"
    join = (op(Phase.COPY, "copy.join", Kind.WAIT, stream=copies, on=_F),) if v15 else ()
    return (
        op(Phase.RECEIVE, "receive", Kind.HOST, cost=f"host.{label}.receive"),
        op(Phase.SCHEDULE, "schedule", Kind.HOST, cost=f"host.{label}.schedule"),
        op(Phase.PREPARE, "prefill.prepare", Kind.HOST, cost="host.prefill.prepare"),
        op(
            Phase.PREPARE,
            "prefill.write_rows",
            Kind.KERNEL,
            stream=_SCHEDULE_STREAM,
            cost="prefill.write_rows",
            writes=(prompt, "allocator"),
        ),
        op(Phase.ENTER, "enter.join", Kind.WAIT, stream=_F, on=_SCHEDULE_STREAM),
        op(Phase.ENTER, "prefill.enter", Kind.HOST, cost="host.prefill.enter"),
        op(
            Phase.FORWARD,
            "prefill.input_ids",
            Kind.COPY,
            stream=_F,
            cost="prefill.input_ids",
            direction="h2d",
        ),
        op(
            Phase.FORWARD,
            "prefill.target",
            Kind.KERNEL,
            stream=_F,
            cost="prefill.target",
            host="host.prefill.target",
            marks=(Mark.TARGET,),
            reads=(prompt,),
            writes=("kv[0:prompt]",),
        ),
        op(
            Phase.FORWARD,
            "publish",
            Kind.PUBLISH,
            stream=_F,
            cost=f"dflash.publish{own}",
            writes=("future_map.new_seq_lens[rows]",),
        ),
        op(Phase.FORWARD, "prefill.lists_to_device", Kind.SYNCHRONIZE, on=_F),
        op(
            Phase.FORWARD,
            "prefill.append",
            Kind.KERNEL,
            stream=_F,
            cost="prefill.append",
            host=f"host.{label}.tail",
            share=0.9,
            writes=("draft_kv[0:prompt]",),
        ),
        op(
            Phase.FORWARD,
            "stash",
            Kind.STASH,
            stream=_F,
            cost=f"dflash.stash{own}",
            host=f"host.{label}.tail",
            share=0.1,
            writes=("future_map.verified_id[rows]",),
        ),
        *join,
        op(Phase.COPY, "copy.tokens", Kind.COPY, stream=copies, cost="dflash.copy.tokens", direction="d2h"),
        op(Phase.COPY, "copy_done", Kind.RECORD, stream=copies, event="copy_done"),
        op(Phase.COPY, "copy.finish", Kind.HOST, cost=f"host.{label}.copy", share=0.5),
        op(Phase.QUEUE, "queue", Kind.HOST, cost=f"host.{label}.queue"),
        op(
            Phase.PROCESS,
            "process",
            Kind.HOST,
            cost=f"host.{label}.process",
            stream=_SCHEDULE_STREAM,
            writes=(prompt, "allocator"),
        ),
    )


#: operations outside a steady decode iteration, which no decode trace shows
ASSUMED = {
    "host.filter": Cost(
        value=100.0,
        per_batch=1.0,
        status="assumed",
        source="about ten index kernels and their Python at call.launch each; semantics 2.2 expects 100-200 us",
    ),
    "host.merge": Cost(
        value=100.0,
        per_batch=1.0,
        status="assumed",
        source="CPU concatenations and one device concatenation; semantics 2.2 expects 100-200 us",
    ),
    "batch.rows": Cost(
        value=20.0, status="assumed", source="about ten index kernels of 2 us on the schedule stream"
    ),
    "host.prefill.prepare": Cost(
        value=250.0,
        per_batch=15.0,
        status="assumed",
        source="batch building and allocation of a prefill; priced as decode preparation of the same rows",
    ),
    "host.prefill.enter": Cost(value=150.0, status="assumed", source="as a decode's forward entry"),
    "host.prefill.target": Cost(
        value=11_000.0,
        status="assumed",
        source="an eager prefill is bound by its launches; about what churn runs of SGLang 0.5.15 on an H200 show",
    ),
    "prefill.write_rows": Cost(value=5.0, status="assumed", source="one small kernel and two pinned copies"),
    "prefill.input_ids": Cost(value=2.0, status="assumed", source="one pinned copy of the prompt's tokens"),
    "prefill.append": Cost(
        value=100.0,
        per_token=0.35,
        status="assumed",
        source="decode append per token (512 tokens at batch 32) in traces of SGLang 0.5.15 on an H200",
    ),
}


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
        rows=(*_until_forward(v15), *_forward(v15), *_after_forward(v15)),
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
        changed=_changed(v15),
        optional={} if v15 else {"prepare.lengths": switch},
        prefill=_prefill(v15, label),
        bound_us=0.0 if v15 else BOUND_US,
        assumed=ASSUMED,
    )


V0515, V0514 = _template(True), _template(False)
TEMPLATES = {t.engine: t for t in (V0515, V0514)}
