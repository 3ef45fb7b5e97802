"""A document as Markdown, with its figures as files beside it."""

from __future__ import annotations

from collections.abc import Iterator

from sim.report.document import Block, Document, Figure, Table, stamp


def render(document: Document, figures: str = "figures") -> str:
    """``figures``: the folder of the images, relative to the file."""
    where = stamp(document)
    lines = [f"# {document.title}", "", document.question, ""]
    lines += (
        ["## Verdict", "", *(f"- {sentence}" for sentence in document.verdict), ""]
        if document.verdict
        else []
    )
    for section in document.sections:
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            lines += [*_block(block, figures, where), ""]
    lines += ["## How to rebuild this", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in document.provenance]
    return "\n".join(lines) + "\n"


def _block(block: Block, figures: str, where: str) -> Iterator[str]:
    if isinstance(block, str):
        yield block
    elif isinstance(block, list):
        yield from (f"- {item}" for item in block)
    elif isinstance(block, Table):
        if block.caption:
            yield from (f"{block.caption}:", "")
        yield f"| {' | '.join(map(_cell, block.headers))} |"
        yield f"|{'---|' * len(block.headers)}"
        yield from (f"| {' | '.join(map(_cell, row))} |" for row in block.rows)
    elif isinstance(block, Figure):
        yield f"![{block.alt}]({figures}/{block.name}.png)"
        yield ""
        yield f"*{block.caption}* <sub>{where}. [SVG]({figures}/{block.name}.svg)</sub>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
