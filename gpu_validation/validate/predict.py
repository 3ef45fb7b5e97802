"""The model's answers for the measured cells, from the calibration's files alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_validation import settings
from gpu_validation.calibrate.profile_file import ENGINE, profile_name
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS
from gpu_validation.observe.host_speed import stated_us
from gpu_validation.validate.claims import Cell
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


class Predictions:
    """Results of the model by cell and configuration, computed once. ``configs`` holds devices/ and algorithms/."""

    def __init__(
        self, configs: Path, device: str, algorithm: str, load: settings.Load, semantics: str = "cuda"
    ):
        self._configs, self._device, self._load, self._semantics = configs, device, load, semantics
        self._program = configs / "algorithms" / f"{algorithm}@{ENGINE}.toml"
        self._results: dict[tuple[Cell, str], Mapping[str, Any]] = {}
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

    def change(self, cell: Cell, a: str, b: str) -> tuple[float, tuple[float, float] | None]:
        """Relative change of the cycle from a to b, and its interval for one new boot."""
        pair = paired(self.result(cell, a), self.result(cell, b), "cycle_us")
        if pair is None:
            raise InputError(
                Problem(cell.name, "a run too short for a cycle", "at least eight full-batch cycles")
            )
        return pair.relative.mean, pair.relative.pi95
