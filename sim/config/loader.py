"""Loads a scenario with the command line's overrides and reports everything wrong with it at once."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.config import paths
from sim.config.checked import KeyPath, Origin, examined, listed, shown
from sim.config.declarations import load_profile, load_program, parse_toml, read_bytes
from sim.config.resolve import Resolved, resolve
from sim.config.scenario import Scenario
from sim.errors import InputError, Problem

__all__ = ["load_profile", "load_program", "load_resolved", "load_scenario", "parse_assignments"]

NO_OVERRIDES: Mapping[str, object] = {}
NO_OPTIONS: Mapping[str, str] = {}


def load_resolved(
    name: str, overrides: Mapping[str, object] = NO_OVERRIDES, options: Mapping[str, str] = NO_OPTIONS
) -> Resolved:
    """The scenario ``name`` (path or bare name), filled. Raises InputError with every problem, located.

    ``options`` says for overridden keys which command-line option gave them, if not ``--set``.
    """
    scenario, origin = _load(name, overrides, options)
    return resolve(scenario, origin)


def load_scenario(name: str, overrides: Mapping[str, object] = NO_OVERRIDES) -> Scenario:
    """The scenario as written. ``overrides`` maps dotted keys to values; text is read as TOML if it can be.

    Raises InputError with every problem of the schema, and then also with those :func:`resolve` would find.
    """
    return _load(name, overrides, NO_OPTIONS)[0]


def parse_assignments(assignments: list[str]) -> dict[str, object]:
    """``KEY=VALUE`` texts of ``--set`` as overrides. Raises InputError on one without ``=``."""
    overrides: dict[str, object] = {}
    problems = []
    for text in assignments:
        key, equals, value = text.partition("=")
        if equals and key.strip():
            overrides[key.strip()] = value.strip()
        else:
            problems.append(Problem(f"--set {text}", "no key with a value", "KEY=VALUE"))
    if problems:
        raise InputError(problems)
    return overrides


def _load(name: str, overrides: Mapping[str, object], options: Mapping[str, str]) -> tuple[Scenario, Origin]:
    path = paths.locate(name, "scenarios", "scenario")
    data = parse_toml(read_bytes(path), path.name)
    _anchor(data, path.parent)
    problems, created = _override(data, overrides)
    origin = Origin(path.name, {key: options.get(key, "--set") for key in [*overrides, *created]})
    problems += _read_listed_values(data, path.parent, origin)
    hints = {"device": f"the cost profile to use: a path or one of {listed(paths.names('devices'))}"}
    scenario, found, at = examined(Scenario, data, origin, hints)
    problems += found
    if scenario is not None and not problems:
        return scenario, origin
    problems += _problems_of_the_rest(data, at, origin)
    raise InputError(problems)


def _anchor(data: dict[str, Any], base: Path) -> None:
    """Paths inside a scenario are relative to its file."""
    for key in ("device", "algorithm"):
        value = data.get(key)
        if isinstance(value, str) and paths.is_path(value):
            data[key] = str(base / value)


def _override(data: dict[str, Any], overrides: Mapping[str, object]) -> tuple[list[Problem], list[str]]:
    """Writes overrides into ``data``; returns what could not be written and the tables it had to make."""
    problems = []
    created = []
    loops = {"workload.concurrency": "arrival_rate_per_s", "workload.arrival_rate_per_s": "concurrency"}
    for key, value in overrides.items():
        *tables, last = key.split(".")
        table = data
        for i, part in enumerate(tables):
            outer = ".".join(tables[: i + 1])
            if part not in table:
                created.append(outer)
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                found = f"{outer} = {shown(inner)}, which has no keys"
                problems.append(Problem(f"--set {key}", found, "a table", f"Set {outer} as a whole."))
                break
            table = inner
        else:
            table[last] = _parsed(value)
            # Choosing a loop leaves the other one, unless that was asked for too.
            other = loops.get(key)
            if other is not None and f"workload.{other}" not in overrides:
                table.pop(other, None)
    return problems, created


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return value
    return parsed["value"] if parsed.keys() == {"value"} else value


def _read_listed_values(data: dict[str, Any], base: Path, origin: Origin) -> list[Problem]:
    """Reads ``{file = …}`` of lengths and acceptance into ``values``, so that results need no second file."""
    problems = []
    for path, nested in (
        (("workload", "prompt_tokens"), False),
        (("workload", "output_tokens"), False),
        (("acceptance",), True),
    ):
        table: Any = data
        for part in path:
            table = table.get(part) if isinstance(table, dict) else None
        if not isinstance(table, dict) or not isinstance(table.get("file"), str) or "values" in table:
            continue
        where = origin.where(".".join((*path, "file")))
        try:
            rows = _read_rows(base / table["file"], where, table["file"])
        except InputError as error:
            problems += error.problems
            continue
        table["values"] = [list(row) for row in rows] if nested else [value for row in rows for value in row]
    return problems


def _read_rows(path: Path, where: str, name: str) -> list[list[int]]:
    """Whole numbers, separated by commas or blanks; brackets, empty lines and ``#`` comments are skipped."""
    try:
        text = path.read_bytes().decode()
    except (OSError, ValueError):
        found = f"{shown(name)}, which cannot be read"
        raise InputError(Problem(where, found, "a text file of numbers")) from None
    rows, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].translate(str.maketrans("[],;", "    ")).split()
        if not words:
            continue
        if all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
            rows.append([int(word) for word in words])
        else:
            found = f"{shown(line.strip())} in line {number} of {name}"
            problems.append(Problem(where, found, "whole numbers separated by commas or blanks"))
    if not rows and not problems:
        problems.append(Problem(where, f"{shown(name)}, which holds no numbers", "at least one whole number"))
    if problems:
        raise InputError(problems)
    return rows


def _problems_of_the_rest(data: dict[str, Any], at: list[KeyPath], origin: Origin) -> list[Problem]:
    """What :func:`resolve` refuses in the part of the data that is well-formed.

    One run then names everything; else a refused combination would show only once the mistyped values are
    gone.
    """
    try:
        rest = copy.deepcopy(data)
    except RecursionError:  # tables too deep to read, which is reported
        return []
    for path in at:
        _remove(rest, path)
    missing_device = "device" not in rest
    if missing_device:
        rest["device"] = "unknown"
    scenario, _, still_at = examined(Scenario, rest, origin)
    if scenario is None:
        # Tables that lack a key: without them the defaults speak.
        for path in still_at:
            rest.pop(str(path[0]), None)
        scenario, _, _ = examined(Scenario, rest, origin)
    if scenario is None:
        return []
    try:
        resolve(scenario, origin)
    except InputError as error:
        reported = origin.where("device") if missing_device else None
        return [problem for problem in error.problems if problem.where != reported]
    return []


def _remove(data: Any, path: KeyPath) -> None:
    """Takes a key out of nested tables, or the whole list around an entry."""
    for part in path[:-1]:
        if not isinstance(data.get(part), dict):
            data.pop(part, None)
            return
        data = data[part]
    if path:
        data.pop(path[-1], None)
