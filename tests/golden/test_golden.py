"""Small runs on the exact `toy` profile beside the timeline they must produce.

The first thing to read when learning a loop. Each file was checked by hand against the tables of the semantics
(cP, cN: 1.7; dT, dF: 1.8; non-spec: 1.4; chain: 1.5; lookup: 1.9) and the closed forms of its section 7. To see
a timeline: ``python tests/golden/test_golden.py dflash_dT``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sim.config.loader import load_resolved
from sim.replication import Replication
from sim.trace.recorder import Recorder
from sim.trace.timeline import lines

HERE = Path(__file__).parent
#: golden file → scenario, overrides, iterations shown. The last two run on to where one request finishes, rides
#: along as a zombie, is filtered, and its successor is prefilled and merged: direct carry falls back to one gather.
UNEQUAL = {"workload.output_tokens": "{ values = [9, 17, 13, 9] }"}
GOLDEN: dict[str, tuple[str, dict[str, str], int]] = {
    "none": ("toy_none", {}, 4),
    "eagle": ("toy_eagle", {}, 4),
    "ngram": ("toy_ngram", {}, 4),
    "dflash_cP": ("toy_cP", {}, 4),
    "dflash_cN": ("toy_cN", {}, 4),
    "dflash_dT": ("toy_dT", {}, 4),
    "dflash_dF": ("toy_dF", {}, 4),
    "dflash_cN_unequal": ("toy_cN", UNEQUAL, 9),
    "dflash_dF_unequal": ("toy_dF", UNEQUAL, 9),
}


def timeline(name: str) -> str:
    scenario, overrides, iterations = GOLDEN[name]
    recorder = Recorder()
    Replication(load_resolved(scenario, overrides), 0, recorder=recorder).run()
    shown = [r for r in recorder.records if r.iteration < iterations]
    return "\n".join(lines(shown)) + "\n"


@pytest.mark.parametrize("name", GOLDEN)
def test_timeline_is_the_one_checked_by_hand(name: str) -> None:
    assert timeline(name) == (HERE / f"{name}.txt").read_text()


if __name__ == "__main__":
    sys.stdout.write(timeline(sys.argv[1]))
