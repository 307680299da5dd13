"""Markdown and HTML as blocks under their headings."""

from __future__ import annotations

import re
from typing import Any

from rag_core.errors import MissingExtraError
from rag_core.source import Block, Outline

__all__ = ["html_blocks", "markdown_blocks"]

Parts = tuple[list[Block], str, dict[str, Any]]
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_HEADING = re.compile(r"\s{0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$")
_UNDERLINE = re.compile(r"\s{0,3}(=+|-{2,})\s*$")
_FRONT = re.compile(r"\A---\n(.*?)\n(?:---|\.\.\.)\s*(?:\n|\Z)", re.DOTALL)
#: Read for their own sake or not at all: nothing in them is text of the page.
_HIDDEN = frozenset(
    ("script", "style", "noscript", "template", "head", "svg", "iframe", "object", "-comment")
)
#: Inside one of these, text runs on; any other element begins a new block.
_INLINE = frozenset(
    """a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q rp rt ruby s samp
    small span strike strong sub sup time tt u var wbr""".split()  # noqa: SIM905 - a list would fill a screen
)


def markdown_blocks(text: str) -> Parts:
    """Blocks and title of a Markdown text, and the ``key: value`` lines of its front matter."""
    outline = Outline()
    metadata: dict[str, Any] = {}
    if front := _FRONT.match(text):
        for line in front[1].split("\n"):
            if pair := re.fullmatch(r"(\w[\w-]*):\s+(\S.*?)\s*", line):
                metadata[pair[1]] = pair[2].strip("\"'")
        text = text[front.end() :]
    waiting: list[str] = []
    fence = ""
    for line in text.split("\n"):
        opened = _FENCE.match(line)
        if fence:
            waiting.append(line)
            fence = "" if opened and opened[1].startswith(fence) else fence
        elif opened:
            waiting.append(line)
            fence = opened[1]
        elif heading := _HEADING.match(line):
            _paragraph(outline, waiting)
            outline.heading(len(heading[1]), heading[2] or "")
        elif len(waiting) == 1 and (under := _UNDERLINE.match(line)):
            outline.heading(1 if under[1][0] == "=" else 2, waiting.pop())
        elif line.strip():
            waiting.append(line)
        else:
            _paragraph(outline, waiting)
    _paragraph(outline, waiting)
    title = str(metadata.pop("title", "")) or outline.first_heading
    return outline.finish(), title, metadata


def _paragraph(outline: Outline, lines: list[str]) -> None:
    outline.text("\n".join(lines))
    lines.clear()


def html_blocks(text: str) -> Parts:
    """Blocks, title and metadata (``lang``) of a page, parsed as browsers do, without its scripts.

    Raises:
        MissingExtraError: the package selectolax is not installed.
    """
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise MissingExtraError("reading .html", "selectolax", "files") from error
    tree = LexborHTMLParser(text)
    outline, words = Outline(), list[str]()

    def flush() -> None:
        outline.text("".join(words).strip())
        words.clear()

    def walk(node: Any, verbatim: bool) -> None:
        child = node.child
        while child is not None:
            tag = child.tag
            if tag == "-text":
                found = child.text_content or ""
                words.append(found if verbatim else re.sub(r"\s+", " ", found))
            elif tag == "br":
                words.append("\n")
            elif re.fullmatch("h[1-6]", tag):
                flush()
                outline.heading(int(tag[1]), child.text(deep=True, separator=" "))
            elif tag in _INLINE:
                walk(child, verbatim)
            elif tag not in _HIDDEN:
                # cells of a row stay together; what is a block begins and ends one
                is_cell = tag in ("td", "th")
                words.append(" ") if is_cell else flush()
                walk(child, verbatim or tag in ("pre", "textarea"))
                words.append(" ") if is_cell else flush()
            child = child.next

    title = tree.css_first("title")
    metadata: dict[str, Any] = {}
    if tree.root is not None:
        lang = (tree.root.attributes.get("lang") or "").partition("-")[0].strip().lower()
        if lang:
            metadata["lang"] = lang
        walk(tree.root, False)
    flush()
    named = " ".join(title.text(deep=True).split()) if title is not None else ""
    return outline.finish(), named or outline.first_heading, metadata
