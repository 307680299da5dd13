"""The sections on texts cut, roles sent and the labels."""

from __future__ import annotations

import jsonschema

from harness.render.audits import label_health, texts_and_roles
from harness.render.markdown import render
from harness.results import ResultDocument, result_schema
from harness.rows import make_rows

from .audited_cells import tell


def texts(document: ResultDocument) -> str:
    return texts_and_roles(document, make_rows(document))


def test_an_older_file_has_neither_section(document: ResultDocument) -> None:
    assert texts(document) == ""
    assert label_health(document, make_rows(document), "ndcg@10") == ""


def test_what_was_read_and_what_was_sent(document: ResultDocument) -> None:
    tell(document, "e5-small", role_cosine=0.9153)
    tell(document, "minilm", window=256, documents={"n": 120, "cut": 30, "tokens": 9000, "lost": 1234})
    text = texts(document)
    assert "| e5-small | 512 | 0 of 120 | – | 0 of 120 | – |" in text
    assert "| minilm | 256 | 30 of 120 (25 %) | 1,234 (14 %) | 0 of 120 | – |" in text
    assert "| e5-small | `query: {text}` | `{text}` | 0.915 |" in text
    assert "| minilm | `{text}` | `{text}` | – |" in text
    assert "≈" not in text
    assert "prompts are worth" not in text
    assert text in render(document)
    assert list(jsonschema.Draft202012Validator(result_schema()).iter_errors(document.as_dict())) == []


def test_estimates_windows_and_no_limit_are_marked(document: ResultDocument) -> None:
    cut = {"n": 120, "cut": 30, "tokens": 9000, "lost": 1234}
    tell(document, "e5-small", estimated=True, documents=cut, window=0)
    tell(document, "minilm", windows=True)
    text = texts(document)
    assert "| e5-small | none | ≈ 30 of 120 (25 %) | ≈ 1,234 (14 %) |" in text
    assert "| minilm | 512, several | 0 of 120 |" in text
    assert "≈: estimated from characters" in text


def test_prompts_are_compared_in_a_table_of_their_own(document: ResultDocument) -> None:
    values = [0.5 + 0.01 * (place % 3) for place in range(40)]
    found = {
        "change": "without prefixes",
        "reason": "",
        "metric": "ndcg@10",
        "with": values,
        "without": [value - 0.2 for value in values],
    }
    tell(document, "e5-small", prefixes=found)
    tell(document, "minilm", prefixes={**found, "reason": "no luck", "with": [], "without": []})
    text = texts(document)
    assert "### What the prompts are worth" in text
    assert "- e5-small without prefixes loses 0.200 nDCG@10 (−0.200 to −0.200), corrected p < 0.001." in text
    assert "| e5-small | without prefixes | 0.510 | 0.310 | −0.200 | −0.200 to −0.200 | < 0.001 |" in text
    assert "| minilm | without prefixes | – | – | – | – | – |" in text
    assert "- minilm without prefixes: not measured: no luck." in text
    assert list(jsonschema.Draft202012Validator(result_schema()).iter_errors(document.as_dict())) == []


def test_labels(document: ResultDocument) -> None:
    for cell in document.cells:
        if cell.status == "ok":
            level = 0.2 if cell.key.provider == "minilm" else 0.9
            cell.judged_at_10 = [level] * 39 + [None]
            cell.metrics["ndcg@10"].per_query[:12] = [0.0] * 12
    text = label_health(document, make_rows(document), "ndcg@10")
    assert "| minilm · vector | 0.200 | 0.200–0.200 | 39 |" in text
    assert "All 5 systems, the baseline aside, miss 12 of 40 queries (nDCG@10 0): q00, q01" in text
    assert "q09 …" in text
    assert "only relevant documents are judged" in text
    document.dataset["n_judgements_relevant"] = 90
    text = label_health(document, make_rows(document), "ndcg@10")
    assert "only relevant documents are judged" not in text
    assert "The first 10 of minilm · " in text
    assert "unjudged to 80 %" in text
    assert list(jsonschema.Draft202012Validator(result_schema()).iter_errors(document.as_dict())) == []


def test_near_duplicates_are_told_where_they_were_counted(document: ResultDocument) -> None:
    document.cells[0].judged_at_10 = [0.5] * 40
    names = ("pairs", "documents", "relevant_documents", "relevant_without_their_double", "queries_concerned")

    def text(*counts: int) -> str:
        if counts:
            document.dataset["near_duplicates"] = dict(zip(names, counts))
        return label_health(document, make_rows(document), "ndcg@10")

    assert "Near-duplicates of relevant documents: `bench data describe`." in text()
    assert "No two documents have nearly the same text." in text(0, 0, 0, 0, 0)
    told = text(1200, 9, 8, 7, 6)
    assert (
        "1,200 pairs of documents have nearly the same text. 7 relevant documents, of 6 queries, have" in told
    )
    assert list(jsonschema.Draft202012Validator(result_schema()).iter_errors(document.as_dict())) == []


def test_one_system_alone_has_no_queries_that_all_miss(document: ResultDocument) -> None:
    document.cells = document.cells[:1]
    document.cells[0].judged_at_10 = [0.5] * 40
    assert "the baseline aside" not in label_health(document, make_rows(document), "ndcg@10")
