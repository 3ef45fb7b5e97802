"""Stored results as a table: one row a cell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError, Problem
from sim.study.store import RESULTS, Store

if TYPE_CHECKING:
    import pandas as pd

#: parts of a result that are no numbers of its own
_LEFT_OUT = ("scenario", "device", "program", "samples", "notes", "hazards", "extrapolated")


def load_results(path: str | Path) -> pd.DataFrame:
    """The results of a study: its ``results.sqlite``, or the folder that holds it.

    One row a cell: study, variant, a column a factor, then every number of the result, nested names joined by
    dots (``throughput_tok_s.mean``; intervals as ``….low`` and ``….high``). Cells without a result of this version
    of the model have empty numbers. Raises InputError if the file is no results file of this version.
    """
    import pandas as pd

    file = Path(path)
    file = file / RESULTS if file.is_dir() else file
    if not file.is_file():
        raise InputError(Problem(str(file), "no such file", f"the {RESULTS} of a study, or its folder"))
    rows = []
    with Store(file) as store:
        known = store.known(key for *_, key in store.cells())
        for study, variant, at, key in store.cells():
            numbers = dict(_flat(store.get(key))) if key in known else {}
            rows.append({"study": study, "variant": variant, **at, **numbers})
    return pd.DataFrame(rows)


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """CSV or Parquet, by the suffix; whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    if path.suffix == ".parquet":
        frame.to_parquet(partial, index=False)
    else:
        frame.to_csv(partial, index=False)
    os.replace(partial, path)


def _flat(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in result.items():
        if not prefix and name in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif name in ("ci95", "pi95"):
            low, high = value if value is not None else (None, None)
            yield f"{prefix}{name}.low", low
            yield f"{prefix}{name}.high", high
        else:
            yield f"{prefix}{name}", value
