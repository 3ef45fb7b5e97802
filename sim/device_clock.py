"""How much a device's clock gains from its pauses: for what share of its time it idles, when graphs depend on that.

A device under work without a pause runs into its power or current limit and lowers its clock; one that waits for its
host between two forwards runs the next one faster. So what a policy costs in idle time it wins back in part. The
clock follows the load over many iterations, far more slowly than one forward, so it is one number for a run: the idle
share at which the run's own idle share comes out again.
"""

from __future__ import annotations

from sim.config.resolve import Resolved
from sim.replication import Replication

#: the share is known to this; mostly after two or three rounds, else it is enclosed
PRECISION, ROUNDS = 0.002, 5


def settled_idle_share(resolved: Resolved) -> float:
    """The idle share of the first replication's forward stream, from its first forward to its last; 0.0, without a
    run, where no cost of the profile depends on it.

    A run that just makes or just misses a wait can make the share that comes out jump with the one that goes in, so
    that none comes out again: then the answer is where it jumps.
    """
    if not any(cost.relief for cost in resolved.profile.costs.values()):
        return 0.0

    def found(share: float) -> float:
        return _idle_share(Replication(resolved, 0, idle_share=share).run())

    share = 0.0
    for _ in range(ROUNDS):
        before, share = share, found(share)
        if abs(share - before) < PRECISION:
            return share
    low, high = 0.0, 1.0
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle) > middle else (low, middle)
    return (low + high) / 2


def _idle_share(run: Replication) -> float:
    idle = sum(run.machine.idle)
    time = idle + run.machine.busy
    return idle / time if time else 0.0
