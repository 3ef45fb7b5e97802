"""The calls of a steady decode iteration of SGLang's DFLASH worker, in trace order (semantics 1.7 and 1.8).

Names of kernels are read off traces; the meaning of records and waits is the released source's. ``v15`` is the newer
release, 0.5.15; the two differ in the relay, the fence, the head of the drafter and the stream of the result copies.
"""

from __future__ import annotations

from sim.ingest.sglang_common import F, S
from sim.ingest.template import Row
from sim.program.step_program import Kind, Mark, Phase, StreamName


def decode_rows(v15: bool) -> tuple[Row, ...]:
    """Every row, from the poll for requests to the poll of the next iteration."""
    return (*_until_forward(v15), *_forward(v15), *_after_forward(v15))


def _host(pattern: str, name: str, phase: Phase, section: str, kind: str = "close") -> Row:
    return Row(kind, pattern, "keep", name, phase, section, Kind.HOST)


def _kernel(pattern: str, name: str, section: str, kind: str = "launch", **more: object) -> Row:
    cost = more.pop("cost", f"dflash.{name}")
    return Row(kind, pattern, "keep", name, section=section, stream=F, cost=cost, **more)  # type: ignore[arg-type]


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
        Row("wait", "", "keep", "enter.join", Phase.ENTER, "enter", Kind.WAIT, F, on=S),
        Row(
            "launch",
            "index_elementwise",
            "keep",
            "enter.tokens",
            Phase.ENTER,
            "gather_tokens",
            Kind.KERNEL,
            F,
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
                F,
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
                F,
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
    copy = StreamName.COPY if v15 else F
    rows = [
        Row("record", "", "fold", section="copy") if v15 else None,
        Row("wait", "", "keep", "copy.join", Phase.COPY, "copy", Kind.WAIT, copy, on=F) if v15 else None,
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
            S,
            writes=("allocator",),
        ),
        _host("^iteration$", "receive", Phase.RECEIVE, "receive"),
    ]
    return [r for r in rows if r is not None]
