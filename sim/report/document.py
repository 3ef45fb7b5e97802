"""A report before it is a file: sections of paragraphs, tables and figures, the same for every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Table:
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """``draw`` makes the canvas; ``name`` becomes the file's; ``alt`` says in words what is seen."""

    name: str
    alt: str
    caption: str
    draw: Callable[[], Canvas]


#: text (with `code` and **strong** as in Markdown), a list of texts, a table, a figure
Block = str | list[str] | Table | Figure


@dataclass
class Section:
    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Document:
    title: str
    question: str
    #: the answer in a sentence or a few, with intervals
    verdict: list[str]
    sections: list[Section]
    #: name -> value; how to get the same report again
    provenance: Sequence[tuple[str, str]]

    def figures(self) -> list[Figure]:
        return [b for section in self.sections for b in section.blocks if isinstance(b, Figure)]


def stamp(document: Document) -> str:
    """What every figure's caption ends with: where its numbers come from."""
    wanted = ("command", "device profile", "seed", "replications")
    facts = dict(document.provenance)
    return "; ".join(
        f"{name} {facts[name]}" if name != "command" else facts[name] for name in wanted if name in facts
    )
