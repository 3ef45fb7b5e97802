"""What a report is made of: stored results with the study that asked for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.study.spec import StudySpec

#: files of a report, beside its figures
WRITTEN = ("results.json", "resolved.json", "report.html", "report.md")
#: folder of the figures
IMAGES = "figures"


@dataclass(frozen=True)
class Row:
    """The result of one cell: ``result`` is the JSON form of a run's result."""

    variant: str
    at: Mapping[str, Any]
    result: Mapping[str, Any]


@dataclass(frozen=True)
class MeasuredRow:
    """One measured mean cycle, µs."""

    variant: str
    at: Mapping[str, Any]
    cycle_us: float


@dataclass(frozen=True)
class StudyData:
    name: str
    study: StudySpec
    study_sha256: str
    #: what rebuilds the report
    command: str
    version: str
    device: Mapping[str, Any]
    #: factor -> its values, ascending where they are numbers of a span
    factors: Mapping[str, list[Any]]
    rows: list[Row]
    #: variant -> where it was traced, and the timeline
    timelines: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]
    measured: list[MeasuredRow]
    #: combinations left out: variant, factor values, reason
    refused: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)

    def variants(self) -> list[str]:
        """Those that have results: one that is refused everywhere may have been left out."""
        return [variant.name for variant in self.study.variants if variant.name in self._present]

    @cached_property
    def _present(self) -> set[str]:
        return {row.variant for row in self.rows}

    def find(self, variant: str, at: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of ``variant`` at these factor values. Raises KeyError if the study has no such cell."""
        return self._index[variant, frozen(at)]

    def points(self) -> list[dict[str, Any]]:
        """Every combination of factor values, each once, in the study's order."""
        return list({frozen(row.at): dict(row.at) for row in self.rows}.values())

    @cached_property
    def reference(self) -> str:
        """The variant others are compared with: a study whose sections ask for it has one."""
        assert self.study.reference is not None
        return self.study.reference

    @cached_property
    def _index(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        return {(row.variant, frozen(row.at)): row.result for row in self.rows}


def frozen(at: Mapping[str, Any]) -> str:
    """Factor values as something to look up; 1 and 1.0 are the same value."""
    return json.dumps({k: float(v) if isinstance(v, int) else v for k, v in at.items()}, sort_keys=True)
