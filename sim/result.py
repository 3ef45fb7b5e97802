"""The result of a simulation and its JSON form (interface: "Result")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A mean with the interval of the mean (``ci95``) and what one new boot would show (``pi95``)."""

    mean: float | None
    ci95: tuple[float, float] | None = None
    pi95: tuple[float, float] | None = None
    median: float | None = None

    def to_json(self, digits: int, median: bool = False) -> dict[str, Any]:
        def rounded(x: float | None) -> float | None:
            return None if x is None else round(x, digits)

        def pair(x: tuple[float, float] | None) -> list[float | None] | None:
            return None if x is None else [rounded(x[0]), rounded(x[1])]

        out: dict[str, Any] = {"mean": rounded(self.mean)}
        if median:
            out["median"] = rounded(self.median)
        return {**out, "ci95": pair(self.ci95), "pi95": pair(self.pi95)}


@dataclass(frozen=True)
class RunResult:
    """Everything one scenario's simulation answers. Times in µs or ms as the names say; see the interface."""

    scenario: dict[str, Any]
    device: dict[str, Any]
    version: str
    seed: int
    replications: int
    throughput_tok_s: Estimate
    cycle_us: Estimate
    steps_per_s: Estimate
    accepted_per_step: dict[str, float | None]
    tpot_ms: dict[str, float | None]
    itl_ms: dict[str, float | None]
    ttft_ms: dict[str, float | None]
    gpu_busy_fraction: float | None
    host_busy_fraction: float | None
    exposed_host_us_per_step: float | None
    launch_lead_us: dict[str, float | None]
    run_ahead_fraction: float | None
    barrier_fallback_fraction: float | None
    direct_carry_fraction: float | None
    idle_us_per_step: dict[str, float]
    critical_side: str | None
    cost_share_by_status: dict[str, float]
    extrapolated: list[str]
    #: None: hazards were not checked in this run
    hazards: list[dict[str, Any]] | None
    iterations: int
    prefill_iterations: int
    mean_context: float | None
    notes: list[str]
    wall_s: float
    #: per replication, for paired comparisons: throughput (tok/s) and mean cycle (µs) at the central host state,
    #: and at each node of the host state
    samples: dict[str, Any]
    #: ``algorithm@engine`` of the step program
    program: str

    def to_json(self) -> dict[str, Any]:
        """The interface's shape; keys in its order, then what this version adds."""
        return {
            "scenario": self.scenario,
            "device": self.device,
            "version": self.version,
            "seed": self.seed,
            "replications": self.replications,
            "throughput_tok_s": self.throughput_tok_s.to_json(3),
            "cycle_us": self.cycle_us.to_json(3, median=True),
            "steps_per_s": self.steps_per_s.to_json(4),
            "accepted_per_step": self.accepted_per_step,
            "tpot_ms": self.tpot_ms,
            "itl_ms": self.itl_ms,
            "ttft_ms": self.ttft_ms,
            "gpu_busy_fraction": self.gpu_busy_fraction,
            "host_busy_fraction": self.host_busy_fraction,
            "exposed_host_us_per_step": self.exposed_host_us_per_step,
            "launch_lead_us": self.launch_lead_us,
            "run_ahead_fraction": self.run_ahead_fraction,
            "barrier_fallback_fraction": self.barrier_fallback_fraction,
            "direct_carry_fraction": self.direct_carry_fraction,
            "idle_us_per_step": self.idle_us_per_step,
            "critical_side": self.critical_side,
            "cost_share_by_status": self.cost_share_by_status,
            "extrapolated": self.extrapolated,
            "hazards": self.hazards,
            "iterations": self.iterations,
            "prefill_iterations": self.prefill_iterations,
            "mean_context": self.mean_context,
            "notes": self.notes,
            "samples": self.samples,
            "program": self.program,
            "wall_s": self.wall_s,
        }
