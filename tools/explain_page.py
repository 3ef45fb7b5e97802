"""Refreshes what docs/explain.md quotes: its table, the output of its `overlapsim explain` commands, their figures.

A block is a line `$ overlapsim explain …` inside a fence of kind `console`; the lines under it are replaced by what
the command prints now. A `--figure` among its options is drawn into docs/. The table stands between the comments
`table` and `end of table`. Run from the repository root:

    python tools/explain_page.py
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

from sim.cli import main
from sim.config.loader import load_resolved
from sim.files import write_atomically
from sim.maxplus.explanation import explain
from sim.run import simulate

PAGE = Path("docs/explain.md")
#: scenario -> how the page calls it
VARIANTS = {
    "h200_dflash_0514_plan": "0.5.14, plan stream (cP)",
    "h200_dflash_0514_default": "0.5.14, default (cN)",
    "h200_dflash_exact": "0.5.15, exact lengths (dT)",
    "h200_dflash": "0.5.15, default (dF)",
}
TABLE = re.compile(r"(?<=<!-- table -->).*?(?=<!-- end of table -->)", re.DOTALL)
BLOCK = re.compile(r"(?<=```console\n)\$ (overlapsim explain [^\n]+)\n.*?(?=```)", re.DOTALL)


def output(command: str) -> str:
    """What a command prints, run in the folder of the page."""
    printed = io.StringIO()
    before = Path.cwd()
    os.chdir(PAGE.parent)
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main(shlex.split(command)[1:])
    finally:
        os.chdir(before)
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


def table() -> str:
    """Every variant at both ends of the measured concurrencies, explained and simulated at the same context."""
    rows = [
        "| variant | concurrency | critical | GPU step, µs | host loop, µs | GPU idle, µs | step, µs | "
        "simulated, µs | next cycle, µs |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, what in VARIANTS.items():
        for concurrency in (1, 32):
            load = {"workload.concurrency": concurrency, "workload.requests": concurrency}
            resolved = load_resolved(name, load)
            simulated = simulate(resolved, new_boots=False)
            e = explain(resolved, simulated.mean_context)
            numbers = [
                e["gpu_step_us"],
                e["host_loop_us"],
                sum(e["idle_us_per_step"].values()),
                e["cycle_us"],
            ]
            numbers += [simulated.cycle_us.mean, e["other_cycles"][0]["mean_us"]]
            cells = [what, str(concurrency), e["critical_side"], *(f"{n:,.0f}" for n in numbers)]
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def refreshed(text: str) -> str:
    text = TABLE.sub(lambda _: f"\n{table()}\n", text)
    return BLOCK.sub(lambda block: f"$ {block[1]}\n{output(block[1])}\n", text)


if __name__ == "__main__":
    write_atomically(PAGE, refreshed(PAGE.read_text()))
