"""The last section of the report: the command behind every row."""

from __future__ import annotations

from collections.abc import Sequence

from harness.render.blocks import escape
from harness.reproduce import command, run_command_of
from harness.results import ResultDocument
from harness.rows import Row

__all__ = ["commands"]


def commands(document: ResultDocument, rows: Sequence[Row]) -> str:
    """The command of the whole run, then of each row, folded away; every figure of a row comes from it."""
    lines = [f"- {escape(row.label)}\n\n      {command(document, row.cell)}\n" for row in rows]
    return (
        "## Commands\n\n<details><summary>The command that makes each row</summary>\n\n"
        f"The whole run:\n\n    {run_command_of(document)}\n\nEach row alone:\n\n"
        + "".join(lines)
        + "\nA data set that is not shipped is named by its folder; the hashes above tell whether it is the "
        "same. `bench report` makes this page from the result.\n\n</details>\n"
    )
