"""The policy configurations that are measured, as the keys a scenario has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.capabilities import Barrier, BarrierPlacement, HostLengths, PrepStream, Relay
from sim.program.policies import PLATFORMS, Policies

Keys = Mapping[str, Any]


def _overlapped(relay: Relay, lengths: HostLengths, barrier: Barrier, stream: PrepStream) -> dict[str, Any]:
    return {
        "relay": str(relay),
        "host_lengths": str(lengths),
        "barrier": str(barrier),
        "prep_stream": str(stream),
    }


_U, _D = Relay.UNIFIED, Relay.DIRECT_CARRY
_N, _B, _E, _L = HostLengths.NONE, HostLengths.BOUND, HostLengths.EXACT, HostLengths.EXACT_DEFERRED
_R, _S, _P = Barrier.READ_DONE, PrepStream.SCHEDULE, PrepStream.PLAN

#: the configuration that calibration runs
CALIBRATED = "unified_none"

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "direct_bound": _overlapped(_D, _B, _R, _S),
    "unified_none": _overlapped(_U, _N, _R, _S),
    "unified_bound": _overlapped(_U, _B, _R, _S),
    "unified_exact": _overlapped(_U, _E, _R, _S),
    "unified_deferred": _overlapped(_U, _L, _R, _S),
    "unguarded": _overlapped(_U, _N, Barrier.UNGUARDED, _S),
    "coarse": _overlapped(_U, _N, Barrier.COARSE, _S),
    "plan_stream": _overlapped(_U, _N, _R, _P),
    "fence": _overlapped(_D, _B, Barrier.SELF_FENCE, _S),
    "fence_plan": _overlapped(_D, _B, Barrier.SELF_FENCE, _P),
    "synchronous": {"overlap": False, "host_lengths": str(_N)},
}

#: those whose policies order every write to shared buffers (semantics 4); the others are measured, not recommended
SAFE = (
    "direct_bound",
    "unified_none",
    "unified_bound",
    "unified_exact",
    "unified_deferred",
    "coarse",
    "plan_stream",
)


def policies_of(keys: Keys, platform: str = "cuda") -> Policies:
    """Policies of a configuration, as the simulator resolves the same keys, in the order of operations of
    ``platform``."""
    return Policies(
        relay=Relay(keys.get("relay", _U)),
        host_lengths=HostLengths(keys["host_lengths"]),
        barrier=Barrier(keys.get("barrier", Barrier.UNGUARDED)),
        placement=BarrierPlacement(keys.get("barrier_placement", BarrierPlacement.LOOP_TOP)),
        prep_stream=PrepStream(keys.get("prep_stream", _S)),
        overlap=keys.get("overlap", True),
        platform=PLATFORMS[platform],
        pinned=keys.get("pinned", True),
    )
