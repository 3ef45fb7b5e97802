"""A document as Markdown, with its figures as files beside it."""

from __future__ import annotations

from collections.abc import Iterator

from sim.report.document import Block, Document, Figure, Table


def render(document: Document, figures: str = "figures") -> str:
    """``figures``: the folder of the images, relative to the file."""
    stamp = _stamp(document)
    lines = [f"# {document.title}", "", document.question, ""]
    lines += (
        ["## Verdict", "", *(f"- {sentence}" for sentence in document.verdict), ""]
        if document.verdict
        else []
    )
    for section in document.sections:
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            lines += [*_block(block, figures, stamp), ""]
    lines += ["## How to rebuild this", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in document.provenance]
    return "\n".join(lines) + "\n"


def _stamp(document: Document) -> str:
    """What every figure's caption ends with: where its numbers come from."""
    wanted = ("command", "device profile", "seed", "replications")
    facts = dict(document.provenance)
    return "; ".join(
        f"{name} {facts[name]}" if name != "command" else facts[name] for name in wanted if name in facts
    )


def _block(block: Block, figures: str, stamp: str) -> Iterator[str]:
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
        yield f"*{block.caption}* <sub>{stamp}. [SVG]({figures}/{block.name}.svg)</sub>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
