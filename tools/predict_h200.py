#!/usr/bin/env python
"""Predicts what nobody has measured yet on the H200: variants of SGLang 0.5.15's DFLASH loop.

    python tools/predict_h200.py --date 2026-12-01 [--out reports/h200_predictions] [--seed 1] [--replications 20]

Writes ``blind.md``, ``blind.json`` and ``blind.csv``: the cycle of each variant at each concurrency of
``data/sglang_h200`` over the very iterations its runs average (``tools/h200_window.py``), with ``pi95``, the
difference to 0.5.15 default, the idle time by cause, and the same at stated host states. The profile knows 0.5.15
default alone; no variant's measurement enters. The files are written once: existing ones are not replaced.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from h200_window import PROMPT, Window, windows  # noqa: E402

from sim.config.loader import load_resolved  # noqa: E402
from sim.config.resolve import Resolved  # noqa: E402
from sim.errors import InputError, Problem  # noqa: E402
from sim.files import json_text, write_atomically  # noqa: E402
from sim.ingest.timings import read_timings  # noqa: E402
from sim.run import simulate  # noqa: E402
from sim.study.compare import compare  # noqa: E402

SCENARIO = "h200_dflash"
#: variant → keys that make it from 0.5.15 default
VARIANTS: dict[str, dict[str, object]] = {
    "exact lengths": {"host_lengths": "exact"},
    "exact lengths, deferred": {"host_lengths": "exact_deferred"},
    "coarse barrier": {"barrier": "coarse"},
    "barrier off": {"barrier": "unguarded"},
    "plan stream": {"prep_stream": "plan"},
    "exact lengths and plan stream": {"host_lengths": "exact", "prep_stream": "plan"},
}
#: host states (1: the median boot) at which every variant is predicted as well; levels the data set has shown
STATES = (0.9, 1.0, 1.2, 1.55)
Z95 = 1.959964
#: a range of the cycle over the host states below this share of it is none
NEGLIGIBLE = 0.001
FILES = ("blind.md", "blind.json", "blind.csv")


def steady(window: Window) -> dict[str, object]:
    """The same load with luck of its own: geometric acceptance of 5.4 drafts, 768 output tokens."""
    return {
        "workload.concurrency": window.concurrency,
        "workload.requests": window.concurrency,
        "workload.prompt_tokens": PROMPT,
        "workload.output_tokens": 768,
    }


def scenario(load: dict[str, object], keys: dict[str, object], run: dict[str, object]) -> Resolved:
    return load_resolved(SCENARIO, {**load, **keys, **run})


def predict(name: str, window: Window, run: dict[str, object]) -> dict[str, Any]:
    """One variant at one concurrency; times in µs."""
    default = scenario(window.keys(), {}, run)
    variant = scenario(window.keys(), VARIANTS[name], run)
    pair = compare(default, variant)
    assert pair.cycle is not None
    result = pair.b.to_json()
    cycle = result["cycle_us"]
    plain = compare(scenario(steady(window), {}, run), scenario(steady(window), VARIANTS[name], run))
    assert plain.cycle is not None
    boots = Z95 * math.sqrt(2) * default.profile.device_boot_sd
    return {
        "variant": name,
        "concurrency": window.concurrency,
        "keys": VARIANTS[name],
        "cycle_us": cycle["mean"],
        "cycle_pi95_us": cycle["pi95"],
        "default_cycle_us": pair.a.to_json()["cycle_us"]["mean"],
        "difference_us": round(pair.cycle.absolute.mean, 1),
        "difference_pi95_us": _two_boots(pair.cycle.absolute, boots * cycle["mean"], 1),
        "difference_percent": round(100 * pair.cycle.relative.mean, 3),
        "difference_pi95_percent": _two_boots(pair.cycle.relative, boots, 3, 100),
        "exposed_host_us": result["exposed_host_us_per_step"],
        "idle_us": {cause: us for cause, us in result["idle_us_per_step"].items() if us},
        "critical_side": result["critical_side"],
        "at_host_state_us": {str(s): _at_state(variant, s) for s in STATES},
        "steady_load": {
            "cycle_us": plain.b.to_json()["cycle_us"]["mean"],
            "cycle_pi95_us": plain.b.to_json()["cycle_us"]["pi95"],
            "difference_us": round(plain.cycle.absolute.mean, 1),
            "difference_percent": round(100 * plain.cycle.relative.mean, 3),
        },
    }


def _two_boots(change: Any, boots: float, digits: int, scale: float = 1.0) -> list[float]:
    """``pi95`` of a paired change, which is one boot's, for two boots: what devices differ by is added."""
    low, high = change.pi95
    mean = change.mean
    ends = mean - math.hypot(mean - low, boots), mean + math.hypot(high - mean, boots)
    return [round(scale * end, digits) for end in ends]


