"""What is on disk: one result at a time, keyed by scenario and version; foreign files are left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sim.errors import InputError, OverlapsimError
from sim.study.store import Store


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as error:
        Store(path)
    return str(error.value)


def test_a_result_is_there_for_the_next_process(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        store.put("k", "result", {"cycle_us": {"mean": 1.5}})
    with Store(tmp_path / "r.sqlite") as store:
        assert store.get("k") == {"cycle_us": {"mean": 1.5}}
        assert store.known(["k", "other"]) == {"k"}


def test_results_of_an_edited_model_are_kept_but_not_taken(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        store.version = "older"
        store.put("k", "result", {"a": 1})
    with Store(tmp_path / "r.sqlite") as store:
        assert store.known(["k"]) == set()
        assert store.outdated(["k"]) == 1
        with pytest.raises(KeyError):
            store.get("k")
        store.put("k", "result", {"a": 2})
        assert store.get("k") == {"a": 2}
        assert store.outdated(["k"]) == 0


def test_a_file_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    Store(path).__exit__(None, None, None)
    db = sqlite3.connect(path)
    db.execute("UPDATE about SET value = '99.0' WHERE name = 'version'")
    db.commit()
    db.close()
    before = path.read_bytes()
    assert "version 99.0" in refusal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\x00" + bytes(200)])
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    assert "no readable results file" in refusal(path)
    assert path.read_bytes() == content


def test_a_torn_page_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        for i in range(400):
            store.put(f"k{i}", "result", {"values": list(range(i))})
    content = bytearray(path.read_bytes())
    content[2 * 4096 : 4 * 4096] = bytes(b"\xa5" * 8192)
    path.write_bytes(content)
    assert "damaged" in refusal(path) or "no readable results file" in refusal(path)


def test_an_empty_file_left_by_a_killed_process_is_a_fresh_store(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    path.touch()
    with Store(path) as store:
        assert store.known(["k"]) == set()


def test_a_full_disk_is_said_and_what_was_stored_stays(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        store.put("first", "result", {"a": 1})
        store._db.execute(f"PRAGMA max_page_count = {path.stat().st_size // 4096 + 1}")
        with pytest.raises(OverlapsimError, match="could not be stored"):
            store.put("second", "result", {"text": [str(i * 7919) for i in range(40_000)]})
    with Store(path) as store:
        assert store.known(["first", "second"]) == {"first"}
