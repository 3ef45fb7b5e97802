"""Pieces of the calibration on made-up data with known answers, and their inputs gone wrong."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.ingest import toml_out
from sim.ingest.deflate import KINDS, Known, Stretch, default_inflation, fit_inflation, no_inflation
from sim.ingest.device import by_shape, contexts, cycle_line
from sim.ingest.host_state import fit_states, state_quantiles
from sim.ingest.primitives import DEFAULTS, read_primitives
from sim.ingest.timings import read_timings
from tests.sim.ingest.conftest import DATA

# -- host states ------------------------------------------------------------------------------------------------


def test_states_and_sections_are_told_apart() -> None:
    batch = np.array([1.0, 2, 4, 8, 16, 32] * 3)
    draw = np.random.default_rng(1)
    states = np.exp(draw.normal(0, 0.2, len(batch)))
    sections = {
        "publish": 50.0 * states,
        "run_batch": (2000 + 10 * batch) * states,
        "schedule": (200 + 12 * batch) * states,
    }
    fitted = fit_states(batch, sections, "publish")
    level = np.median(states)
    assert fitted.states == pytest.approx(states / level, rel=0.05)
    # a trend of the made-up states over the batch is given to the sections: compare where it is small
    assert fitted.at("run_batch", 8) == pytest.approx(2080 * level, rel=0.05)
    assert fitted.residual_sd < 0.01


def test_a_burst_in_one_section_does_not_move_its_row() -> None:
    batch = np.array([1.0, 2, 4, 8, 16, 32])
    sections = {n: np.full(6, v) for n, v in (("publish", 50.0), ("run_batch", 2000.0), ("schedule", 300.0))}
    sections["schedule"][2] *= 3
    assert fit_states(batch, sections, "publish").states[2] == pytest.approx(1.0, abs=0.1)


def test_one_row_is_its_own_state() -> None:
    fitted = fit_states(
        np.array([4.0]), {"publish": np.array([50.0]), "run_batch": np.array([2000.0])}, "publish"
    )
    assert fitted.states == pytest.approx([1.0])
    assert fitted.at("run_batch", 4) == pytest.approx(2000.0, rel=0.02)


def test_quantiles_are_relative_to_the_median_and_slow_states_reach_further() -> None:
    quantiles = state_quantiles(np.array([0.9, 0.92, 0.95, 1.0, 1.0, 1.1, 1.3, 1.6]))
    assert quantiles["0.5"] == 1.0
    assert quantiles["0.975"] - 1 > 1 - quantiles["0.025"]
    assert list(quantiles.values()) == sorted(quantiles.values())


# -- profiling --------------------------------------------------------------------------------------------------


def test_amounts_and_states_of_traces_are_recovered() -> None:
    amounts = dict(zip(KINDS, (1.2, 7.0, 2.5, 0.8), strict=True))
    states = {"a": 1.0, "b": 1.5}
    draw = np.random.default_rng(2)
    known = []
    for trace, state in states.items():
        for _ in range(8):
            counts = tuple(float(c) for c in draw.integers(0, 200, 4))
            unprofiled = float(draw.uniform(200, 2000))
            added = sum(amounts[k] * c for k, c in zip(KINDS, counts, strict=True))
            known.append(Known(trace, Stretch(state * (unprofiled + added), counts), unprofiled))
    fitted = fit_inflation(known)
    assert fitted.states == pytest.approx(states, rel=0.02)
    for kind in ("operator", "launch"):
        assert fitted.amount[kind] == pytest.approx(amounts[kind], rel=0.1)
    assert fitted.deflate(known[0].stretch, fitted.states["a"]) == pytest.approx(known[0].unprofiled, rel=0.1)


def test_a_stretch_is_never_deflated_to_nothing() -> None:
    crowded = Stretch(10.0, (100.0, 0.0, 0.0, 0.0))
    assert default_inflation(["a"]).deflate(crowded, 1.0) == 2.5
    assert no_inflation(["a"]).deflate(crowded, 1.0) == 10.0


# -- device -----------------------------------------------------------------------------------------------------


def test_a_line_over_the_context_survives_outliers_and_keeps_the_mean() -> None:
    context = contexts(100, 128.0, 6.4)
    cycles = 6000 + 2.5 * context
    cycles[10] += 5000
    line = cycle_line(cycles, context)
    assert line.slope == pytest.approx(2.5, rel=0.01)
    assert line.intercept + line.slope * context.mean() == pytest.approx(cycles.mean())


def test_a_part_grows_as_the_whole_does() -> None:
    whole = np.array([100.0, 100, 110, 130, 170, 300])
    part = by_shape({1: 10.0, 32: 30.0}, whole)
    assert part[[0, -1]] == pytest.approx([10, 30])
    assert part[3] == pytest.approx(10 + 20 * 0.15)
    assert by_shape({8: 26.0}, whole) == pytest.approx(0.2 * whole)
    assert by_shape({1: 1.0, 32: 32.0}, None) == pytest.approx([1, 2, 4, 8, 16, 32])


# -- tables -----------------------------------------------------------------------------------------------------


def test_all_problems_of_a_timings_table_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = (DATA / "cycles.csv").read_text().splitlines()
    first, second = lines[1].split(","), lines[2].split(",")
    first[4], second[12] = "many", "-3"
    path.write_text("\n".join([lines[0], ",".join(first), ",".join(second)]))
    with pytest.raises(InputError) as caught:
        read_timings(path)
    assert [p.where.rsplit("/", 1)[-1] for p in caught.value.problems] == [
        "t.csv:2: concurrency",
        "t.csv:3: cycle_mean_us",
    ]


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "\x00", "engine\n"])
def test_a_table_without_the_columns_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(InputError):
        read_timings(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200))
def test_any_text_as_timings_or_primitives_is_answered(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any"
    path.write_text(text, encoding="utf-8", errors="replace")
    for read in (read_timings, read_primitives):
        with contextlib.suppress(InputError):  # anything else is a bug
            read(path)  # type: ignore[operator]


def test_primitives_are_medians_with_their_spread(tmp_path: Path) -> None:
    given = read_primitives(DATA / "primitives_us.json")
    cost = given.cost("call.graph")
    assert (cost.value, cost.status) == (3.139, "measured")
    assert DEFAULTS.cost("call.graph").status == "assumed"
    path = tmp_path / "p.json"
    path.write_text('{"a": [1, 2], "b": -1, "c": [1, 1, 1], "device": "x"}')
    with pytest.raises(InputError) as caught:
        read_primitives(path)
    assert [p.where.rsplit(" ", 1)[-1] for p in caught.value.problems] == ["a", "b"]


# -- TOML -------------------------------------------------------------------------------------------------------

VALUES: st.SearchStrategy[object] = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**60), 2**60),
        st.text(),
        st.integers(-(10**9), 10**9).map(lambda n: n / 64),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.text(), VALUES)
def test_what_is_written_is_read_back(key: str, value: object) -> None:
    read = tomllib.loads(f"{toml_out.key(key)} = {toml_out.value(value)}")
    assert read == {key: value}
