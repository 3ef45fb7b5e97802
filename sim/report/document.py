"""A report before it is a file: sections of paragraphs, tables and figures, the same for every format."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

#: characters of a figure's file name, suffix and number apart
_LONGEST_NAME = 80


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


def told_apart(sections: Sequence[Section]) -> list[Section]:
    """The sections with a file name of its own for every figure, none too long for a file system."""
    taken: set[str] = set()

    def named(block: Block) -> Block:
        if not isinstance(block, Figure):
            return block
        stem = name = block.name[:_LONGEST_NAME]
        for i in itertools.count(2):
            if name not in taken:
                break
            name = f"{stem}_{i}"
        taken.add(name)
        return replace(block, name=name)

    return [Section(section.title, [named(block) for block in section.blocks]) for section in sections]


def stamp(document: Document) -> str:
    """What every figure's caption ends with: where its numbers come from."""
    wanted = ("command", "device profile", "seed", "replications")
    facts = dict(document.provenance)
    return "; ".join(
        f"{name} {facts[name]}" if name != "command" else facts[name] for name in wanted if name in facts
    )
