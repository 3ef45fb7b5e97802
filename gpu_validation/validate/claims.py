"""Claims are data: what is predicted of which scenarios, how well, and why that well; ``claims.toml`` expanded."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from gpu_validation.configurations import CONFIGURATIONS

Quantity = Literal["cycle_us", "throughput_tok_s", "cycle_change", "gpu_busy_fraction"]


@dataclass(frozen=True)
class Cell:
    """One model at one concurrency."""

    model: str
    concurrency: int

    @property
    def name(self) -> str:
        return f"{self.model}-c{self.concurrency}"


@dataclass(frozen=True)
class Claim:
    """``b`` is None where the claim is about one scenario. ``tolerance``: a share of the measured value for a cycle
    or a throughput, an absolute difference of shares else."""

    name: str
    cell: Cell
    quantity: Quantity
    a: str
    b: str | None
    tolerance: float
    source: str

    @property
    def id(self) -> str:
        return f"{self.cell.name}: {self.name}"


def claims(cells: Iterable[Cell], best: dict[Cell, str]) -> list[Claim]:
    """Every claim about the cells. ``best``: the configuration whose busy share is claimed, where one is."""
    stated = tomllib.loads((resources.files(__package__) / "claims.toml").read_text(encoding="utf-8"))
    busy = stated["busy"]
    out = []
    for cell in cells:
        for each in stated["each"]:
            for name in CONFIGURATIONS:
                label = f"{each['id']} of {name}"
                out.append(
                    Claim(label, cell, each["quantity"], name, None, each["tolerance"], each["source"])
                )
        for change in stated["change"]:
            out.append(
                Claim(
                    change["id"],
                    cell,
                    "cycle_change",
                    change["a"],
                    change["b"],
                    change["tolerance"],
                    change["source"],
                )
            )
        if cell in best:
            label = f"{busy['id']} of {best[cell]}"
            out.append(
                Claim(label, cell, busy["quantity"], best[cell], None, busy["tolerance"], busy["source"])
            )
    return out