def _at_state(variant: Resolved, state: float) -> float | None:
    keys = variant.scenario.model_copy(update={"host_scale": state})
    mean = simulate(replace(variant, scenario=keys), new_boots=False, hazards=False).cycle_us.mean
    return None if mean is None else round(mean, 1)


# -- files ------------------------------------------------------------------------------------------------------


def markdown(made: dict[str, Any]) -> str:
    """The predictions for people."""
    rows = made["predictions"]
    lines = [
        "# Blind predictions: variants of 0.5.15 on the H200",
        "",
        f"**Blind: measured values withheld; not edited afterwards.** Made on {made['date']} with",
        "",
        "```sh",
        made["command"],
        "```",
        "",
        f"from profile `{made['profile']['name']}`, sha256 `{made['profile']['sha256']}`; seed {made['seed']}, "
        f"{made['replications']} replications a cell. More digits: `blind.json`, `blind.csv`.",
        "",
        "The profile is derived from `data/sglang_h200` (`tools/derive_h200.py`), which holds 0.5.15 default and two "
        "configurations of 0.5.14. No variant below is in it, and nobody who made it had seen one measured.",
        "",
        "Cycles are over the iterations that a steady run of the data set averages: 128 prompt tokens, "
        "`full_batch_cycles` intervals after the first five, at `accepted_per_step` tokens a step, as `cycles.csv` "
        f"states them for each concurrency ({', '.join(made['windows'])}). *steady*: the same load with luck of its "
        "own (5.4 accepted drafts, 768 output tokens); its full batch lives through other contexts, so its cycle "
        "differs.",
        "",
        "`pi95`: one new boot, whose host state is unknown. The difference is to 0.5.15 default; its `pi95` is for "
        "two boots, one for each side. *exposed*: idle time of the forward stream while the host works.",
        "",
    ]
    for name, changed in VARIANTS.items():
        keys = ", ".join(f'`{k} = "{v}"`' for k, v in changed.items())
        lines += [
            f"## {name[0].upper()}{name[1:]} ({keys})",
            "",
            "| C | cycle, µs | pi95 | against default, µs | pi95 | % | pi95 | exposed, µs | idle by cause, µs "
            "| steady, µs (%) |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(_line(r) for r in rows if r["variant"] == name),
            "",
        ]
    moved = [r for r in rows if _range(list(r["at_host_state_us"].values())) > NEGLIGIBLE * r["cycle_us"]]
    still = [name for name in VARIANTS if all(r["variant"] != name for r in moved)]
    lines += [
        "## At a known host state",
        "",
        "One factor moves all host work of a boot. `overlapsim run … --host-state-from TIMINGS` reads it off a "
        "boot's own timings of sections that contain no wait. Cycle in µs:",
        "",
        f"| variant | C | {' | '.join(f'state {s:g}' for s in STATES)} |",
        f"|---|---|{'---|' * len(STATES)}",
    ]
    for r in moved:
        cells = " | ".join(f"{r['at_host_state_us'][str(s)]:,.0f}" for s in STATES)
        lines.append(f"| {r['variant']} | {r['concurrency']} | {cells} |")
    lines += ["", f"No state moves these by more than {NEGLIGIBLE:.1%}: {', '.join(still)}."]
    return "\n".join(lines) + "\n"


