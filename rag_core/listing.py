"""The registered providers as text: for a terminal, and as a markdown table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rag_core.registry import EMBEDDERS, RERANKERS, Registry, load_plugins

__all__ = ["provider_lines", "provider_table"]

COLUMNS = 80


def provider_table() -> list[str]:
    """The providers and rerankers as markdown, a line a name, the same on every machine.

    Where a name's targets differ in extra or note, the cell tells them in the order of the targets.
    """
    load_plugins()
    lines = ["| kind | name | model | targets | width | extra | note |", "|---|---|---|---|---|---|---|"]
    for registry in (EMBEDDERS, RERANKERS):
        for name in registry.names():
            specs = registry.find(name)
            cells = (
                registry.kind,
                f"`{name}`",
                _joined(spec.model for spec in specs),
                ", ".join(spec.target for spec in specs),
                specs[0].dim or "",
                _joined(spec.extra for spec in specs),
                _joined((spec.note for spec in specs), "; "),
            )
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _joined(values: Iterable[str], between: str = ", ") -> str:
    return between.join(dict.fromkeys(value for value in values if value))


def provider_lines(columns: int = COLUMNS) -> list[str]:
    """A line per provider and target, with the reason of every "no" and the command that mends it.

    Args:
        columns: width of a line. Reasons are broken between words only, so that a command can be copied.
    """
    load_plugins()
    lines: list[str] = []
    for title, registry in (("embedding providers", EMBEDDERS), ("rerankers", RERANKERS)):
        lines += [title, *_registry_lines(registry, columns), ""]
    return lines[:-1]


def _registry_lines(registry: Registry, columns: int) -> list[str]:
    lines = []
    width = max((len(spec.name) for spec in registry), default=0)
    indent = " " * (width + 4)
    for spec in registry:
        answer = registry.availability(spec)
        dim = str(spec.dim) if spec.dim else ""
        answered = "yes" if answer.ok else "no"
        head = f"  {spec.name:<{width}}  {spec.target:<6} {dim:>5}  {answered:<3}"
        fits = len(head) + 2 + len(spec.model) <= columns
        lines += [f"{head}  {spec.model}"] if fits else [head.rstrip(), indent + spec.model]
        if not answer.ok or not answer.is_ready:
            lines += _reason_lines(answer.reason, answer.hint, indent, columns)
    return lines


def _reason_lines(reason: str, hint: str, indent: str, columns: int) -> list[str]:
    """Reason and hint in one line where they fit, else the hint in lines of its own."""
    whole = indent + reason + (f"; {hint}" if hint else "")
    if len(whole) <= columns:
        return [whole]
    return [
        line
        for part in (reason + (";" if hint else ""), hint)
        for line in textwrap.wrap(
            part,
            columns,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]
