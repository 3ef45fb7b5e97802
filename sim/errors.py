"""What the user did wrong, said once and in full.

Every error of this package that a user can cause derives from :class:`InputError`; the command line
turns it into a message on standard error and exit status 2. Anything else is a bug and travels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input.

    ``where`` is a file and key ("scenario.toml: workload.concurrency"), ``found`` the offending value as
    written, ``expected`` what would be accepted, ``remedy`` what to do about it (may be empty).
    """

    where: str
    found: str
    expected: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: found {self.found}; expected {self.expected}"
        return f"{text}. {self.remedy}" if self.remedy else text


class OverlapsimError(Exception):
    """Base of everything this package raises on purpose."""


class InputError(OverlapsimError):
    """The input was wrong; carries every :class:`Problem` found, not only the first."""

    def __init__(self, problems: Problem | Iterable[Problem]):
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class WaitError(OverlapsimError):
    """A wait nobody will ever satisfy: names the waiter and who should have recorded the event."""
