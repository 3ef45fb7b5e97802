"""Untrusted data in, a checked model or every :class:`~sim.errors.Problem` out.

Types are taken strictly (``"32"`` is no number, ``true`` is no 1), as TOML writes them.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sim.errors import InputError, Problem

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
P = ParamSpec("P")
#: where a value sits: ("workload", "prompt_tokens", "mean")
KeyPath = tuple[str | int, ...]

#: a key that TOML takes without quotes
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Origin:
    """Where data came from, so that a problem names what the user can edit."""

    file: str
    #: dotted keys given on the command line instead, each with the option that gave it
    overrides: Mapping[str, str] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """``file: key``, or the option and the key if the value came from the command line."""
        for given, option in self.overrides.items():
            if key == given or key.startswith((f"{given}.", f"{given}[")):
                return option if option != "--set" else f"--set {key}"
        return f"{self.file}: {key}" if key else self.file


class Attempts:
    """Goes on after an input error, so that one run names the problems of independent inputs."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def call(self, check: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result | None:
        """What ``check`` returns, or None with its problems kept."""
        try:
            return check(*args, **kwargs)
        except InputError as error:
            self.problems += error.problems
            return None


def shown(value: object) -> str:
    """A value as TOML would write it, shortened."""
    if isinstance(value, str) and value.isprintable():
        text = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, str | bool) or value is None:
        text = json.dumps(value)
    elif isinstance(value, Mapping):
        text = "{" + ", ".join(f"{k} = {shown(v)}" for k, v in value.items()) + "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(shown(v) for v in value) + "]"
    elif isinstance(value, int) and abs(value) > 10**30:
        text = f"a whole number of {value.bit_length()} bits"  # Python refuses to print the longest
    else:
        text = str(value)
    return text if len(text) <= 200 else text[:197] + "..."


def listed(words: Iterable[str]) -> str:
    """``a, b or c``."""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else "nothing"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy that offers the nearest known names; empty if none is near."""
    near = difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.65)
    return f"Did you mean {listed(near)}?" if near else ""


def validated(
    model: type[Model], data: Mapping[str, Any], origin: Origin, hints: Mapping[str, str] | None = None
) -> Model:
    """``data`` as ``model``; ``hints`` says per dotted key what to write where it is missing.

    Raises InputError with one problem a key.
    """
    result, problems, _ = examined(model, data, origin, hints)
    if result is None:
        raise InputError(problems)
    return result


def examined(
    model: type[Model], data: Mapping[str, Any], origin: Origin, hints: Mapping[str, str] | None = None
) -> tuple[Model | None, list[Problem], list[KeyPath]]:
    """As :func:`validated`, without raising: the model or the problems and the paths they are at."""
    try:
        # JSON mode alone is strict about scalars yet takes a list for a tuple and a word for an enum.
        text = json.dumps(data, default=str)
    except (ValueError, RecursionError):
        problem = Problem(origin.file, "a number too long or tables too deep to read", "less of it")
        return None, [problem], []
    try:
        return model.model_validate_json(text, strict=True), [], []
    except ValidationError as error:
        # A default made from another key, which is wrong itself, is no problem of its own.
        details = [d for d in error.errors(include_url=False) if d["type"] != "default_factory_not_called"]
    grouped: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in details:
        grouped.setdefault(_path_in(data, detail), []).append(detail)
    problems = [_problem(model, data, path, group, origin, hints or {}) for path, group in grouped.items()]
    return None, problems, list(grouped)


def value_at(data: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        data = data[part]
    return data


def _path_in(data: Any, detail: ErrorDetails) -> KeyPath:
    """The location without the names of union members, which the user never wrote."""
    path: list[str | int] = []
    parts = list(detail["loc"])
    if detail["type"] == "refused" and "key" in detail.get("ctx", {}):
        parts.append(detail["ctx"]["key"])
    for i, part in enumerate(parts):
        is_key = isinstance(data, Mapping) and part in data
        is_index = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if is_key or is_index:
            data = data[part]
        elif not (detail["type"] == "missing" and i == len(parts) - 1):
            continue
        path.append(part)
    return tuple(path)


def _problem(
    model: type[BaseModel],
    data: Mapping[str, Any],
    path: KeyPath,
    details: Sequence[ErrorDetails],
    origin: Origin,
    hints: Mapping[str, str],
) -> Problem:
    key = dotted(path)
    where = origin.where(key)
    first = details[0]
    context = first.get("ctx", {})
    if first["type"] == "extra_forbidden":
        known = sorted(_keys_at(model, first["loc"][:-1]))
        found = f"an unknown key (= {shown(value_at(data, path))})"
        return Problem(where, found, listed(known), did_you_mean(str(path[-1]), known))
    if first["type"] == "missing":
        return Problem(where, "nothing", hints.get(key, "a value"))
    found = shown(value_at(data, path)) if path else "unreadable data"
    if first["type"] == "refused":
        return Problem(where, context.get("found", found), context["expected"], context.get("remedy", ""))
    expected = listed(dict.fromkeys(_expected(d) for d in details))
    remedy = ""
    if first["type"] in ("enum", "literal_error") and isinstance(first["input"], str):
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        remedy = did_you_mean(first["input"], choices)
    return Problem(where, found, expected, remedy)


def dotted(path: KeyPath) -> str:
    """``serving.graph_batches[2]``, ``costs."host.prep".value``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


def _expected(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    kind = detail["type"]
    simple = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "int_parsing_size": "a whole number of at most 64 bits",
        "float_type": "a number",
        "bool_type": "true or false",
        "string_type": "text in quotes",
        "string_too_short": "text that is not empty",
        "finite_number": "a finite number",
        "tuple_type": "a list",
        "list_type": "a list",
        "dict_type": "a table",
        "model_type": "a table",
        "model_attributes_type": "a table",
        "too_short": "a list that is not empty",
        "json_invalid": "text in Unicode",
    }
    if kind in simple:
        return simple[kind]
    if kind == "string_too_long":
        return f"text of at most {context['max_length']} characters"
    if kind in ("enum", "literal_error"):
        return str(context["expected"]).replace("'", '"')
    bounds = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    if kind in bounds:
        words = {"gt": "a number above", "ge": "at least", "lt": "a number below", "le": "at most"}
        return f"{words[bounds[kind]]} {context[bounds[kind]]:g}"
    if kind == "value_error":
        return f"a consistent table: {context['error']}"
    message = detail["msg"]
    return f"something else: {message[:1].lower()}{message[1:]}"


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """Names of the keys allowed at a pydantic location (which may hold tags of union members)."""
    models: list[type[BaseModel]] = [model]
    for part in loc:
        children = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        if children:
            models = [found for child in children for found in _models_in(child)]
        elif tagged := [m for m in models if _is_tagged(m, part)]:
            models = tagged
    return {name for m in models for name in m.model_fields}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [found for part in typing.get_args(annotation) for found in _models_in(part)]


def _is_tagged(model: type[BaseModel], tag: object) -> bool:
    return any(tag in typing.get_args(field.annotation) for field in model.model_fields.values())
