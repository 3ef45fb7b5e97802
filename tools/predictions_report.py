#!/usr/bin/env python
"""Draws the report on the H200 predictions from the stored ones, and checks the traces against themselves once more.

    python tools/predictions_report.py [--data data/sglang_h200] [--out reports/h200_predictions]

Reads ``blind.json`` (``tools/predict_h200.py``) and ``older_release.json`` (``tools/predict_h200_older.py``) in the
folder; writes ``report.md``, ``report.html`` and the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Canvas

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from sim.config.declarations import load_profile  # noqa: E402
from sim.config.profile import DeviceProfile, at_batch  # noqa: E402
from sim.files import write_atomically  # noqa: E402
from sim.ingest.check import Check, self_check  # noqa: E402
from sim.ingest.pipeline import ingest  # noqa: E402
from sim.report import html, markdown, style  # noqa: E402
from sim.report.document import Block, Document, Figure, Section, Table  # noqa: E402
from sim.report.figures.axes import over  # noqa: E402
from sim.report.text import microseconds, number, percent, span  # noqa: E402

Rows = list[dict[str, Any]]
ENGINES = ("0.5.15", "0.5.14")
ENDS = (1, 32)
CLOSE = 0.02
#: the exposed path of exact lengths: what it is → cost names, their sign (device work that hides it counts against)
PATH: dict[str, tuple[tuple[str, ...], int]] = {
    "event to the private stream": (("hop.cross_stream",), 1),
    "copy of the lengths": (("lengths.copy",), 1),
    "wake of the host": (("call.wake",), 1),
    "index and sum of the mirror, bound and its sum": (("host.lengths.mirror",), 1),
    "forward entry and isolation": (("host.v0515.enter",), 1),
    "launch of the token gather": (("host.v0515.gather_tokens",), 1),
    "draft preparation up to the graph's launch": (("host.v0515.draft",), 1),
    "append to the draft KV, behind publish": (
        tuple(f"dflash.append.{part}" for part in ("project", "norm", "kv_gemm", "rope", *["store"] * 5)),
        -1,
    ),
    "stash": (("dflash.stash.cast", "dflash.stash"), -1),
}


# -- figures ----------------------------------------------------------------------------------------------------


def draw_blind(rows: Rows) -> Canvas:
    """Difference to the default over concurrency, a panel for each pair of like size."""
    panels = {
        "Host lengths": ("exact lengths", "exact lengths, deferred"),
        "Barrier and plan stream": ("coarse barrier", "barrier off", "plan stream"),
    }
    figure = style.canvas(8.4, 3.3)
    for axes, (title, names) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        axes.axhline(0, color=style.GREY, linewidth=1)
        for i, name in enumerate(names):
            own = [r for r in rows if r["variant"] == name]
            x = [r["concurrency"] * (1 + 0.07 * i) for r in own]
            axes.plot(
                x, [r["difference_us"] for r in own], "o-", color=style.COLOURS[i], markersize=4, label=name
            )
            for place, r in zip(x, own, strict=True):
                axes.vlines(place, *r["difference_pi95_us"], color=style.COLOURS[i], linewidth=1)
        over(axes, "concurrency", sorted({r["concurrency"] for r in rows}))
        axes.set_title(title)
        axes.legend(fontsize=8, loc="upper left")
    figure.axes[0].set_ylabel("cycle against 0.5.15 default, µs")
    return figure


def draw_older(versions: dict[str, Rows]) -> Canvas:
    """Predicted against measured cycle, in per cent of the measured one."""
    figure = style.canvas(8.4, 3.3)
    panels = figure.subplots(1, 2, sharey=True)
    titles = {"plan_stream": "0.5.14 plan stream", "default": "0.5.14 default"}
    labels = {"borrowing": "with its host sections", "nothing": "borrowing nothing"}
    for axes, (configuration, title) in zip(panels, titles.items(), strict=True):
        axes.axhline(0, color=style.GREY, linewidth=1)
        for i, (version, rows) in enumerate(versions.items()):
            own = [r for r in rows if r["configuration"] == configuration]
            x = [r["concurrency"] * (1 + 0.1 * i) for r in own]
            colour = style.COLOURS[i]
            axes.plot(x, [100 * r["error"] for r in own], "o", color=colour, label=labels[version])
            for place, r in zip(x, own, strict=True):
                ends = (100 * (end / r["measured_us"] - 1) for end in r["pi95_us"])
                axes.vlines(place, *ends, color=colour, linewidth=1)
            if configuration == "default":
                known = [100 * r["conditioned_error"] for r in own]
                axes.plot(x, known, "x", color=colour, label=f"{labels[version]}, state known")
        over(axes, "concurrency", sorted({r["concurrency"] for r in versions["borrowing"]}))
        axes.set_title(title)
    panels[0].set_ylabel("predicted over measured less 1, %")
    panels[0].legend(*panels[1].get_legend_handles_labels(), fontsize=7, loc="upper left")
    return figure


# -- tables -----------------------------------------------------------------------------------------------------


def check_table(checks: list[Check]) -> Table:
    return Table(
        ["what", "time", "measured, µs", "simulated, µs", "error"],
        [
            [
                c.what,
                c.time if c.traced else f"{c.time}; no trace at this batch",
                number(c.measured, 5),
                number(c.simulated, 5),
                percent(c.error),
            ]
            for c in checks
        ],
    )


def older_table(rows: Rows) -> Table:
    return Table(
        [
            "configuration",
            "C",
            "measured, µs",
            "predicted",
            "error",
            "pi95",
            "inside",
            "half-width (limit), µs",
            "state of the boot",
            "error at that state",
        ],
        [
            [
                r["configuration"].replace("_", " "),
                str(r["concurrency"]),
                number(r["measured_us"], 5),
                number(r["predicted_us"], 5),
                percent(r["error"]),
                span(r["pi95_us"]),
                "yes" if r["inside"] else "**no**",
                f"{r['half_width_us']:,.0f} ({r['half_width_limit_us']:,.0f})",
                f"{r['host_state']:.2f}",
                percent(r["conditioned_error"]),
            ]
            for r in rows
        ],
    )


def budget_table(rows: Rows) -> Table:
    causes = ("total", "state_of_the_boot", "device", "rest")
    return Table(
        ["C", *(c.replace("_", " ") for c in causes)],
        [[str(r["concurrency"]), *(microseconds(r[c]) for c in causes)] for r in rows],
        "Error of the default by cause, µs of the cycle",
    )


def path_table(profile: DeviceProfile, blind: Rows) -> Table:
    rows = []
    totals = dict.fromkeys(ENDS, 0.0)
    for what, (names, sign) in PATH.items():
        values = {c: sign * sum(_at(profile, n, c) for n in names) for c in ENDS}
        totals = {c: totals[c] + values[c] for c in ENDS}
        status = ", ".join(sorted({profile.costs[n].status for n in names}))
        rows.append([what, *(microseconds(values[c]) for c in ENDS), status])
    exposed = {r["concurrency"]: r["difference_us"] for r in blind if r["variant"] == "exact lengths"}
    rest = {c: exposed[c] - totals[c] for c in ENDS}
    rows.append(
        [
            "draft preparation's kernels, which the launches hide",
            *(microseconds(rest[c]) for c in ENDS),
            "simulated",
        ]
    )
    rows.append(["**difference to the default**", *(microseconds(exposed[c]) for c in ENDS), ""])
    return Table(
        ["from publish to the start of the draft graph", *(f"µs at {c}" for c in ENDS), "status"], rows
    )


def _at(profile: DeviceProfile, name: str, batch: int) -> float:
    cost = profile.costs[name]
    return at_batch(cost.value, cost.batch, batch) + cost.per_batch * batch


def blind_table(blind: Rows) -> Table:
    concurrencies = sorted({r["concurrency"] for r in blind})
    names = list(dict.fromkeys(r["variant"] for r in blind))

    def cell(name: str, c: int) -> str:
        r = next(r for r in blind if (r["variant"], r["concurrency"]) == (name, c))
        ends = " … ".join(_change(end) for end in r["difference_pi95_us"])
        return f"{_change(r['difference_us'])} ({ends})"

    return Table(
        ["against 0.5.15 default, µs (pi95)", *(f"C = {c}" for c in concurrencies)],
        [[name, *(cell(name, c) for c in concurrencies)] for name in names],
    )


# -- the document -----------------------------------------------------------------------------------------------


def document(data: Path, folder: Path) -> Document:
    blind = json.loads((folder / "blind.json").read_text())
    older = json.loads((folder / "older_release.json").read_text())
    checks = {engine: _checks(data, engine) for engine in ENGINES}
    versions = {name: older[name]["predictions"] for name in ("borrowing", "nothing")}
    profile = load_profile("h200_sglang")
    return Document(
        title="Predictions for SGLang on an H200",
        question="What does a profile read off traces of one release say of another one, and of switches nobody has "
        "measured yet?",
        verdict=[
            _verdict_checks([c for found in checks.values() for c in found]),
            "0.5.14 from 0.5.15's default and the host sections of 0.5.14's own traces: "
            f"{_verdict(versions['borrowing'])}",
            f"The same borrowing nothing from 0.5.14: {_verdict(versions['nothing'])}",
            _verdict_blind(blind["predictions"]),
        ],
        sections=[
            Section(
                "Self-check",
                [
                    "What was read off the traces, simulated under the traced configuration: in profiled time, "
                    "target start to target start, and in unprofiled time against every row of the timings, at the "
                    "host state that the row's own section medians show. The default of 0.5.14 waits for its own "
                    "forward, so its cycle contains host time; at concurrency 2 its host was in a burst.",
                    *(check_table(found) for found in checks.values()),
                ],
            ),
            Section("SGLang 0.5.14, predicted from 0.5.15 default", _older_blocks(older, versions)),
            Section("Blind: variants of 0.5.15", _blind_blocks(blind, profile)),
            Section("What was known when choices were made", [list(DISCLOSED)]),
        ],
        provenance=[
            ("command", "`python tools/predictions_report.py`"),
            ("blind predictions", f"`{blind['command']}`, written once, on {blind['date']}"),
            ("older release", f"`{older['command']}`"),
            ("device profile", f"`{older['profile']['name']}`, sha256 `{older['profile']['sha256']}`"),
            ("profile of the blind predictions", f"sha256 `{blind['profile']['sha256']}`"),
            ("seed", str(blind["seed"])),
            ("replications", f"{blind['replications']} a cell"),
        ],
    )


def _checks(data: Path, engine: str) -> list[Check]:
    traces = sorted(data.glob(f"trace_{engine}_*.json.gz"))
    return self_check(
        ingest(traces, data / "cycles.csv", data / "primitives_us.json", engine=f"sglang-{engine}")
    )


def _verdict_checks(checks: list[Check]) -> str:
    traced = [c for c in checks if c.traced]
    worst = {t: max(abs(c.error) for c in traced if c.time == t) for t in ("profiled", "unprofiled")}
    rest = max(abs(c.error) for c in checks if not c.traced)
    return (
        f"Self-check: every trace within {_share(worst['profiled'])} in profiled time and "
        f"{_share(worst['unprofiled'])} in unprofiled time; at batches between the traces within {_share(rest)}."
    )


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"


def _change(value: float) -> str:
    """A difference in µs without a negative zero."""
    return microseconds(round(value) + 0.0)


def _verdict(rows: Rows) -> str:
    parts = []
    for configuration in ("plan_stream", "default"):
        own = [r for r in rows if r["configuration"] == configuration]
        errors = sorted(abs(r["error"]) for r in own)
        close = sum(e <= CLOSE for e in errors)
        parts.append(
            f"{configuration.replace('_', ' ')} within {_share(errors[-1])} ({close} of {len(own)} within 2 %, "
            f"{sum(r['inside'] for r in own)} inside `pi95`)"
        )
    return f"{'; '.join(parts)}."


def _verdict_blind(rows: Rows) -> str:
    def at(name: str) -> str:
        own = [r for r in rows if r["variant"] == name]
        return f"{_change(own[0]['difference_us'])} to {_change(own[-1]['difference_us'])} µs"

    return (
        f"Blind, from concurrency 1 to 32: exact lengths {at('exact lengths')} a step, deferred "
        f"{at('exact lengths, deferred')}, coarse barrier {at('coarse barrier')}, barrier off and plan stream "
        "nothing, exact lengths with a plan stream as exact lengths alone."
    )


def _older_blocks(older: dict[str, Any], versions: dict[str, Rows]) -> list[Block]:
    return [
        "Bars are `pi95`, crosses the same prediction at the host state of the measured boot. Every figure is in "
        "[older_release.md](older_release.md).",
        Figure(
            "older_release",
            "Error of the predicted cycle of 0.5.14 over concurrency, plan stream and default",
            "Predicted cycle of 0.5.14 against the measured one, with `pi95`; crosses: conditioned on the state of "
            "the boot.",
            lambda: draw_older(versions),
        ),
        f"**{older['borrowing']['title']}.** {older['borrowing']['how']}",
        older_table(versions["borrowing"]),
        budget_table(older["borrowing"]["budget"]),
        f"**{older['nothing']['title']}.** {older['nothing']['how']}",
        older_table(versions["nothing"]),
        budget_table(older["nothing"]["budget"]),
        "*State of the boot*: predicted less conditioned. *Device*: the error of the plan stream at the same "
        "concurrency, whose device does the same work while its host hides. *Rest*: bursts within the run, division "
        "of section totals, structure.",
    ]


def _blind_blocks(blind: dict[str, Any], profile: DeviceProfile) -> list[Block]:
    rows = blind["predictions"]
    wide = [r for r in rows if _half_width(r) > max(0.005 * r["cycle_us"], 0.35 * r["exposed_host_us"])]
    names = "; ".join(dict.fromkeys(r["variant"] for r in wide))
    return [
        f"Made on {blind['date']} before anyone here had seen a measured value, and not edited since: "
        "[blind.md](blind.md), `blind.json`, `blind.csv`. A test holds their hashes. Later versions make the same "
        "cycles from the same command; the idle time that blind.md calls `launch_lag`, of launches behind the wait, "
        "they give to the wait (`publish_sync`).",
        Figure(
            "blind",
            "Predicted difference of each variant to the default over concurrency",
            "Predicted change of the cycle from 0.5.15 default, with `pi95` for two boots.",
            lambda: draw_blind(rows),
        ),
        blind_table(rows),
        "Exact lengths cost what the host does between its wake and the launch of the draft graph, less the "
        "forward's tail behind publish. All but the mirror is measured: the hop in 0.5.14's plan-stream trace, the "
        "rest in 0.5.15's own traces, timings and the primitives.",
        path_table(profile, rows),
        "Deferred lengths move the wait behind the entry and the first two launches: in the traces the first CPU "
        "work on lengths (a copy of the bound, without a runtime call) begins a tenth into the stretch between the "
        "embedding and the static fill, so that stretch is taken to follow the wait.",
        "The coarse barrier puts preparation and the lengths gather between two forwards: two event hops, two "
        "copies, two small kernels. The hop is the plan stream's (5.4 µs, into copies); the gather of published "
        "lengths shows 2.7 µs into a kernel.",
        f"`pi95` is wider than max(0.5 % of the cycle, 35 % of the exposed host time) in {len(wide)} of {len(rows)} "
        f"cells ({names}): the states of a boot move all host work of the path by −19 … +41 %, while part of that "
        "work hides under the forward's tail, so the exposed rest moves by more. At a known state of the boot every "
        "cell is inside that limit (`overlapsim run … --host-state-from TIMINGS`).",
    ]


def _half_width(row: dict[str, Any]) -> float:
    low, high = row["cycle_pi95_us"]
    return float(high - low) / 2


#: where the errors on 0.5.14 were known to whoever chose
DISCLOSED = (
    "The errors on 0.5.14 had been seen when these were chosen among alternatives: host states without a trend over "
    "the load; the plan stream's own host time from the batch-1 trace; the target graph of 0.5.14 by the ratio of "
    "its traces to 0.5.15's; durations between the traced batches in the shape of the whole cycle; quantiles of the "
    "host state as a lognormal on each side of the median; 1.4 % as the uncertainty of 0.5.14's draft graph (a "
    "judgement).",
    "The version that borrows nothing was written after the errors of the borrowing one were known, and 5/3 after "
    "the growth of 0.5.14's preparation was; the ratio itself is the source's.",
    "How well a boot's state is known (4 %, the residual of the fit of the states) entered the conditioned intervals "
    "after three of the six defaults had missed narrower ones.",
    "No cost was fitted on a cycle of 0.5.14. 0.5.15's target graph is fitted on 0.5.15 default's cycles, and the "
    "prefill's host time on its churn rows.",
    "Before the blind predictions, and without any measured value of a variant: the lengths gather was priced alone "
    "instead of beside the append (15 µs less for the coarse barrier at concurrency 1); the target graph's error "
    "became a standard error where it had been a 95 % half-width, and luck of acceptance was left out as the runs' "
    "own is known. The last two were found when widths were held against the limit above; it set no figure.",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "sglang_h200")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "h200_predictions")
    options = parser.parse_args()
    made = document(options.data, options.out)
    images = options.out / "figures"
    images.mkdir(exist_ok=True)
    for figure in made.figures():
        style.save(figure.draw, images, figure.name)
    write_atomically(options.out / "report.md", markdown.render(made))
    write_atomically(options.out / "report.html", html.render(made, images))
    print(options.out / "report.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
