"""The section on vector stores, from a result alone."""

from __future__ import annotations

from harness.render.stores import stores
from harness.results import CellKey, CellResult, ResultDocument, StageTimes
from harness.rows import make_rows


def shown(*cells: tuple[str, str, float | None]) -> str:
    made = [
        CellResult(
            CellKey("town", "fake", "cpu", "fp32", store, pipeline, "-"),
            "ok",
            speed={"store_write_s": 2.5} | ({} if recall is None else {"store_recall_at_10": recall}),
            stages={"vector": StageTimes([0.004, 0.005, 0.006], [])},
        )
        for store, pipeline, recall in cells
    ]
    made.append(CellResult(CellKey("town", "fake", "cpu", "-", "chroma", "vector", "-"), "skipped", "absent"))
    document = ResultDocument("town", "complete", "2026-12-01T00:00:00Z", {}, "0" * 16, {}, {}, made)
    return stores(make_rows(document))


def test_nothing_where_only_the_exact_store_ran() -> None:
    assert shown(("flat", "vector", None), ("flat", "hybrid", None)) == ""


def test_a_line_for_each_store() -> None:
    text = shown(("flat", "vector", None), ("lancedb", "vector", 0.987), ("lancedb", "hybrid", 0.987))
    assert text.startswith("## Vector stores\n")
    assert "| fake (cpu, fp32) | flat | 1.000 | 2.50 s | 5.00 |" in text
    assert text.count("| fake (cpu, fp32) | lancedb | 0.987 | 2.50 s | 5.00 |") == 1
    assert "chroma" not in text
