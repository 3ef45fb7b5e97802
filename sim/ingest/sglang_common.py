"""Operations that SGLang's workers share whatever they draft with: rare ones beside a steady decode iteration, and
the prefill up to its publish; and what these cost, which no decode trace shows.
"""

from __future__ import annotations

from typing import Any

from sim.config.profile import Cost
from sim.program.step_program import Kind, Mark, Operation, Phase, StreamName

F, S = StreamName.FORWARD, StreamName.SCHEDULE
#: columns of a request's row that its prefill reads and writes
PROMPT = "req_to_token[0:prompt]"
#: a publish in a program of any of these workers writes it
LENGTHS = "future_map.new_seq_lens[rows]"


def op(phase: Phase, name: str, kind: Kind, **more: Any) -> Operation:
    return Operation(phase=phase, name=name, kind=kind, **more)


def changed_batch(v15: bool) -> tuple[Operation, ...]:
    """Filter and merge of the batch, once in a while (semantics 1.7 rows 2 and 2')."""

    def pair(name: str, fact: str) -> list[Operation]:
        return [
            op(Phase.SCHEDULE, name, Kind.HOST, cost=f"host.{name}", when=(fact,)),
            op(Phase.SCHEDULE, f"{name}.rows", Kind.KERNEL, stream=S, cost="batch.rows", when=(fact,)),
        ]

    drain = op(Phase.SCHEDULE, "filter.allocated", Kind.SYNCHRONIZE, on=S, when=("filtered",))
    return (*pair("filter", "filtered"), *(() if v15 else (drain,)), *pair("merge", "merged"))


def polled(label: str) -> list[Operation]:
    """The poll for requests and the choice of the batch, in every iteration."""
    return [
        op(Phase.RECEIVE, "receive", Kind.HOST, cost=f"host.{label}.receive"),
        op(Phase.SCHEDULE, "schedule", Kind.HOST, cost=f"host.{label}.schedule"),
    ]


def prefill_until_publish(label: str, publish: str) -> list[Operation]:
    """A prefill up to the publish, whose cost is ``publish`` (semantics 1.10)."""
    return [
        *polled(label),
        op(Phase.PREPARE, "prefill.prepare", Kind.HOST, cost="host.prefill.prepare"),
        op(
            Phase.PREPARE,
            "prefill.write_rows",
            Kind.KERNEL,
            stream=S,
            cost="prefill.write_rows",
            writes=(PROMPT, "allocator"),
        ),
        op(Phase.ENTER, "enter.join", Kind.WAIT, stream=F, on=S),
        op(Phase.ENTER, "prefill.enter", Kind.HOST, cost="host.prefill.enter"),
        op(
            Phase.FORWARD, "prefill.input_ids", Kind.COPY, stream=F, cost="prefill.input_ids", direction="h2d"
        ),
        op(
            Phase.FORWARD,
            "prefill.target",
            Kind.KERNEL,
            stream=F,
            cost="prefill.target",
            host="host.prefill.target",
            marks=(Mark.TARGET,),
            reads=(PROMPT,),
            writes=("kv[0:prompt]",),
        ),
        op(Phase.FORWARD, "publish", Kind.PUBLISH, stream=F, cost=publish, writes=(LENGTHS,)),
    ]


def queued_and_processed(label: str, writes: tuple[str, ...]) -> list[Operation]:
    """The end of an iteration: the batch is remembered, the result before it is processed."""
    return [
        op(Phase.QUEUE, "queue", Kind.HOST, cost=f"host.{label}.queue"),
        op(Phase.PROCESS, "process", Kind.HOST, cost=f"host.{label}.process", stream=S, writes=writes),
    ]


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
