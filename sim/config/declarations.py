"""Reads TOML files and the two declarations a scenario names: the cost profile and the step program."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from sim.config import below_zero, paths, unread
from sim.config.checked import Origin, did_you_mean, listed, shown, validated
from sim.config.consistent import problems as inconsistencies
from sim.config.extend import extended
from sim.config.profile import DeviceProfile
from sim.errors import InputError, Problem
from sim.files import unreadable
from sim.program.step_program import StepProgram


def read_bytes(path: Path) -> bytes:
    """A file's content. Raises InputError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = Problem(str(path), unreadable(error), "a readable file")
        raise InputError(problem) from None


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """TOML text as a table. Raises InputError with line and column."""
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # syntax, encoding, too long a number, too deep a nesting
        problem = Problem(name, f"text that is not TOML: {error}", "valid TOML in UTF-8")
        raise InputError(problem) from None


@lru_cache(maxsize=64)
def _profile(content: bytes, name: str) -> DeviceProfile:
    # Keyed by content: a study asks for the same few files in every cell, and parsing them dominates loading.
    profile = validated(DeviceProfile, parse_toml(content, name), Origin(name))
    found = [*below_zero.problems(profile, name), *unread.problems(profile.costs, f"{name}: costs")]
    if found:
        raise InputError(found)
    return profile


def _load(path: Path) -> tuple[DeviceProfile, str]:
    content = read_bytes(path)
    return _profile(content, path.name), hashlib.sha256(content).hexdigest()


def load_profile(name: str, where: str = "device") -> DeviceProfile:
    """The cost profile ``name`` (path or bare name). Raises InputError."""
    return load_profile_with_hash(name, where)[0]


def load_profile_with_hash(name: str, where: str = "device") -> tuple[DeviceProfile, str]:
    """The profile and the SHA-256 of its file, which results carry. Raises InputError.

    A profile over a base comes complete; its hash covers the base's file as well.
    """
    path = paths.locate(name, "devices", where)
    profile, digest = _load(path)
    if profile.base is None:
        return profile, digest
    base, base_digest = _load(paths.locate(profile.base, "devices", f"{path.name}: base"))
    if base.base is not None:
        found = f"{shown(profile.base)}, which starts from {shown(base.base)} itself"
        raise InputError(Problem(f"{path.name}: base", found, "a complete profile"))
    return profile.over(base), hashlib.sha256(f"{digest} {base_digest}".encode()).hexdigest()


def load_program(algorithm: str, engine: str, where: str = "algorithm") -> StepProgram:
    """What ``algorithm`` declares for ``engine``: ``<algorithm>@<engine>.toml``.

    A path, or the bare name of a file that is a complete program, is taken as it is, whatever the engine.
    Raises InputError naming the engines that have the algorithm, or the algorithms the engine has.
    """
    if paths.is_path(algorithm) or algorithm in paths.names("algorithms"):
        return _program(paths.locate(algorithm, "algorithms", where))
    known = paths.names("algorithms")
    if f"{algorithm}@{engine}" in known:
        return _program(paths.locate(f"{algorithm}@{engine}", "algorithms", where))
    raise InputError(_no_such_program(algorithm, engine, known, where))


def _program(path: Path) -> StepProgram:
    """A step program with its bases filled in and checked as a whole."""
    content = read_bytes(path)
    if b"extends" not in content:
        return _plain_program(content, path.name)

    def read(name: str) -> dict[str, Any]:
        # Beside the program, or shipped.
        beside = path.parent / f"{name}.toml"
        file = beside if os.path.isfile(beside) else paths.locate(name, "algorithms", f"{path.name}: extends")
        return parse_toml(read_bytes(file), file.name)

    data = extended(parse_toml(content, path.name), path.name, read)
    return _extended_program(json.dumps(data, sort_keys=True, default=str), path.name)


# Kept by content: a study asks for the same few files in every cell, and checking them dominates loading.
@lru_cache(maxsize=64)
def _plain_program(content: bytes, name: str) -> StepProgram:
    return _consistent(parse_toml(content, name), name)


@lru_cache(maxsize=64)
def _extended_program(data: str, name: str) -> StepProgram:
    return _consistent(json.loads(data), name)


def _consistent(data: dict[str, Any], name: str) -> StepProgram:
    program = validated(StepProgram, data, Origin(name))
    found = inconsistencies(program, name)
    if found:
        raise InputError(found)
    return program


def check_algorithm(algorithm: str, where: str) -> None:
    """Raises InputError if no engine has the algorithm; for when the engine is not known."""
    known = paths.names("algorithms")
    choices = sorted({name.partition("@")[0] for name in known})
    if paths.is_path(algorithm) or algorithm in known or algorithm in choices:
        return
    remedy = did_you_mean(algorithm, choices)
    raise InputError(Problem(where, shown(algorithm), f"a path or one of {listed(choices)}", remedy))


def _no_such_program(algorithm: str, engine: str, known: list[str], where: str) -> Problem:
    pairs = [name.split("@", 1) for name in known if "@" in name]
    engines = [e for a, e in pairs if a == algorithm]
    if engines:
        found = f"{shown(algorithm)} for engine {shown(engine)}"
        expected = f"an engine that declares it: {listed(engines)}"
        return Problem(where, found, expected, did_you_mean(engine, engines))
    choices = sorted({a for a, e in pairs if e == engine} | {name for name in known if "@" not in name})
    if not choices:
        every = sorted({e for _, e in pairs})
        expected = f"an engine with step programs: {listed(every)}"
        return Problem(where, f"engine {shown(engine)}", expected, did_you_mean(engine, every))
    remedy = did_you_mean(algorithm, choices)
    return Problem(where, shown(algorithm), f"a path or one of {listed(choices)} (engine {engine})", remedy)
