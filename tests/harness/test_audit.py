"""What was read and what prompts bring, with providers whose vectors are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.audit import NO_PREFIXES, SAME_ROLE, audit, cut_documents, exact_lists, prefix_comparison
from harness.config import RunSpec
from harness.spending import Spending
from harness.stages import Job
from rag_core.embedding import BaseEmbedder
from rag_core.errors import ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.types import Document

TEXTS = {"a": "red", "b": "green", "c": "blue", "d": "one two three four five six"}
QUERIES = {"qa": "red", "qb": "green", "qc": "blue"}


class Words(BaseEmbedder):
    """One dimension a word; the words of a template count too, so that unequal prompts bring noise."""

    def __init__(self, query: str = "{text}", document: str = "{text}", fail: str = "", **more: Any) -> None:
        values = {"dtype": "fp32", "pooling": "mean", "max_tokens": 4} | more
        super().__init__(
            Fingerprint("words", "w", "1", 64, query_template=query, document_template=document, **values)
        )
        self.fail = fail
        self.calls: list[tuple[str, str]] = []

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(self.prepare(text, "document").split()) for text in texts]

    def _encode(self, texts: list[str], role: str) -> Any:
        self.calls += [(role, text) for text in texts]
        if self.fail and role == self.fail:
            raise ProviderError("no luck")
        rows = np.zeros((len(texts), 64))
        for row, text in zip(rows, texts):
            for word in text.split():
                row[sum(map(ord, word)) % 64] += 3.0 if word == "noise:" else 1.0
        return rows


class Service(Words):
    target = "api"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = tmp_path / "town"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"_id": d, "text": text}) for d, text in TEXTS.items())
    )
    (folder / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": q, "text": text}) for q, text in QUERIES.items())
    )
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nqa\ta\t1\nqb\tb\t1\nqc\tc\t1\n")
    spec = RunSpec(data=str(folder), providers=("fake",), audit_prefixes=True)
    values = {"spec": spec.as_dict(), "data": str(folder), "work": str(tmp_path), "runs": str(tmp_path)}
    return Job({**values, "cells": []})


def compared(job: Job, embedder: BaseEmbedder) -> dict[str, Any] | None:
    documents = list(job.dataset.documents)
    vectors = embedder.embed([d.indexed_text for d in documents], role="document")
    asked = np.concatenate([embedder.embed([q.text], role="query") for q in job.queries])
    spending = Spending(None, 0.0, lambda usd: None)
    return prefix_comparison(job, embedder, documents, vectors, asked, spending, lambda *a, **k: None)


def test_tokens_beyond_the_window_are_counted(job: Job) -> None:
    found = audit(job, Words(), job.dataset.documents)
    assert found["documents"] == {"n": 4, "cut": 1, "tokens": 9, "lost": 2}
    assert found["queries"] == {"n": 3, "cut": 0, "tokens": 3, "lost": 0}
    assert (found["window"], found["estimated"], found["windows"], found["prefixes"]) == (
        4,
        False,
        False,
        None,
    )
    assert job.cut == {"d": (4, 6)}


def test_a_prompt_takes_its_part_of_the_window(job: Job) -> None:
    assert audit(job, Words(document="passage: {text}"), job.dataset.documents)["documents"]["lost"] == 3


@pytest.mark.parametrize("more", [{"pooling": "mean+windows"}, {"max_tokens": 0}])
def test_nothing_is_cut_without_a_window_or_in_several(job: Job, more: dict[str, Any]) -> None:
    found = audit(job, Words(**more), job.dataset.documents)
    assert (found["documents"]["cut"], found["windows"], job.cut) == (0, "pooling" in more, {})
    assert cut_documents(job.dataset.documents, [9] * 4, 0) == {}


def test_a_role_that_changes_a_vector_is_seen(job: Job) -> None:
    assert audit(job, Words(), job.dataset.documents)["role_cosine"] == 1.0
    assert audit(job, Words("noise: {text}"), job.dataset.documents)["role_cosine"] == pytest.approx(
        0.3162, abs=1e-4
    )
    assert audit(job, Words(fail="query"), job.dataset.documents)["role_cosine"] is None


def test_a_service_is_not_called_and_its_tokens_are_estimates(job: Job) -> None:
    service = Service("input_type=query", "input_type=document")
    found = audit(job, service, job.dataset.documents)
    assert (found["role_cosine"], found["estimated"], service.calls) == (None, True, [])


def test_prompts_are_left_out_on_both_sides(job: Job) -> None:
    """The query's prompt drowns its word, so that without prompts every query finds its document."""
    found = compared(job, Words("noise: {text}", "x {text}"))
    assert found is not None
    assert (found["change"], found["reason"], found["metric"]) == (NO_PREFIXES, "", "ndcg@10")
    assert found["without"] == [1.0, 1.0, 1.0]
    assert len(found["with"]) == 3


def test_a_model_without_prompts_has_nothing_to_compare(job: Job) -> None:
    assert compared(job, Words()) is None
    assert compared(job, Words("", "")) is None


def test_a_parameter_cannot_be_left_out_so_queries_go_as_documents(job: Job) -> None:
    service = Service("input_type=query", "input_type=document")
    found = compared(job, service)
    assert found is not None
    assert (found["change"], found["reason"]) == (SAME_ROLE, "")
    assert found["with"] == found["without"] == [1.0, 1.0, 1.0]
    assert service.calls[-3:] == [("document", "red"), ("document", "green"), ("document", "blue")]


def test_a_comparison_that_fails_is_a_reason_and_not_the_end(job: Job) -> None:
    class Stubborn(Words):
        def with_templates(self, query: str, document: str) -> Any:
            raise ProviderError("cannot leave its prefixes out")

    found = compared(job, Stubborn("query: {text}", "passage: {text}"))
    assert found is not None
    assert (found["reason"], found["with"], found["without"]) == ("cannot leave its prefixes out", [], [])


class Paid(Service):
    is_local = False

    def __init__(self) -> None:
        super().__init__("input_type=query", "input_type=document")
        self.name, self.model = "cohere", "embed-multilingual-v3.0"


@pytest.mark.parametrize(("max_usd", "sends"), [(1.0, True), (1e-9, False)])
def test_a_paid_comparison_keeps_to_the_budget(job: Job, max_usd: float, sends: bool) -> None:
    service = Paid()
    spending = Spending(max_usd, 0.0, lambda usd: None)
    _, held = spending.watch(service, "embed")
    vectors, asked = np.eye(4, 64, dtype=np.float32), np.eye(3, 64, dtype=np.float32)
    found = prefix_comparison(
        job, held, list(job.dataset.documents), vectors, asked, spending, lambda *a, **k: None
    )
    assert found is not None
    assert bool(found["without"]) is sends
    assert bool(service.calls) is sends
    assert ("1e-09" in found["reason"]) is not sends


def test_equal_scores_are_ordered_by_falling_id_and_scopes_hold(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(d, "t", metadata={"scope": s}) for d, s in (("a", "x"), ("c", "y"), ("b", "x"))]
    vectors = np.array([[1, 0], [1, 0], [1, 0]], np.float32)
    asked = np.array([[1, 0], [0, 0], [1, 0]], np.float32)
    found = exact_lists(job, documents, vectors, asked, depth=2)
    assert found == {"qa": ["c", "b"], "qb": [], "qc": ["c", "b"]}
    where: Callable[..., Any] = lambda query: {"scope": "x"}  # noqa: E731
    monkeypatch.setattr(job, "where", where)
    assert exact_lists(job, documents, vectors, asked)["qa"] == ["b", "a"]
