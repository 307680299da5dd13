"""A text as it was read: blocks in order, each under its headings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Block", "Outline", "Source"]


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a list item, a piece of code.

    Attributes:
        text: verbatim; a heading stands in the text of the first block below it.
        section: the headings above it, outermost first, joined by `` > ``.
        page: from 1; 0 where there are no pages.
    """

    text: str
    section: str = ""
    page: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """One text to be cut into chunks.

    Attributes:
        name: unique among the sources, for example ``guide/install.md``.
        title: of the whole text.
        blocks: in reading order.
        metadata: plain JSON values for every chunk.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Outline:
    """Collects blocks under headings of levels 1 to 6."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.first_heading = ""
        self._above: list[tuple[int, str]] = []
        self._headings: list[str] = []

    def heading(self, level: int, text: str) -> None:
        """Begin a section. A heading without text below it joins the next section that has some."""
        text = " ".join(text.split())
        if not text:
            return
        self.first_heading = self.first_heading or text
        self._above = [one for one in self._above if one[0] < level] + [(level, text)]
        self._headings.append(text)

    def text(self, text: str) -> None:
        """Add a block to the section."""
        if text.strip():
            self.blocks.append(Block("\n".join([*self._headings, text]), self._section()))
            self._headings.clear()

    def finish(self) -> list[Block]:
        """The blocks, headings at the very end included."""
        if self._headings:
            self.blocks.append(Block("\n".join(self._headings), self._section()))
            self._headings.clear()
        return self.blocks

    def _section(self) -> str:
        return " > ".join(text for _, text in self._above)
