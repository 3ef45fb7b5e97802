"""Everything a package reads at run time is installed with it."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("sim", "gpu_validation", "configs")


def test_files_beside_modules_are_declared_as_package_data() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = [
        (ROOT / package.replace(".", "/"), pattern)
        for package, given in setup["package-data"].items()
        for pattern in given
    ]
    found = [
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and "__pycache__" not in path.parts
    ]
    assert found
    for path in found:
        declared = any(
            folder in path.parents and fnmatch(path.name, pattern.split("/")[-1])
            for folder, pattern in patterns
        )
        assert declared, f"{path.relative_to(ROOT)} is in no wheel: add it to package-data in pyproject.toml"
