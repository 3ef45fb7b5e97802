"""Writes the two kinds of file ingest produces as TOML that people can read and diff.

The standard library reads TOML but does not write it; what is written here is a small part of the language:
scalars, arrays, inline tables, tables and arrays of tables.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any


def value(given: Any) -> str:
    """One TOML value on one line."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, Enum):
        return text(str(given.value))
    if isinstance(given, str):
        return text(given)
    if isinstance(given, int):
        return str(given)
    if isinstance(given, float):
        return repr(round(given, 6))
    if isinstance(given, list | tuple):
        return "[" + ", ".join(value(v) for v in given) + "]"
    if isinstance(given, dict):
        return "{ " + ", ".join(f"{key(k)} = {value(v)}" for k, v in given.items()) + " }"
    raise TypeError(f"no TOML form for {type(given).__name__}")


def text(given: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for the delete character."""
    return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if bare else text(name)


def table(header: str, content: dict[str, Any], array: bool = False) -> list[str]:
    """``[header]`` or ``[[header]]`` with one key a line; empty values are left out."""
    lines = [f"[[{header}]]" if array else f"[{header}]"]
    lines += [f"{key(k)} = {value(v)}" for k, v in content.items() if v not in (None, (), [], {}, "")]
    return [*lines, ""]
