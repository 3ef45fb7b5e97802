"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    try:
        return version("overlapsim")
    except PackageNotFoundError:
        return "0+unknown"
