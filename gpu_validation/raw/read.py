"""Reads the finished pieces of a folder and checks their form: what is wrong with a file is one problem."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpu_validation.raw.forms import Cell, Model, Piece, Primitives, RaceRun
from sim.errors import InputError, Problem
from sim.files import unreadable

KINDS = ("calibrate", "validate", "races")
#: problems of a file that are named; a file that is wrong throughout has thousands
_NAMED = 8
_EXPECTED, _REMEDY = (
    "a piece as the suite wrote it",
    "Delete the file and measure again; the other pieces are kept.",
)


def pieces(raw: Path, kind: str, starts: int | None = None) -> list[dict[str, Any]]:
    """Every finished piece of this kind by start and name, with the "file" it is from.

    ``starts``: those of the process starts below it alone. Raises InputError, a problem a file, where files are not
    as the suite wrote them.
    """
    found, problems = [], []
    for path in sorted(raw.glob(f"{kind}-*.json")):
        start = start_of(path)
        if starts is not None and start is not None and start >= starts:
            continue
        content, wrong = _read(path, kind)
        if wrong:
            problems.append(Problem(f"{path}", _listed(wrong), _EXPECTED, _REMEDY))
        else:
            found.append({**content, "file": f"{path}"})
    for shared in ("algorithm", "semantics"):
        problems += _unlike(raw, found, shared)
    if problems:
        raise InputError(problems)
    return found


def start_of(path: Path) -> int | None:
    """The process start in the name of a piece's file; None where the name is not that of a piece."""
    match = re.fullmatch(rf"(?:{'|'.join(KINDS)})-(0|[1-9]\d{{0,3}})-.+\.json", path.name)
    return None if match is None else int(match[1])


def _read(path: Path, kind: str) -> tuple[dict[str, Any], list[str]]:
    """The piece in a file and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return {}, [unreadable(error)]
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or JSON without an end
        content = None
    if not isinstance(content, dict):
        return {}, ["no JSON object"]
    try:
        piece = _form(path, kind).model_validate(content)
    except ValidationError as error:
        return content, _texts(error.errors(include_url=False))
    name = f"{kind}-{piece.start}-{_name(piece, kind)}.json"
    return content, [] if name == path.name else [f"the piece that belongs into {name}"]


def _form(path: Path, kind: str) -> type[Piece]:
    if path.name.endswith("-primitives.json"):
        return Primitives
    if kind == "validate":
        return Cell
    if kind == "calibrate" or path.name.endswith("-calibration.json"):
        return Model
    return RaceRun


def _name(piece: Piece, kind: str) -> str:
    if isinstance(piece, Cell):
        return f"{piece.model}-c{piece.concurrency}"
    if isinstance(piece, RaceRun):
        return piece.name
    if isinstance(piece, Model):
        return piece.model if kind == "calibrate" else "calibration"
    return "primitives"


def _texts(errors: Sequence[ErrorDetails]) -> list[str]:
    """One text for problems that differ in places of lists alone."""
    alike: dict[tuple[str, str], list[ErrorDetails]] = {}
    for error in errors:
        where = ".".join("*" if isinstance(part, int) else str(part) for part in error["loc"])
        alike.setdefault((where, error["msg"]), []).append(error)
    return [_text(found[0], len(found)) for found in alike.values()]


def _text(error: ErrorDetails, count: int) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        text = f"{where} is not there"
    elif error["type"] == "piece":
        text = f"{where}: {error['msg']}" if where else error["msg"]
    else:
        given = repr(error["input"])
        message = error["msg"][0].lower() + error["msg"][1:]
        text = f"{where} is {given if len(given) <= 40 else given[:40] + '…'} ({message})"
    return text if count == 1 else f"{text}, and {count - 1} more like it"


def _listed(wrong: Sequence[str]) -> str:
    text = "; ".join(wrong[:_NAMED])
    return text if len(wrong) <= _NAMED else f"{text}; and {len(wrong) - _NAMED} more problems"


def _unlike(raw: Path, found: Sequence[dict[str, Any]], shared: str) -> list[Problem]:
    """Pieces of one folder answer one question."""
    values = sorted({piece[shared] for piece in found if shared in piece})
    if len(values) < 2:
        return []
    return [
        Problem(
            f"{raw}",
            f"pieces of {shared} {' and '.join(values)}",
            "pieces of one question",
            "Measure again with --fresh.",
        )
    ]
