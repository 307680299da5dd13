"""The registered providers as text: for a terminal, and as a markdown table."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable

from rag_core.prices import PER, all_prices
from rag_core.registry import EMBEDDERS, RERANKERS, Registry, load_plugins

__all__ = ["price_table", "provider_lines", "provider_table", "width_table"]

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


def width_table() -> list[str]:
    """The embedding providers by the width of their vectors as markdown, without the fakes.

    Memory is that of float32 vectors, 4 bytes a number, as the stores keep them.
    """
    load_plugins()
    lines = ["| width | provider | model | MB per 100,000 vectors |", "|---|---|---|---|"]
    found = {(spec.dim, spec.name, spec.model) for spec in EMBEDDERS if not spec.name.startswith("fake-")}
    for dim, name, model in sorted(found, key=lambda row: (row[0] or math.inf, *row[1:])):
        width, memory = (str(dim), f"{dim * 0.4:,.0f}") if dim else ("that of the model", "")
        lines.append(f"| {width} | `{name}` | {model} | {memory} |")
    return lines


def price_table() -> list[str]:
    """The services' list prices as markdown, and the variable that holds the key of each."""
    load_plugins()
    keys = {spec.name: ", ".join(f"`{v}`" for v in spec.env) for spec in (*EMBEDDERS, *RERANKERS) if spec.env}
    lines = ["| service | key | model | for | USD | per | as of |", "|---|---|---|---|---|---|---|"]
    for price in all_prices():
        work = "embedding" if price.kind == "embed" else "reranking"
        cells = price.provider, keys.get(price.provider, ""), price.model, work, f"{price.usd:.2f}"
        lines.append("| " + " | ".join([*cells, f"{PER[price.unit]:,} {price.unit}", price.date]) + " |")
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
