"""Histories of nightly results for tests: made from a document, moved night by night."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from harness.history import Night
from harness.results import ResultDocument

START = datetime(2026, 11, 1, 3, 17, tzinfo=UTC)
E5 = "e5-small/cpu/q4/flat/hybrid/-"
LABEL = "e5-small · hybrid"
Move = Callable[[int, ResultDocument], None]


def history(
    factory: Callable[..., ResultDocument],
    n: int,
    move: Move | None = None,
    drift: float = 0.02,
    seed: int = 1,
) -> list[Night]:
    """``n`` nights of the factory's document; times drift from night to night, then ``move`` changes them."""
    rng = np.random.default_rng(seed)
    nights = []
    for place in range(n):
        document = factory()
        document.created = (START + timedelta(days=place)).isoformat().replace("+00:00", "Z")
        for cell in document.cells:
            if cell.total_s:
                slow(document, float(np.exp(rng.normal(0, drift))), cell.key.cell_id)
        if move:
            move(place, document)
        nights.append(Night(f"night-{place:02d}", document))
    return nights


def slow(document: ResultDocument, factor: float, cell_id: str = E5) -> None:
    """Every latency of the cell times ``factor``."""
    cell = document.cell(cell_id)
    assert cell is not None
    cell.total_s = [value * factor for value in cell.total_s]
    for name, q in (("p50_s", 50), ("p95_s", 95)):
        cell.speed[name] = float(np.percentile(cell.total_s, q))


def worsen(document: ResultDocument, by: float, cell_id: str = E5, metric: str = "ndcg@10") -> None:
    """Take ``by`` off every query of the metric."""
    cell = document.cell(cell_id)
    assert cell is not None
    found = cell.metrics[metric]
    values: Sequence[float] = [value - by for value in found.per_query if value is not None]
    found.per_query, found.mean = list(values), float(np.mean(values))
