"""CPU-side costs of single calls, measured unprofiled through the framework: ``{name: [median, p10, p90], …}`` in µs.

Without such a file the defaults below are used, with status ``assumed``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sim.config.profile import Cost
from sim.errors import InputError, Problem
from sim.files import unreadable

#: calls a profile needs: cost name → name in a primitives file, and the default where there is none (µs; medians of
#: the H200 data set, rounded)
CALLS = {
    "call.launch": ("kernel_launch_cpu(add_)", 6.5),
    "call.graph": ("graph_replay_cpu_400", 3.1),
    "call.copy": ("d2h_pinned_nb_cpu(4096 i64)", 3.5),
    "call.record": ("event_record_cpu", 5.3),
    "call.wait": ("event_wait_cpu", 5.3),
    "call.synchronize": ("event_sync_done", 0.6),
}
#: further figures that other costs are made of
OTHERS = {
    "wait_stream_cpu": 3.0,
    "kernel+sync roundtrip": 11.4,
    "d2h+sync roundtrip(32 i64)": 8.3,
    ".cpu() 32 i64": 10.6,
}
#: from the tenth to the ninetieth percentile of a normal distribution, in standard deviations
P10_TO_P90 = 2 * 1.2816


@dataclass(frozen=True)
class Primitives:
    """Medians (µs) and relative spreads by name; ``path`` is empty for the defaults."""

    path: str
    medians: dict[str, float]
    spreads: dict[str, float]

    def __getitem__(self, name: str) -> float:
        if name in self.medians:
            return self.medians[name]
        return next((default for given, default in CALLS.values() if given == name), OTHERS.get(name, 0.0))

    def cost(self, name: str) -> Cost:
        """The cost of a call."""
        given, default = CALLS[name]
        if given not in self.medians:
            return Cost(
                value=default,
                boot_sd=0.3,
                status="assumed",
                source="an H200 host's median; no primitive given",
            )
        return Cost(
            value=self.medians[given],
            within_sd=round(self.spreads[given], 3),
            status="measured",
            source=f"{self.path}: {given}",
        )


DEFAULTS = Primitives("", {}, {})


def read_primitives(path: Path) -> Primitives:
    """Reads a primitives file.

    Raises:
        InputError: unreadable, no JSON object, or a figure that is neither positive nor [median, p10, p90].
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        found = unreadable(error)
        raise InputError(
            Problem(str(path), found, "a JSON file of primitive costs", "Check the path.")
        ) from None
    if not isinstance(document, dict):
        raise InputError(
            Problem(str(path), f"a JSON {type(document).__name__}", "an object of name → figures")
        )
    medians, spreads, problems = {}, {}, []
    for name, given in document.items():
        if isinstance(given, str):
            continue  # device and versions
        figures = given if isinstance(given, list) else [given, given, given]
        if len(figures) != 3 or not all(
            isinstance(x, int | float) and not isinstance(x, bool) and 0 < x < 1e9 for x in figures
        ):
            problems.append(Problem(f"{path}: {name}", repr(given)[:60], "µs, or [median, p10, p90] in µs"))
            continue
        medians[name] = float(figures[0])
        spreads[name] = max(0.0, float(figures[2]) - float(figures[1])) / P10_TO_P90 / float(figures[0])
    if problems:
        raise InputError(problems)
    return Primitives(path.name, medians, spreads)
