"""The algorithms the suite runs. ``standalone`` and ``ngram`` are modelled only: the model takes their costs
from other programs, and nothing here measures them."""

from __future__ import annotations

from gpu_validation.spec.base import Worker
from gpu_validation.spec.dflash import BlockDrafter
from gpu_validation.spec.eagle import ChainDrafter
from gpu_validation.spec.none import NoSpeculation
from sim.errors import InputError, Problem

WORKERS: dict[str, type[Worker]] = {w.name: w for w in (NoSpeculation, ChainDrafter, BlockDrafter)}

#: positions verified a row, by kind of speculation: a token, EAGLE's three drafts, the published drafter's
#: block
BLOCKS = {"none": 1, "chain": 4, "block": 16}


def worker_named(name: str) -> type[Worker]:
    """Raises InputError naming the known ones."""
    if name not in WORKERS:
        raise InputError(Problem("--algorithm", f'"{name}"', f"one of {', '.join(WORKERS)}"))
    return WORKERS[name]
