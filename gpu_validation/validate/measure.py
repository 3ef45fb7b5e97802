"""What one process start measures for validation: every configuration of one model at one concurrency.

Configurations are visited forwards, then backwards (A B C … C B A), and so on for as long as that is quick, so that a
drift of the machine falls on all of them alike; odd starts begin at the other end. Runs of all configurations commit
as many tokens at the same iteration, so iterations pair by index; overlapped runs commit the very same tokens, the
synchronous one until the first request finishes (it runs no zombie, so its batches shrink one step earlier and round
differently).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpu_validation import settings
from gpu_validation.calibrate.measure import measured, warm_up
from gpu_validation.configurations import CONFIGURATIONS, policies_of
from gpu_validation.observe.host_speed import witness
from gpu_validation.observe.host_state import HostState
from gpu_validation.observe.run_record import RunRecord
from gpu_validation.observe.segments import WHOLE
from gpu_validation.runtime.build import Built, run_once
from gpu_validation.runtime.server import RunOptions
from gpu_validation.spec.program import step_program

Say = Callable[[str], None]

#: most passes over the configurations of a cell
PASSES = 6


def measure_block(
    built: Built,
    concurrency: int,
    load: settings.Load,
    semantics: str,
    start: int,
    host: HostState,
    say: Say,
) -> dict[str, Any]:
    """Cycles, contexts and throughput of every configuration, each visit one entry; and the forward's own time.

    ``semantics``: the platform whose order of operations all of them take.
    """
    names = list(CONFIGURATIONS)
    if start % 2:
        names.reverse()

    def visit(name: str) -> dict[str, Any]:
        before = host.settle()
        entry = _visit(built, name, concurrency, load, semantics)
        return {**entry, "host_us": [round(before, 2), round(host.now_us(), 2)]}

    warm_up(lambda: _run(built, names[0], concurrency, load, semantics))
    visits: list[dict[str, Any]] = []
    began = time.perf_counter()
    for done in range(PASSES):
        # The next pass takes as long as those before.
        if done and (time.perf_counter() - began) * (done + 1) / done > load.visited_s:
            break
        visits += [visit(name) for name in (reversed(names) if done % 2 else names)]
    spans = _spans(measured(built, concurrency, "spans", load))
    digests = len({v["tokens_sha256"] for v in visits}), len({v["full_sha256"] for v in visits})
    say(
        f"{built.setting.shape.name} at {concurrency}: {len(visits)} runs, token digests {digests[0]}, before the "
        f"first finish {digests[1]}; host best {host.best_us:.0f} us"
    )
    return {
        "model": built.setting.shape.name,
        "algorithm": built.worker.name,
        "concurrency": concurrency,
        "semantics": semantics,
        "visits": visits,
        "spans": spans,
    }


def _run(built: Built, name: str, concurrency: int, load: settings.Load, semantics: str) -> RunRecord:
    return run_once(
        built,
        policies_of(CONFIGURATIONS[name], semantics),
        load.workload(built.setting.block, concurrency),
        RunOptions(concurrency, work=load.work),
    )


def _visit(built: Built, name: str, concurrency: int, load: settings.Load, semantics: str) -> dict[str, Any]:
    record = _run(built, name, concurrency, load, semantics)
    return {
        "configuration": name,
        "cycles_ns": record.cycles_ns(),
        "witness_us": [
            round(us, 3) for us in record.witness_us(witness(step_program(built.worker, "suite")))
        ],
        "contexts": [round(c, 2) for c in record.contexts()],
        "duration_ns": record.duration_ns,
        "output_tokens": record.output_tokens,
        "tokens_sha256": record.tokens_sha256,
        "full_sha256": record.full_sha256,
        "sections_ns": _means(record),
    }


def _spans(record: RunRecord) -> dict[str, list[float]]:
    """Device time of whole forwards as they ran, at their contexts: full decode batches."""
    timed = [i for i in record.steady() if WHOLE in record.segments_us[i]]
    return {
        "forward_us": [record.segments_us[i][WHOLE] for i in timed],
        "contexts": [round(record.passes[i].context, 2) for i in timed],
    }


def _means(record: RunRecord) -> dict[str, int]:
    """Mean of each section over the steady passes: what the host did, to explain a disagreement."""
    steady = [record.passes[i] for i in record.steady()]
    names = dict.fromkeys(name for p in steady for name in p.sections)
    return {name: round(sum(p.sections.get(name, 0) for p in steady) / len(steady)) for name in names}
