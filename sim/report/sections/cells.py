"""Every cell in one table."""

from __future__ import annotations

from sim.report.data import StudyData
from sim.report.document import Section, Table
from sim.report.text import number, short, span


def section(data: StudyData) -> Section:
    rows = []
    for row in data.rows:
        result = row.result
        throughput, cycle = result["throughput_tok_s"], result["cycle_us"]
        rows.append(
            [
                row.variant,
                *(short(value) for value in row.at.values()),
                number(throughput["mean"]),
                span(throughput["ci95"]),
                span(throughput["pi95"]),
                number(cycle["mean"]),
                span(cycle["ci95"]),
                span(cycle["pi95"]),
                number(result["tpot_ms"]["mean"], 3),
                number(result["gpu_busy_fraction"], 3),
                str(result["critical_side"]),
            ]
        )
    headers = [
        "variant",
        *data.factors,
        "throughput, tok/s",
        "ci95",
        "pi95",
        "cycle, µs",
        "ci95",
        "pi95",
        "TPOT, ms",
        "GPU busy",
        "critical side",
    ]
    return Section("All results", [Table(headers, rows)])