def _range(values: list[float]) -> float:
    return max(values) - min(values)


def _line(r: dict[str, Any]) -> str:
    idle = ", ".join(f"{cause} {us:,.0f}" for cause, us in r["idle_us"].items()) or "none"
    plain = r["steady_load"]
    span, absolute, relative = r["cycle_pi95_us"], r["difference_pi95_us"], r["difference_pi95_percent"]
    cells = [
        str(r["concurrency"]),
        f"{r['cycle_us']:,.0f}",
        f"{span[0]:,.0f} … {span[1]:,.0f}",
        signed(r["difference_us"], 0),
        f"{signed(absolute[0], 0)} … {signed(absolute[1], 0)}",
        signed(r["difference_percent"], 2),
        f"{signed(relative[0], 2)} … {signed(relative[1], 2)}",
        f"{r['exposed_host_us']:,.0f}",
        idle,
        f"{plain['cycle_us']:,.0f} ({signed(plain['difference_percent'], 2)})",
    ]
    return f"| {' | '.join(cells)} |"


def signed(value: float, digits: int) -> str:
    """With its sign and a true minus; nothing rounds to a negative zero."""
    return f"{round(value, digits) + 0.0:+,.{digits}f}".replace("-", "−")


def table(rows: list[dict[str, Any]]) -> str:
    """One line a prediction."""
    columns = [
        "variant",
        "concurrency",
        "cycle_us",
        "cycle_pi95_low_us",
        "cycle_pi95_high_us",
        "default_cycle_us",
        "difference_us",
        "difference_pi95_low_us",
        "difference_pi95_high_us",
        "difference_percent",
        "exposed_host_us",
        "idle_us",
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for r in rows:
        ends = {
            f"{k}_pi95_{end}_us": r[f"{k}_pi95_us"][i]
            for k in ("cycle", "difference")
            for i, end in enumerate(("low", "high"))
        }
        idle = "; ".join(f"{cause} {us}" for cause, us in r["idle_us"].items())
        writer.writerow({**r, **ends, "idle_us": idle})
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--date", required=True, help="when the prediction is made, for the record")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "sglang_h200")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "h200_predictions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replications", type=int, default=20)
    options = parser.parse_args()
    try:
        write(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def write(options: argparse.Namespace) -> None:
    existing = [f for f in FILES if (options.out / f).exists()]
    if existing:
        raise InputError(
            Problem(
                "--out",
                f"{', '.join(existing)} in {options.out}",
                "a folder without a prediction",
                "A prediction is not replaced once its outcome may be known. Give another folder.",
            )
        )
    known = [r for r in read_timings(options.data / "cycles.csv") if r.phase == "steady"]
    run: dict[str, object] = {"run.seed": options.seed, "run.replications": options.replications}
    seen = windows([r for r in known if (r.engine, r.configuration) == ("0.5.15", "default")])
    rows = [predict(name, window, run) for name in VARIANTS for window in seen]
    profile = scenario({}, {}, run)
    made = {
        "note": "blind: measured values withheld; not edited afterwards",
        "date": options.date,
        "command": f"python tools/predict_h200.py --date {options.date} --seed {options.seed} "
        f"--replications {options.replications}",
        "profile": {"name": profile.profile.name, "sha256": profile.profile_sha256},
        "seed": options.seed,
        "replications": options.replications,
        "windows": [f"C = {w.concurrency}: {w.cycles} at {w.tokens_per_step}" for w in seen],
        "predictions": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in zip(FILES, (markdown(made), json_text(made), table(rows)), strict=True):
        write_atomically(options.out / name, text)
        print(options.out / name)


if __name__ == "__main__":
    sys.exit(main())
