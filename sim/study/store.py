"""Results on disk: one SQLite file, one row a result, committed one by one.

Keyed by the scenario's hash and the model's version, so that a second study, a resumed one and a larger grid find
what is there. A file of another format or version, or a damaged one, is refused and left as it is.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sim.errors import InputError, OverlapsimError, Problem
from sim.study.version import model_version
from sim.version import package_version

#: the file's name in a study's folder
RESULTS = "results.sqlite"
#: of the tables below; another number is another layout
FORMAT = "2"
_SCHEMA = """
BEGIN;
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE results (
  key TEXT NOT NULL, version TEXT NOT NULL, kind TEXT NOT NULL, content BLOB NOT NULL,
  PRIMARY KEY (key, version)
);
CREATE TABLE cells (
  study TEXT NOT NULL, place INTEGER NOT NULL, variant TEXT NOT NULL, at TEXT NOT NULL, key TEXT NOT NULL,
  PRIMARY KEY (study, place)
);
INSERT INTO about VALUES ('format', '{format}'), ('version', '{version}');
COMMIT;
"""
_REMEDY = "Move it away, or name another folder with --out."


class Store:
    """The results of ``path``, which is made if absent. One process writes; a result is on disk when ``put`` returns.

    Raises InputError when the file is no store of this version.
    """

    def __init__(self, path: Path):
        self.path = path
        self.version = model_version()
        about = {"format": FORMAT, "version": package_version()}
        # Nothing in it: a process was killed before its first transaction.
        fresh = not path.exists() or path.stat().st_size == 0
        try:
            self._db = sqlite3.connect(path)
            self._db.execute("PRAGMA synchronous = NORMAL")
            if fresh:
                self._db.executescript(_SCHEMA.format(**about))
                return
            found = dict(self._db.execute("SELECT name, value FROM about"))
            damage = self._db.execute("PRAGMA quick_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise InputError(
                Problem(str(path), f"no readable results file ({error})", "results of a study", _REMEDY)
            ) from None
        if damage != "ok":
            raise InputError(Problem(str(path), f"a damaged file ({damage})", "results of a study", _REMEDY))
        if found != about:
            raise InputError(
                Problem(
                    str(path),
                    f"results of version {found.get('version')}, format {found.get('format')}",
                    f"version {about['version']}, format {FORMAT}",
                    _REMEDY,
                )
            )

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def put_cells(self, study: str, cells: Sequence[tuple[str, Mapping[str, Any], str]]) -> None:
        """Stores which variant at which factor values every key is, so that the file can be read without the study.

        ``cells``: variant, factor values, key, in the study's order; they replace an earlier list of the study.
        """
        rows = [
            (study, place, variant, json.dumps(dict(at)), key)
            for place, (variant, at, key) in enumerate(cells)
        ]
        with self._writing():
            self._db.execute("DELETE FROM cells WHERE study = ?", (study,))
            self._db.executemany("INSERT INTO cells VALUES (?, ?, ?, ?, ?)", rows)

    def cells(self) -> list[tuple[str, str, dict[str, Any], str]]:
        """Study, variant, factor values and key of every cell, in order."""
        rows = self._db.execute("SELECT study, variant, at, key FROM cells ORDER BY study, place")
        return [(study, variant, json.loads(at), key) for study, variant, at, key in rows]

    def put(self, key: str, kind: str, content: Any) -> None:
        """Stores one result for good. Raises OverlapsimError when the disk does not take it."""
        packed = zlib.compress(json.dumps(content, allow_nan=False).encode(), 6)
        with self._writing():
            self._db.execute(
                "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", (key, self.version, kind, packed)
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction. Raises OverlapsimError when the disk does not take it."""
        try:
            with self._db:
                yield
        except sqlite3.OperationalError as error:
            raise OverlapsimError(f"{self.path}: a result could not be stored ({error})") from None

    def known(self, keys: Iterable[str]) -> set[str]:
        """Those of ``keys`` that have a result of this version."""
        rows = self._db.execute("SELECT key FROM results WHERE version = ?", (self.version,))
        return {key for (key,) in rows} & set(keys)

    def outdated(self, keys: Iterable[str]) -> int:
        """How many of ``keys`` have results of other versions alone."""
        rows = self._db.execute("SELECT key FROM results WHERE version != ?", (self.version,))
        return len(({key for (key,) in rows} & set(keys)) - self.known(keys))

    def get(self, key: str) -> Any:
        """The result of ``key``. Raises KeyError if this version has none."""
        row = self._db.execute(
            "SELECT content FROM results WHERE key = ? AND version = ?", (key, self.version)
        ).fetchone()
        if row is None:
            raise KeyError(key)
        return json.loads(zlib.decompress(row[0]))
