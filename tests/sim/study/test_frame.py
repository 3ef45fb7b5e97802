"""Results as a table, as CSV and as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from sim.cli import main
from sim.errors import InputError
from sim.study.frame import load_results

Write = Callable[..., str]


@pytest.fixture
def out(write_study: Write, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    arguments = ["study", write_study(), "--out", str(out), "--jobs", "1"]
    exports = ["--export", str(tmp_path / "r.csv"), "--export", str(tmp_path / "r.parquet")]
    with pytest.raises(SystemExit) as end:
        main([*arguments, *exports])
    assert end.value.code == 0
    return out


def test_every_cell_is_a_row_in_the_study_s_order(out: Path) -> None:
    frame = load_results(out)
    assert list(frame["variant"]) == ["as declared"] * 2 + ["coarse"] * 2 + ["exact"] * 2
    assert list(frame["concurrency"]) == [1, 2] * 3
    assert (frame["throughput_tok_s.mean"] > 0).all()
    assert (frame["cycle_us.pi95.low"] <= frame["cycle_us.pi95.high"]).all()


def test_the_folder_and_the_file_are_the_same_results(out: Path) -> None:
    pd.testing.assert_frame_equal(load_results(out), load_results(str(out / "results.sqlite")))


def test_exports_hold_what_the_table_holds(out: Path, tmp_path: Path) -> None:
    frame = load_results(out)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "r.csv"), frame, check_dtype=False)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "r.parquet"), frame)


def test_a_cell_without_a_result_is_an_empty_row(out: Path) -> None:
    import sqlite3

    db = sqlite3.connect(out / "results.sqlite")
    db.execute("DELETE FROM results WHERE key = (SELECT key FROM cells WHERE place = 0)")
    db.commit()
    db.close()
    assert load_results(out)["throughput_tok_s.mean"].isna().tolist() == [True] + [False] * 5


def test_a_missing_file_and_a_foreign_one_are_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_results(tmp_path)
    (tmp_path / "results.sqlite").write_text("no")
    with pytest.raises(InputError, match="no readable results file"):
        load_results(tmp_path)


def test_an_export_that_cannot_be_is_refused_first(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["study", write_study(), "--out", str(tmp_path / "out"), "--export", str(tmp_path / "r.xlsx")])
    assert end.value.code == 2
    assert "a name ending in .csv or .parquet" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
