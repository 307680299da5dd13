"""What `bench diff` does between parsing and printing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.compare import compare
from harness.gates import Gate, evaluate, exit_code, gate_lines
from harness.render.blocks import escape
from harness.render.diff import diff_lines, diff_markdown
from harness.results import load_result
from rag_core.errors import InvalidArgumentError

__all__ = ["diff_text"]

FORMATS = ("text", "md")


def diff_text(
    old: Path, new: Path, fail_on: Sequence[str], allow_other_machine: bool, format: str
) -> tuple[str, int]:
    """The comparison and the outcome of the gates as text, and the exit status.

    Raises:
        InvalidArgumentError: another format, or a gate that is not one.
        ResultError: a result that cannot be read.
    """
    if format not in FORMATS:
        raise InvalidArgumentError(f"format {format!r}; accepted: {', '.join(FORMATS)}")
    gates = [Gate.parse(text) for text in fail_on]
    comparison = compare(load_result(old), load_result(new), allow_other_machine=allow_other_machine)
    outcomes = evaluate(comparison, gates)
    lines, status = gate_lines(outcomes), exit_code(comparison, outcomes)
    if format == "md":
        text = diff_markdown(comparison)
        gated = "".join(f"- {escape(line.strip())}\n" for line in lines)
        return text + (f"\n{gated}" if gated else ""), status
    return "\n".join([*diff_lines(comparison), *lines]) + "\n", status
