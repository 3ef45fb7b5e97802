"""The model's answers for the measured cells, from the calibration's files alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_validation import settings
from gpu_validation.calibrate.profile_file import ENGINE, profile_name
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS
from gpu_validation.observe.host_speed import stated_us
from gpu_validation.validate.claims import Cell
from gpu_validation.validate.host_speed_profile import at_speed
from sim.config.resolve import Resolved, resolve
from sim.config.scenario import Scenario
from sim.errors import InputError, Problem
from sim.run import simulate
from sim.stats.paired import paired


def scenario_keys(
    cell: Cell, configuration: str, device: str, algorithm: str, load: settings.Load, semantics: str
) -> dict[str, Any]:
    """The scenario that a measured run is: same policies, load, graph batches and luck."""
    return {
        "device": device,
        "algorithm": algorithm,
        **CONFIGURATIONS[configuration],
        "platform": semantics,
        "serving": {
            "max_running_requests": load.sizes.rows,
            "graph_batches": list(load.batches),
        },
        "workload": {
            "concurrency": cell.concurrency,
            "requests": cell.concurrency,
            "prompt_tokens": load.prompt,
            "output_tokens": load.output,
        },
        "acceptance": {"model": "truncated_geometric", "mean_accepted_drafts": settings.MEAN_ACCEPTED},
        "run": {"seed": settings.SEED, "replications": 1},
    }


#: speeds of the host at which predictions are computed; between them they lie on straight lines
SPEEDS = (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)


class Predictions:
    """Results of the model by cell and configuration, computed once. ``configs`` holds devices/ and algorithms/."""

    def __init__(
        self, configs: Path, device: str, algorithm: str, load: settings.Load, semantics: str = "cuda"
    ):
        self._configs, self._device, self._load, self._semantics = configs, device, load, semantics
        self._program = configs / "algorithms" / f"{algorithm}@{ENGINE}.toml"
        self._results: dict[tuple[Cell, str], Mapping[str, Any]] = {}
        self._at_speeds: dict[tuple[Cell, str, float], dict[str, float]] = {}
        self._profiles: dict[str, str] = {}

    def resolved(self, cell: Cell, configuration: str) -> Resolved:
        """Raises InputError where the calibration of the cell's model is missing."""
        path = self._configs / "devices" / f"{profile_name(self._device, cell.model)}.toml"
        missing = [p for p in (path, self._program) if not p.is_file()]
        if missing:
            raise InputError(
                Problem(
                    f"{missing[0]}",
                    "no such file",
                    "what `overlapsim gpu calibrate` writes",
                    "Calibrate first, or name the folder with --configs and the device with --device.",
                )
            )
        keys = scenario_keys(cell, configuration, str(path), str(self._program), self._load, self._semantics)
        return resolve(Scenario.model_validate(keys))

    def witness_us(self, cell: Cell) -> float:
        """The host's speed that the cell's costs are stated at (:mod:`gpu_validation.observe.host_speed`)."""
        resolved = self.resolved(cell, CALIBRATED)
        return stated_us(resolved.profile, resolved.program, cell.concurrency)

    def result(self, cell: Cell, configuration: str) -> Mapping[str, Any]:
        """The result's JSON form."""
        key = cell, configuration
        if key not in self._results:
            result = simulate(self.resolved(cell, configuration), hazards=False).to_json()
            self._results[key] = result
            self._profiles[result["device"]["name"]] = result["device"]["sha256"]
        return self._results[key]

    @property
    def profiles(self) -> dict[str, str]:
        """SHA-256 by name of the profiles used so far."""
        return dict(sorted(self._profiles.items()))

    def at_speed(self, cell: Cell, configuration: str, quantity: str, speed: float) -> float:
        """A quantity on a host of ``speed`` times the calibrated one's times: a straight line between the two of
        :data:`SPEEDS` around it."""
        after = min(max(bisect_left(SPEEDS, speed), 1), len(SPEEDS) - 1)
        low, high = SPEEDS[after - 1], SPEEDS[after]
        share = min(max((speed - low) / (high - low), 0.0), 1.0)
        at = [
            self._central(cell, configuration, s)[quantity] if w else 0.0
            for s, w in ((low, 1 - share), (high, share))
        ]
        return at[0] * (1 - share) + at[1] * share

    def _central(self, cell: Cell, configuration: str, speed: float) -> dict[str, float]:
        key = cell, configuration, speed
        if key not in self._at_speeds:
            resolved = self.resolved(cell, configuration)
            profile = at_speed(resolved.profile, resolved.program, self._load.work, speed)
            found = simulate(replace(resolved, profile=profile), hazards=False, new_boots=False).to_json()
            cycle, throughput = found["cycle_us"]["mean"], found["throughput_tok_s"]["mean"]
            if cycle is None:
                raise InputError(
                    Problem(cell.name, "a run too short for a cycle", "at least eight full-batch cycles")
                )
            self._at_speeds[key] = {
                "cycle_us": cycle,
                "throughput_tok_s": throughput,
                "gpu_busy_fraction": found["gpu_busy_fraction"],
            }
        return self._at_speeds[key]

    def change_of_a_new_boot(self, cell: Cell, a: str, b: str) -> tuple[float, float] | None:
        """Interval of the relative change of the cycle from a to b over the host states a boot may be in."""
        pair = paired(self.result(cell, a), self.result(cell, b), "cycle_us")
        return None if pair is None else pair.relative.pi95
