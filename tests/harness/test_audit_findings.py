"""Sentences on prompts, texts cut, labels and thresholds, from documents made by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness.audit_findings import audit_sentences, audited, prefix_findings
from harness.results import CellResult, ResultDocument
from harness.rows import make_rows
from harness.summary import verdict

from . import audited_cells

tell = partial(audited_cells.tell, role_cosine=0.91)


def prefixes(loss: float, reason: str = "", change: str = "without prefixes") -> dict[str, Any]:
    noise = np.random.default_rng(3).normal(0, 0.05, 40)
    before = np.full(40, 0.7)
    after = before - loss + noise - noise.mean()
    values = ([], []) if reason else (before.tolist(), after.tolist())
    return {"change": change, "reason": reason, "metric": "ndcg@10", "with": values[0], "without": values[1]}


def sentences(document: ResultDocument) -> list[str]:
    return audit_sentences(document, make_rows(document))


def test_prompts_that_matter_are_said_with_their_interval(document: ResultDocument) -> None:
    tell(document, "e5-small", prefixes=prefixes(0.1))
    [one] = prefix_findings(document, make_rows(document))
    assert one.sentence() == (
        "e5-small without prefixes loses 0.100 nDCG@10 (−0.119 to −0.083), corrected p < 0.001."
    )
    assert (round(one.before or 0, 3), round(one.after or 0, 3)) == (0.7, 0.6)
    assert sentences(document) == [one.sentence()]
    assert one.sentence() in verdict(document).sentences


def test_prompts_that_hurt(document: ResultDocument) -> None:
    tell(document, "e5-small", prefixes=prefixes(-0.1, change="queries sent as documents"))
    [said] = sentences(document)
    assert said.startswith("e5-small queries sent as documents gains 0.100 nDCG@10 (+0.081 to +0.117)")


def test_prompts_that_cannot_be_told_apart_stay_out_of_the_verdict(document: ResultDocument) -> None:
    tell(document, "e5-small", prefixes=prefixes(0.0))
    tell(document, "minilm", prefixes=prefixes(0.1, reason="no luck."))
    first, second = prefix_findings(document, make_rows(document))
    assert first.sentence().startswith(
        "e5-small without prefixes cannot be told from itself as it is sent: 0.000 nDCG@10 (−0.0"
    )
    assert second.sentence() == "minilm without prefixes: not measured: no luck."
    assert sentences(document) == []


def test_each_provider_is_audited_once(document: ResultDocument) -> None:
    for provider in ("e5-small", "minilm"):
        tell(document, provider)
    assert sorted(name for name, _ in audited(make_rows(document))) == ["e5-small", "minilm"]


def test_many_texts_cut_are_a_sentence(document: ResultDocument) -> None:
    tell(document, "minilm", documents={"n": 120, "cut": 11, "tokens": 9000, "lost": 900})
    assert sentences(document) == []
    tell(document, "minilm", documents={"n": 120, "cut": 30, "tokens": 9000, "lost": 900})
    assert sentences(document) == [
        "minilm reads only the first 512 tokens of 25 % of the documents: 10 % of all tokens are lost."
    ]
    tell(document, "minilm", documents={"n": 120, "cut": 30, "tokens": 9000, "lost": 900}, estimated=True)
    assert "of about 25 % of the documents" in sentences(document)[0]


def test_a_threshold_that_separates_is_said_of_rerankers_alone(
    document: ResultDocument, reranked: Callable[..., CellResult]
) -> None:
    random = np.random.default_rng(1)
    scores = {
        "of": "rerank",
        "relevant": random.normal(9, 1, 40).tolist(),
        "other": [0.0] * 40,
        "unanswerable": random.normal(0, 1, 40).tolist(),
        "n_unjudged": 0,
    }
    cell = reranked(document, 0.0)
    cell.thresholds = scores
    document.cells[2].thresholds = {**scores, "of": "vector"}
    [said] = sentences(document)
    assert said.startswith("e5-small · hybrid+rerank · fine: a score threshold of ")
    assert "separates answers from the rest: it keeps 100 % of the answers" in said
    cell.thresholds = {**scores, "unanswerable": scores["relevant"]}
    assert sentences(document) == []
