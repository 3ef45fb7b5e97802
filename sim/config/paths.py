"""Where named files are: a path, or the bare name of a file in the package ``configs``."""

from __future__ import annotations

import os
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path

from sim.config.checked import did_you_mean, listed, shown
from sim.errors import InputError, Problem


def folder(kind: str) -> Path:
    """The folder of ``configs`` for a kind: devices, algorithms, scenarios, studies or cases."""
    return _root() / kind


def names(kind: str) -> list[str]:
    """Every bare name of this kind, sorted."""
    place = folder(kind)
    return list(_listed(place, place.stat().st_mtime_ns)) if place.is_dir() else []


@cache
def _root() -> Path:
    return Path(str(resources.files("configs")))


@lru_cache(maxsize=64)
def _listed(place: Path, _changed: int) -> tuple[str, ...]:
    # A study asks for the same folders in every cell; a folder that has changed is read again.
    return tuple(sorted(path.stem for path in place.glob("*.toml")))


def is_path(name: str) -> bool:
    """Whether a name is meant as a path: it has a separator or the suffix ``.toml``."""
    return "/" in name or "\\" in name or name.endswith(".toml")


def locate(name: str, kind: str, where: str) -> Path:
    """The file that ``name`` means. Raises InputError, located at ``where``, offering the nearest names."""
    path = Path(name) if is_path(name) else folder(kind) / f"{name}.toml"
    if os.path.isfile(path):  # unlike Path.is_file, false for names no file system takes
        return path
    if is_path(name):
        raise InputError(Problem(where, f"{shown(name)}, which is no file", "the path of a TOML file"))
    known = names(kind)
    remedy = did_you_mean(name, known) or "A path needs a separator or the suffix .toml."
    raise InputError(Problem(where, shown(name), f"a path or one of {listed(known)}", remedy))
