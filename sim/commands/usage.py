"""What was typed that no command takes: values of the wrong kind in the words of every other message.

The command-line library, and the validation it uses, phrase such refusals in ways that change from one version to
the next; what is read off them here is the parameter and, where they say so, the choices and the bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sim.config.checked import did_you_mean, listed, shown
from sim.errors import Problem

_CHOICES = re.compile(r"is not one of (?P<choices>.+?)\.?$")
_QUOTED = re.compile(r"'([^']*)'")
_LEAST = re.compile(r"(?:greater than or equal to |>= ?)(?P<least>-?\d+)")
_WHOLE = re.compile(r"valid integer")


def problem(error: Any, arguments: Sequence[str]) -> Problem | None:
    """The problem of a parameter whose value was refused; None for an error that is of no value's kind.

    ``error`` is the library's exception, ``arguments`` what was typed.
    """
    parameter, text = getattr(error, "param", None), str(getattr(error, "message", ""))
    if parameter is None or not text:
        return None
    name = next((o for o in parameter.opts if o.startswith("--")), parameter.opts[0])
    found = _typed(parameter.opts, arguments)
    remedy = ""
    if choices := _CHOICES.search(text):
        known = _QUOTED.findall(choices["choices"])
        value = _QUOTED.findall(text[: choices.start()])[-1:]
        expected, remedy = listed(known), did_you_mean(value[0], known) if value else ""
        found = value[0] if value else found
    elif least := _LEAST.search(text):
        expected = f"a whole number, at least {least['least']}"
    elif _WHOLE.search(text):
        expected = "a whole number"
    else:
        return None
    return Problem(name, "nothing of the kind" if found is None else shown(found), expected, remedy)


def _typed(options: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value typed for an option, None where it cannot be told."""
    for i, word in enumerate(arguments):
        if word in options and i + 1 < len(arguments):
            return arguments[i + 1]
        option, equals, value = word.partition("=")
        if equals and option in options:
            return value
    return None
