"""The validation's report, from its stored ``results.json`` alone: verdicts, tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from sim.files import write_atomically
from sim.report import markdown, style
from sim.report.document import Document, Figure, Section, Table
from sim.report.text import number, percent, percent_span, span

Claim = Mapping[str, Any]
#: quantity → (heading, whether it is a share)
QUANTITIES = {
    "cycle_us": ("Mean cycle, µs", False),
    "throughput_tok_s": ("Throughput, tok/s", False),
    "cycle_change": ("Change of the mean cycle", True),
    "gpu_busy_fraction": ("GPU busy, by spans", True),
}
#: marks in turn for as many configurations as there are colours, so that no two look alike
MARKS = ("o", "D", "^")
WORDS = {"holds": "holds", "fails": "**fails**", "cannot_tell": "cannot tell"}


def write(results: Mapping[str, Any], folder: Path) -> Path:
    """Writes report and figures into ``folder``, which exists; returns the report. Equal results give equal files."""
    document = build(results)
    images = folder / "figures"
    images.mkdir(exist_ok=True)
    for figure in document.figures():
        style.save(figure.draw, images, figure.name)
    path = folder / "report.md"
    write_atomically(path, markdown.render(document))
    return path


def build(results: Mapping[str, Any]) -> Document:
    claims = results["claims"]
    of = {q: [c for c in claims if c["quantity"] == q] for q in QUANTITIES}
    return Document(
        title=f"The model against {results['device']['device']}",
        question="Every policy is run for real, and what the model predicts of it, from calibration runs beforehand, "
        "is held against what was measured. Calibration used no cycle of any configuration.",
        verdict=[_sentence(q, found) for q, found in of.items() if found],
        sections=[
            Section("Changes from one policy to another", _changes(of["cycle_change"])),
            Section("Cells", _cells(of["cycle_us"], results["fitted"])),
            Section("Throughput", [_table("throughput_tok_s", of["throughput_tok_s"])]),
            *(
                [Section("GPU busy", [_table("gpu_busy_fraction", of["gpu_busy_fraction"])])]
                * bool(of["gpu_busy_fraction"])
            ),
            Section("Measurements", [_notes(results), _measurements(results["cells"])]),
        ],
        provenance=_provenance(results),
    )


def _sentence(quantity: str, claims: Sequence[Claim]) -> str:
    heading, _ = QUANTITIES[quantity]
    counts = Counter(c["verdict"] for c in claims)
    errors = [abs(c["error"]) for c in claims]
    worst = max(claims, key=lambda c: abs(c["error"]))
    unit = "%" if quantity in ("cycle_us", "throughput_tok_s") else "percentage points"
    return (
        f"{heading.split(',')[0]}: {counts['holds']} of {len(claims)} claims hold, {counts['fails']} fail, "
        f"{counts['cannot_tell']} cannot be told; error {100 * fmean(errors):.2f} {unit} on average, "
        f"{100 * max(errors):.2f} {unit} at most (`{worst['id']}`)"
    )


def _changes(claims: Sequence[Claim]) -> list[Any]:
    figure = Figure(
        "changes",
        "Predicted against measured change of the mean cycle, one point a cell and pair of policies, on the diagonal "
        "where they agree",
        "Predicted against measured change of the mean cycle, with both intervals; the band is the tolerance. Left: "
        "all; right: those below 1.5 %.",
        partial(_draw_changes, claims),
    )
    return [figure, _table("cycle_change", claims)]


def _cells(claims: Sequence[Claim], fitted: Sequence[str]) -> list[Any]:
    figure = Figure(
        "cells",
        "Error of the predicted mean cycle of every cell, one point a configuration",
        "Error of the predicted mean cycle, with the interval of the measured one; the band is the tolerance.",
        partial(_draw_cells, claims),
    )
    names = ", ".join(f"`{name}`" for name in fitted)
    note = f"Fits, since their batch was calibrated in this configuration (not their cycles): {names}"
    return [figure, note, _table("cycle_us", claims)]


def _table(quantity: str, claims: Sequence[Claim]) -> Table:
    _, share = QUANTITIES[quantity]
    value: Callable[[Any], str] = percent if share else number
    interval: Callable[[Any], str] = percent_span if share else span
    if quantity == "gpu_busy_fraction":  # a share, no change: no sign
        value, interval = _unsigned(value), _unsigned(interval)
    rows = [
        [
            c["id"],
            value(c["predicted"]),
            interval(c["predicted_interval"]),
            value(c["measured"]),
            interval(c["measured_interval"]),
            f"{100 * c['error']:+.2f}".replace("-", "−"),
            WORDS[c["verdict"]],
        ]
        for c in claims
    ]
    error = "error, points" if share else "error, %"
    return Table(["claim", "predicted", "interval", "measured", "interval", error, "verdict"], rows)


def _unsigned(form: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: form(value).replace("+", "")


def _notes(results: Mapping[str, Any]) -> list[str]:
    return [
        f"{results['starts']} process starts. Measured values are means over them, uncorrected; predicted ones are "
        "means over the same starts, each for the speed that the host had in it.",
        "The host of a shared machine changes speed. How fast it was in a run is told by the launches behind the "
        "first graph, which all policies make alike, over what the profile states for them (1: as calibrated). No "
        "claim is about these launches, and nothing is fitted to what was measured.",
        "Changes are stated at the calibrated speed: what the unlike speeds of the two runs explain is taken off the "
        "measured one (`as_measured` in results.json is without that).",
        "Errors are taken start by start; their interval is Student's t over the starts. The interval beside a "
        "measured value is that part of its uncertainty.",
        "A cycle is left out as disturbed where it exceeds 1.25 times the median of its iteration over all runs of "
        "its configuration: a shared machine stops its guests now and then.",
        "Token digests: until the first request finishes all runs of a cell must commit the same tokens (1 is "
        "right).",
    ]


def _measurements(cells: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            c["name"],
            str(c["starts"]),
            number(c["context"]),
            f"{c['host_speed']:.2f}",
            f"{c['disturbed']} of {c['cycles']}",
            str(c["digests"]),
            percent(c["half_width"]),
            str(c["critical_side"]),
        ]
        for c in cells
    ]
    headers = [
        "cell",
        "process starts",
        "mean context",
        "speed of the host",
        "cycles disturbed",
        "token digests",
        "largest half-width of a cycle's error",
        "the model says bound by",
    ]
    return Table(headers, rows)


def _provenance(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("command", f"`{results['command']}`"),
        *((f"device: {k}", v) for k, v in results["device"].items()),
        ("order of operations", results["semantics"]),
        *((f"profile `{name}`", f"sha256 `{sha}`") for name, sha in results["profiles"].items()),
        ("version", f"overlapsim {results['version']}"),
    ]


# -- figures ------------------------------------------------------------------------------------------------------


def _draw_changes(claims: Sequence[Claim]) -> Canvas:
    canvas = style.canvas(9.0, 4.2)
    names = list(dict.fromkeys(c["id"].split(": ")[1] for c in claims))
    colours = style.colours(names, None)
    every, small = canvas.subplots(1, 2)
    for axes, limit in ((every, None), (small, 1.5)):
        shown = [c for c in claims if limit is None or abs(100 * c["measured"]) < limit]
        _diagonal(axes, shown, 100 * claims[0]["tolerance"])
        for c in shown:
            _point(axes, c, colours[c["id"].split(": ")[1]])
        axes.set_xlabel("measured change of the mean cycle, %")
    every.set_ylabel("predicted change, %")
    for name in names:
        every.plot([], [], "o", color=colours[name], label=name, markersize=4)
    canvas.legend(loc="outside lower center", ncols=3)
    return canvas


def _diagonal(axes: Axes, claims: Sequence[Claim], tolerance: float) -> None:
    values = [100 * c[k] for c in claims for k in ("measured", "predicted")] or [0.0]
    low, high = min(values) - tolerance, max(values) + tolerance
    axes.plot([low, high], [low, high], color=style.GREY, linewidth=0.8)
    axes.fill_between(
        [low, high],
        [low - tolerance, high - tolerance],
        [low + tolerance, high + tolerance],
        color=style.GRID,
    )


def _point(axes: Axes, c: Claim, colour: str) -> None:
    x, y = 100 * c["measured"], 100 * c["predicted"]
    if c["measured_interval"] is not None:
        axes.plot([100 * end for end in c["measured_interval"]], [y, y], color=colour, linewidth=0.7)
    if c["predicted_interval"] is not None:
        axes.plot([x, x], [100 * end for end in c["predicted_interval"]], color=colour, linewidth=0.7)
    axes.plot([x], [y], "o", color=colour, markersize=3.5)


def _draw_cells(claims: Sequence[Claim]) -> Canvas:
    canvas = style.canvas(9.0, 4.0)
    axes = canvas.subplots()
    cells = list(dict.fromkeys(c["id"].split(": ")[0] for c in claims))
    names = list(dict.fromkeys(c["scenario_a"].removeprefix(c["id"].split(": ")[0] + "-") for c in claims))
    colours = style.colours(names, None)
    marks = {name: MARKS[i // len(style.COLOURS)] for i, name in enumerate(names)}
    tolerance = 100 * claims[0]["tolerance"]
    axes.axhspan(-tolerance, tolerance, color=style.GRID)
    axes.axhline(0.0, color=style.GREY, linewidth=0.8)
    for c in claims:
        cell = c["id"].split(": ")[0]
        name = c["scenario_a"].removeprefix(cell + "-")
        x = cells.index(cell) + (names.index(name) - (len(names) - 1) / 2) * 0.07
        y = 100 * c["error"]
        if c["error_interval"] is not None:
            low, high = (100 * end for end in c["error_interval"])
            axes.plot([x, x], [low, high], color=colours[name], linewidth=0.8)
        axes.plot([x], [y], marks[name], color=colours[name], markersize=3)
    for name in names:
        axes.plot([], [], marks[name], color=colours[name], label=name, markersize=4)
    axes.set_xticks(range(len(cells)), cells)
    axes.set_ylabel("predicted against measured mean cycle, %")
    canvas.legend(loc="outside lower center", ncols=6)
    return canvas
