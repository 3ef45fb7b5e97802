"""What one process start measures for validation: every configuration of one model at one concurrency.

Configurations are visited forwards, then backwards (A B C … C B A), so that a drift of the machine falls on all of
them alike; odd starts begin at the other end. Runs of one configuration commit the same tokens at the same iteration
as all others, which is checked here, so iterations pair by index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_validation import settings
from gpu_validation.configurations import CONFIGURATIONS, policies_of
from gpu_validation.observe.run_record import RunRecord
from gpu_validation.runtime.build import Built, run_once
from gpu_validation.runtime.server import RunOptions

Say = Callable[[str], None]

#: seconds one pass over the configurations may take before the second one is left out
SECOND_VISIT_S = 12.0


def measure_block(
    built: Built, concurrency: int, load: settings.Load, start: int, say: Say
) -> dict[str, Any]:
    """Cycles, contexts and throughput of every configuration; each visit is one entry."""
    names = list(CONFIGURATIONS)
    if start % 2:
        names.reverse()
    # One run nobody keeps: clocks, caches and lazily loaded code settle.
    _visit(built, names[0], concurrency, load)
    visits: list[dict[str, Any]] = []
    took = 0.0
    for name in names:
        visits.append(_visit(built, name, concurrency, load))
        took += visits[-1]["duration_ns"] / 1e9
    if took < SECOND_VISIT_S:
        visits += [_visit(built, name, concurrency, load) for name in reversed(names)]
    digests = sorted({v["tokens_sha256"] for v in visits})
    say(f"{built.setting.shape.name} at {concurrency}: {len(visits)} runs, {len(digests)} token digests")
    return {
        "model": built.setting.shape.name,
        "algorithm": built.worker.name,
        "concurrency": concurrency,
        "visits": visits,
    }


def _visit(built: Built, name: str, concurrency: int, load: settings.Load) -> dict[str, Any]:
    record = run_once(
        built,
        policies_of(CONFIGURATIONS[name]),
        load.workload(built.setting.block, concurrency),
        RunOptions(concurrency, work=load.work),
    )
    return {
        "configuration": name,
        "cycles_ns": record.cycles_ns(),
        "contexts": [round(c, 2) for c in record.contexts()],
        "duration_ns": record.duration_ns,
        "output_tokens": record.output_tokens,
        "tokens_sha256": record.tokens_sha256,
        "sections_ns": _means(record),
    }


def _means(record: RunRecord) -> dict[str, int]:
    """Mean of each section over the steady passes: what the host did, to explain a disagreement."""
    steady = [record.passes[i] for i in record.steady()]
    names = dict.fromkeys(name for p in steady for name in p.sections)
    return {name: round(sum(p.sections.get(name, 0) for p in steady) / len(steady)) for name in names}
