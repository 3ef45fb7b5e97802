"""A program that says only how it differs from another: ``extends = "<algorithm>@<engine>"``.

Tables and keys at the top replace those of the base (``[capabilities]``, ``[speculation]`` and ``[parameters]`` key
by key). Operations are those of the base, changed in this order:

- ``remove = ["name", …]``;
- ``[[replace]]``: ``name`` and the keys to change;
- ``[[insert]]``: an operation, and ``after`` or ``before`` a name.

Each takes ``in = "prefill"`` for the prefill's list; without, the decode iteration is meant.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from sim.config.checked import did_you_mean, listed, shown
from sim.errors import InputError, Problem

_LISTS = {"decode": "operations", "prefill": "prefill"}
_MERGED = ("capabilities", "speculation", "parameters")
_CHANGES = ("extends", "remove", "replace", "insert")
#: bases of bases; more are a circle
_DEEPEST = 8


def extended(
    data: dict[str, Any], file: str, load: Callable[[str], dict[str, Any]], depth: int = 0
) -> dict[str, Any]:
    """``data`` with its base filled in; without ``extends``, as it is. ``load`` reads a base by name.

    Raises InputError for a base that goes in a circle and for changes that meet no operation.
    """
    if "extends" not in data:
        return data
    if depth == _DEEPEST or not isinstance(data["extends"], str):
        expected = "the name of a program, at most 8 deep"
        raise InputError(Problem(f"{file}: extends", shown(data["extends"]), expected))
    base = extended(load(data["extends"]), data["extends"], load, depth + 1)
    out = copy.deepcopy({key: value for key, value in base.items() if key not in _CHANGES})
    for key, value in data.items():
        if key in _MERGED and isinstance(value, dict):
            below = out.get(key)
            out[key] = {**below, **value} if isinstance(below, dict) else value
        elif key not in _CHANGES:
            out[key] = value
    _Changes(data, out, file).apply()
    return out


class _Changes:
    def __init__(self, data: dict[str, Any], out: dict[str, Any], file: str):
        self.data, self.out, self.file = data, out, file
        self.problems: list[Problem] = []

    def apply(self) -> None:
        for i, name in enumerate(self._listed("remove")):
            entry = name if isinstance(name, dict) else {"name": name}
            self._remove(entry, f"remove[{i}]")
        for i, change in enumerate(self._listed("replace")):
            self._replace(change, f"replace[{i}]")
        for i, change in enumerate(self._listed("insert")):
            self._insert(change, f"insert[{i}]")
        if self.problems:
            raise InputError(self.problems)

    def _listed(self, key: str) -> list[Any]:
        value = self.data.get(key, [])
        if isinstance(value, list) and all(isinstance(v, dict | str) for v in value):
            return [v if key == "remove" or isinstance(v, dict) else {} for v in value]
        self.problems.append(Problem(f"{self.file}: {key}", shown(value), "a list"))
        return []

    def _found(self, change: dict[str, Any], key: str, where: str) -> tuple[list[Any], list[int]]:
        """The list meant and the places of the operations whose name is ``change[key]``."""
        chosen = change.get("in", "decode")
        if not isinstance(chosen, str) or chosen not in _LISTS:
            self.problems.append(
                Problem(f"{self.file}: {where}.in", shown(chosen), listed(map(shown, _LISTS)))
            )
            return [], []
        operations = self.out.get(_LISTS[chosen], [])
        if not isinstance(operations, list) or not all(isinstance(o, dict) for o in operations):
            where, found = f"{self.file}: {_LISTS[chosen]}", shown(operations)
            self.problems.append(Problem(where, found, "a list of operations"))
            return [], []
        names = [operation.get("name") for operation in operations]
        wanted = change.get(key)
        places = [i for i, name in enumerate(names) if name == wanted]
        if not places:
            known = sorted({str(name) for name in names})
            remedy = did_you_mean(str(wanted), known)
            found = f"no operation {shown(wanted)} in the {chosen} list of {self.data['extends']}"
            self.problems.append(Problem(f"{self.file}: {where}", found, "the name of one", remedy))
        return operations, places

    def _remove(self, change: dict[str, Any], where: str) -> None:
        operations, places = self._found(change, "name", where)
        for place in reversed(places):
            del operations[place]

    def _replace(self, change: dict[str, Any], where: str) -> None:
        operations, places = self._found(change, "name", where)
        new = {key: value for key, value in change.items() if key not in ("name", "in")}
        for place in places:
            operations[place] = {**operations[place], **new}

    def _insert(self, change: dict[str, Any], where: str) -> None:
        sides = [key for key in ("after", "before") if key in change]
        if len(sides) != 1:
            found = "both after and before" if sides else "neither after nor before"
            self.problems.append(Problem(f"{self.file}: {where}", found, "one of the two"))
            return
        operations, places = self._found(change, sides[0], where)
        if places:
            place = places[-1] + 1 if sides[0] == "after" else places[0]
            new = {key: value for key, value in change.items() if key not in ("after", "before", "in")}
            operations.insert(place, new)
