"""One file a section: from stored results to paragraphs, tables and figures. ``SECTIONS`` lists them by name."""

from __future__ import annotations

from collections.abc import Callable

from sim.report.data import StudyData
from sim.report.document import Section
from sim.report.sections import (
    cells,
    curves,
    differences,
    idle,
    latency,
    measured,
    ranking,
    recovered,
    regression,
    timelines,
    winners,
)

SECTIONS: dict[str, Callable[[StudyData], Section]] = {
    "differences": differences.section,
    "recovered": recovered.section,
    "winners": winners.section,
    "ranking": ranking.section,
    "throughput": curves.throughput,
    "cycle": curves.cycle,
    "latency": latency.section,
    "measured": measured.section,
    "idle": idle.section,
    "timelines": timelines.section,
    "map": regression.section,
    "cells": cells.section,
}
