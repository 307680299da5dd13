"""Text as HTML: escaping, and the few marks of markdown that the sections of ``report.md`` use.

The page shows the same sections as the markdown report, made by the same functions; only their form differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["as_html", "esc", "heading", "inline", "table"]

#: What UTF-8 or HTML cannot hold: control characters except white space, halves of surrogate pairs.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ENTITIES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}
_MARK = re.compile(r"\\([\\`*\[\]<_|])|`([^`]+)`|\*\*(.+?)\*\*")
_PIPE = re.compile(r"(?<!\\)\|")


def esc(text: str) -> str:
    """``text`` as the content of an element or of a quoted attribute; what HTML cannot hold is U+FFFD."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text).translate(_ENTITIES)


def inline(text: str) -> str:
    """One line of markdown: ``**bold**``, code spans and backslash escapes; all else is text."""
    out, end = [], 0
    for found in _MARK.finditer(text):
        out.append(esc(text[end : found.start()]))
        escaped, code, bold = found.groups()
        if escaped is not None:
            out.append(esc(escaped))
        elif code is not None:
            out.append(f"<code>{esc(code)}</code>")
        else:
            out.append(f"<strong>{inline(bold)}</strong>")
        end = found.end()
    out.append(esc(text[end:]))
    return "".join(out)


def heading(section: str) -> tuple[str, str]:
    """The heading of a markdown section, without marks, and what follows it."""
    first, _, rest = section.partition("\n")
    return (first.lstrip("# "), rest) if first.startswith("#") else ("", section)


def as_html(section: str, level: int = 3) -> str:
    """A markdown section as HTML, its heading as ``h<level>``: tables, lists, paragraphs."""
    title, rest = heading(section)
    out = [f"<h{level}>{inline(title)}</h{level}>"] if title else []
    for block in re.split(r"\n\s*\n", rest.strip("\n")):
        lines = [line for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        if lines[0].startswith("#"):
            out.append(as_html(block, level + 1))
        elif lines[0].startswith("|") and len(lines) > 1:
            out.append(_pipe_table(lines, title))
        elif lines[0].startswith("- "):
            items = "".join(f"<li><bdi>{inline(line[2:])}</bdi></li>" for line in lines)
            out.append(f"<ul>{items}</ul>")
        else:
            out.append(f'<p class="note">{inline(" ".join(lines))}</p>')
    return "\n".join(out)


def _pipe_table(lines: Sequence[str], title: str) -> str:
    rows = [[cell.strip() for cell in _PIPE.split(line.strip())[1:-1]] for line in lines]
    right = [mark.endswith(":") for mark in rows[1]]
    return table(
        [inline(cell) for cell in rows[0]], [[inline(c) for c in row] for row in rows[2:]], right, title
    )


def table(columns: Sequence[str], body: Sequence[Sequence[str]], right: Sequence[bool], name: str) -> str:
    """A table in a box of its own that scrolls; cells are HTML already.

    Args:
        columns: heads.
        body: rows; the first cell of each is its head.
        right: per column whether it holds figures.
        name: what the box is called for those who cannot see it.
    """

    def kind(place: int) -> str:
        return ' class="n"' if place < len(right) and right[place] else ""

    heads = "".join(f'<th scope="col"{kind(i)}>{cell}</th>' for i, cell in enumerate(columns))
    rows = []
    for row in body:
        first = f'<th scope="row"><bdi>{row[0]}</bdi></th>' if row else ""
        cells = "".join(f"<td{kind(i)}><bdi>{cell}</bdi></td>" for i, cell in enumerate(row[1:], 1))
        rows.append(f"<tr>{first}{cells}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{esc(name or "table")}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
