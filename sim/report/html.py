"""A document as one HTML page: nothing outside it, light and dark, for phones and for paper. No scripts."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator
from pathlib import Path

from sim.report.document import Block, Document, Figure, Section, Table, stamp

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #5d5d66; --paper: #ffffff; --card: #f5f6f8; --line: #d9dbe0;
  --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --soft: #a5a7ae; --paper: #16171a; --card: #202226;
  --line: #3a3d44; --link: #8ab8f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line); }
a { color: var(--link); }
.question { font-size: 1.1rem; color: var(--soft); margin: 0 0 1.25rem; }
.verdict { background: var(--card); border-left: 4px solid #0072b2; padding: .75rem 1rem; border-radius: 4px; }
.verdict ul { margin: 0; padding-left: 1.1rem; }
.verdict li + li { margin-top: .4rem; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; margin: 1rem 0 0; }
figure { margin: 1.5rem 0; }
figure img { width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 4px;
  padding: .5rem; }
figcaption { font-size: .85rem; color: var(--soft); overflow-wrap: anywhere; }
figcaption .stamp { display: block; font-size: .75rem; }
.table { overflow-x: auto; margin: 1rem 0; }
.table:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .35rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem .25rem 0;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; }
td.number { text-align: right; }
td.number, td.short { white-space: nowrap; }
code { font-family: ui-monospace, monospace; font-size: .9em; background: var(--card); padding: .05em .25em;
  border-radius: 3px; overflow-wrap: anywhere; }
@media print { body { font-size: 10.5pt; } main { max-width: none; padding: 0; } nav { display: none; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; } .table { overflow: visible; }
  table { font-size: 7.5pt; } }
"""
#: characters of a cell that is not broken into lines
_SHORT = 28
_NUMBER = re.compile(r"^[−+]?[\d,.]+( %)?$")


def render(document: Document, figures: Path) -> str:
    """``figures``: the folder with the drawn images, which go into the page."""
    return "\n".join(_page(document, figures)) + "\n"


def _page(document: Document, figures: Path) -> Iterator[str]:
    anchors = [(section, _anchor(section.title)) for section in document.sections]
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    # An icon of nothing: without one, browsers ask the server for it.
    yield f'<title>{html.escape(document.title)}</title><link rel="icon" href="data:,">'
    yield f"<style>{_STYLE}</style></head>"
    yield f"<body><main><h1>{html.escape(document.title)}</h1>"
    yield f'<p class="question">{_inline(document.question)}</p>'
    if document.verdict:
        items = "".join(f"<li>{_inline(sentence)}</li>" for sentence in document.verdict)
        yield f'<div class="verdict" id="verdict"><ul>{items}</ul></div>'
    links = [*((section.title, anchor) for section, anchor in anchors), ("How to rebuild this", "rebuild")]
    yield "<nav aria-label='Sections'><ul>"
    yield from (f'<li><a href="#{anchor}">{html.escape(title)}</a></li>' for title, anchor in links)
    yield "</ul></nav>"
    where = stamp(document)
    for section, anchor in anchors:
        yield from _section(section, anchor, figures, where)
    yield '<h2 id="rebuild">How to rebuild this</h2>'
    rows = [[name, value] for name, value in document.provenance]
    yield from _table(Table(["", ""], rows))
    yield "</main></body></html>"


def _section(section: Section, anchor: str, figures: Path, where: str) -> Iterator[str]:
    yield f'<h2 id="{anchor}">{html.escape(section.title)}</h2>'
    for block in section.blocks:
        yield from _block(block, figures, where)


def _block(block: Block, figures: Path, where: str) -> Iterator[str]:
    if isinstance(block, str):
        yield f"<p>{_inline(block)}</p>"
    elif isinstance(block, list):
        yield "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in block) + "</ul>"
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Figure):
        image = base64.b64encode((figures / f"{block.name}.svg").read_bytes()).decode()
        yield f'<figure id="figure-{block.name}">'
        yield f'<img alt="{html.escape(block.alt)}" src="data:image/svg+xml;base64,{image}">'
        yield f'<figcaption>{_inline(block.caption)}<span class="stamp">{_inline(where)}</span></figcaption>'
        yield "</figure>"


def _table(table: Table) -> Iterator[str]:
    # Focusable, so that a wide table can be scrolled from the keyboard.
    yield '<div class="table" tabindex="0"><table>'
    if table.caption:
        yield f"<caption>{_inline(table.caption)}</caption>"
    if any(table.headers):
        yield "<thead><tr>" + "".join(f"<th>{_inline(h)}</th>" for h in table.headers) + "</tr></thead>"
    yield "<tbody>"
    for row in table.rows:
        yield "<tr>" + "".join(_cell(text) for text in row) + "</tr>"
    yield "</tbody></table></div>"


def _cell(text: str) -> str:
    kind = ' class="number"' if _NUMBER.match(text) else ' class="short"' if len(text) < _SHORT else ""
    return f"<td{kind}>{_inline(text)}</td>"


def _inline(text: str) -> str:
    """The little Markdown that documents use: `code`, **strong** and *emphasis*."""
    parts = re.split(r"`([^`]+)`", text)
    out = []
    for i, part in enumerate(parts):
        escaped = html.escape(part)
        if i % 2:
            out.append(f"<code>{escaped}</code>")
        else:
            escaped = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escaped)
            out.append(re.sub(r"(?<![\w*])\*(\S.*?)\*(?![\w*])", r"<em>\1</em>", escaped))
    return "".join(out)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
