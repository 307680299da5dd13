"""Which machine each cell was measured on: times of different machines are neither averaged nor compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.results import CellResult, ResultDocument

__all__ = ["machine_name", "machine_of", "machines", "on_one_machine"]


def machine_of(cell: CellResult, document: ResultDocument) -> Mapping[str, Any]:
    """The environment that ``cell`` was measured in."""
    return cell.environment or document.environment


def on_one_machine(document: ResultDocument, *cells: CellResult) -> bool:
    """Whether all ``cells`` were measured on the same machine, as far as the document tells."""
    return len({machine_of(cell, document).get("machine_fingerprint") for cell in cells}) < 2


def machine_name(environment: Mapping[str, Any]) -> str:
    """``model, n CPUs``, and the fingerprint that tells it from others."""
    cpus = environment.get("cpus_usable")
    parts = [
        str(environment.get("cpu_model") or "unknown processor"),
        f"{cpus} CPU{'' if cpus == 1 else 's'}" if cpus else "",
        f"#{environment['machine_fingerprint']}" if environment.get("machine_fingerprint") else "",
    ]
    return ", ".join(part for part in parts if part)


def machines(document: ResultDocument) -> list[tuple[Mapping[str, Any], list[CellResult]]]:
    """Each machine that measured cells, with these; the document's first."""
    out: dict[Any, tuple[Mapping[str, Any], list[CellResult]]] = {}
    for environment, cell in _measured(document, document.cells):
        key = environment.get("machine_fingerprint")
        out.setdefault(key, (environment, []))[1].append(cell)
    own = document.environment.get("machine_fingerprint")
    return sorted(out.values(), key=lambda pair: pair[0].get("machine_fingerprint") != own)


def _measured(
    document: ResultDocument, cells: Iterable[CellResult]
) -> Iterator[tuple[Mapping[str, Any], CellResult]]:
    return ((machine_of(cell, document), cell) for cell in cells if cell.status == "ok")
