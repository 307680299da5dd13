"""A comparison as text and as markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.cells import cell_len

from harness.compare import compare
from harness.render.diff import diff_lines, diff_markdown
from harness.results import ResultDocument

Factory = Callable[..., ResultDocument]


def changed(factory: Factory) -> ResultDocument:
    new = factory()
    for cell in new.cells[:2]:
        found = cell.metrics["ndcg@10"]
        found.per_query = [v - 0.02 for v in found.per_query if v is not None]
        assert found.mean is not None
        found.mean -= 0.02
    new.cells[2].metrics["ndcg@10"].per_query[0] += 0.0002  # type: ignore[operator]
    new.cells[4].total_s = [s * 2 for s in new.cells[4].total_s]
    new.cells[4].speed["p95_s"] *= 2  # type: ignore[operator]
    return new


def test_lines_start_with_the_verdict_and_group_by_figure(factory: Factory) -> None:
    lines = diff_lines(compare(factory(), changed(factory)))
    assert lines[0] == "civic of 2026-11-30T05:59:30Z → civic of 2026-11-30T05:59:30Z: regressed"
    place = lines.index("nDCG@10: old → new, change [its 95 % interval]")
    assert lines[place + 1] == "  bm25: 0.513 → 0.493, −0.020 [−0.020 to −0.020]: regressed"
    assert "+5e-06" in lines[place + 3]
    assert any(line.startswith("latency p95: ") for line in lines[place:])


def test_equal_results_say_so(factory: Factory) -> None:
    assert diff_lines(compare(factory(), factory()))[1:] == [
        "quality: no mean changed",
        "speed: no change beyond the noise",
    ]


@pytest.mark.parametrize("provider", ["e5", "x" * 150])
def test_lines_are_at_most_eighty_columns(factory: Factory, provider: str) -> None:
    old, new = factory(), changed(factory)
    for document in (old, new):
        document.cells[0].key = replace(document.cells[0].key, provider=provider)
    new.cells[1].settings["bm25"]["analyser"] = "a" * 500
    new.dataset["hash"]["corpus"] = "0" * 64
    lines = diff_lines(compare(old, new))
    assert max(cell_len(line) for line in lines) <= 80
    assert any("hash of corpus: cccccccccccccccc / 0000000000000000" in line for line in lines)


def test_markdown_has_a_table_per_figure(factory: Factory) -> None:
    text = diff_markdown(compare(factory(), changed(factory)))
    assert text.startswith("# civic of 2026-11-30T05:59:30Z → ")
    assert "\n## nDCG@10\n" in text
    assert "| bm25 | 0.513 | 0.493 | −0.020 | −0.020 to −0.020 | < 0.001 | regressed |" in text
    assert "\n## latency p95\n" in text
    assert text == diff_markdown(compare(factory(), changed(factory)))


def test_markdown_names_what_differs(factory: Factory) -> None:
    new = factory()
    new.spec["k"] = 10
    new.environment["cpu_model"] = "*Other*"
    del new.cells[-1]
    text = diff_markdown(compare(factory(), new))
    assert "- not comparable: setting k: 100 / 10\n" in text
    assert "- times and memory are not comparable: cpu_model: Some CPU / \\*Other\\*\n" in text
    assert "- only in the old result: broken · hybrid\n" in text
