"""Chains of providers; field report O21 (mixed vector spaces) stands behind the tests named after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_core import Document, Index, Query, get_embedder, get_reranker
from rag_core.bm25 import BM25
from rag_core.chain import Pauses
from rag_core.errors import (
    BudgetExceededError,
    IdentityMismatchError,
    InvalidArgumentError,
    MissingExtraError,
    NoFallbackError,
    PartialEmbedError,
    PermanentError,
    ProviderError,
    TransientError,
)
from rag_core.fallback import FallbackEmbedder, FallbackReranker
from rag_core.retrievers import HybridRetriever, RerankedRetriever, VectorRetriever
from rag_core.stores.flat import FlatStore
from rag_core.testing import EmbedProviderConformance, RerankerConformance

DOCUMENTS = [Document(f"d{i}", f"the ferry number {i} leaves the old port") for i in range(5)]
DOWN = TransientError("a: HTTP 503; gave up after 6 tries", 503)
FAILURES = [
    DOWN,
    TransientError("a: asks to wait 900 s", 429, 900),
    PermanentError("a: HTTP 401: wrong key", 401),
    PermanentError("a: HTTP 404: no such model", 404),
    MissingExtraError("a", "httpx", "api"),
    ConnectionResetError("a"),
]
Make = Callable[..., Any]


class TestConformanceOfTheEmbedder(EmbedProviderConformance):
    def make(self) -> Any:
        broken = get_embedder("fake-cohere?fail_role=document")
        return FallbackEmbedder([broken, "fake-e5-small", "fake"])


class TestConformanceOfTheReranker(RerankerConformance):
    def make(self) -> Any:
        return FallbackReranker([Failing(), "fake-overlap"])


class Failing:
    """A reranker that does not answer, or answers what it is told to."""

    name, model, target, fingerprint = "failing", "none", "cpu", "failing/1"

    def __init__(self, outcome: BaseException | list[float] = DOWN) -> None:
        self.outcome, self.calls, self.closed = outcome, 0, 0

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        self.calls += 1
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("failure", FAILURES, ids=lambda e: f"{type(e).__name__}{getattr(e, 'status', '')}")
def test_the_next_provider_of_the_same_vectors_answers(scripted: Make, failure: Exception) -> None:
    a, b, stood_in = scripted(), scripted(), []
    chain = FallbackEmbedder([a, b], identity=a.fingerprint, on_stand_in=stood_in.append)
    expected = b.embed(["x", "", "y"])
    a.down(failure)
    assert np.array_equal(chain.embed(["x", "", "y"]), expected)
    assert stood_in == [b]


def test_nobody_stands_in_for_a_provider_that_works(scripted: Make) -> None:
    a, b, stood_in = scripted(), scripted(), []
    chain = FallbackEmbedder([scripted("other"), a, b], identity=a.fingerprint, on_stand_in=stood_in.append)
    chain.embed(["x"])
    assert (len(a.asked), b.asked, stood_in) == (1, [], [])
    assert chain.is_ready


def test_a_text_that_is_refused_is_refused(scripted: Make) -> None:
    a, b = scripted(), scripted()
    chain = FallbackEmbedder([a, b], identity=a.fingerprint)
    refusals = (PermanentError("a: HTTP 400: bad text", 400), ProviderError("a: NaN"))
    for refusal in refusals:
        a.fail = lambda texts, refusal=refusal: refusal if "d bad" in texts else None
        with pytest.raises(ProviderError) as caught:
            chain.embed(["good", "bad"])
        assert caught.value is refusal
    assert b.asked == []
    assert chain.embed(["good"]).any()  # and is not held against the provider


def test_a_provider_that_refuses_everything_is_not_the_texts_fault(scripted: Make) -> None:
    a, b = scripted(), scripted()
    a.down(PermanentError("a: HTTP 400: model retired", 400))
    assert FallbackEmbedder([a, b], identity=a.fingerprint).embed(["good"]).any()


def test_arguments_and_budgets_go_no_further(scripted: Make) -> None:
    a, b = scripted(), scripted()
    chain = FallbackEmbedder([a, b], identity=a.fingerprint)
    with pytest.raises(InvalidArgumentError):
        chain.embed("one string")
    a.down(BudgetExceededError("a", 1, 1, 1))
    with pytest.raises(BudgetExceededError):
        chain.embed(["x"])
    with pytest.raises(BudgetExceededError):
        chain.choose()
    a.fail = lambda texts: BudgetExceededError("a", 1, 1, 1) if texts == ["d first call"] else DOWN
    assert chain.embed(["x"]).any()  # down, which needs no probe to be known
    assert len(b.asked) == 1


def test_a_probe_that_the_budget_forbids_leaves_the_refusal_standing(scripted: Make) -> None:
    a, refusal = scripted(), PermanentError("a: HTTP 400", 400)
    a.fail = lambda texts: BudgetExceededError("a", 1, 1, 1) if texts == ["d first call"] else refusal
    with pytest.raises(PermanentError):
        FallbackEmbedder([a, scripted()], identity=a.fingerprint).embed(["x"])


def partial_of(a: Any, texts: Sequence[str], done: int, error: Exception | None) -> PartialEmbedError:
    vectors = np.zeros((len(texts), a.dim), np.float32)
    for i in range(done):
        row = a._row(texts[i])
        vectors[i] = row / np.linalg.norm(row)
    failed = dict.fromkeys(range(done, len(texts)), "not reached")
    partial = PartialEmbedError("a", vectors, failed, isinstance(error, TransientError))
    partial.__cause__ = error
    return partial


def test_what_a_failed_provider_has_done_is_kept_and_the_rest_asked_of_the_next(scripted: Make) -> None:
    a, b = scripted(), scripted()
    expected = b.embed(["t0", "t1", "t2", "t3"])
    b.asked.clear()
    a.fail = lambda texts: partial_of(a, texts, 2, DOWN)
    chain = FallbackEmbedder([a, b], identity=a.fingerprint)
    assert np.allclose(chain.embed(["t0", "t1", "t2", "t3"]), expected)
    assert b.asked == [["d t2", "d t3"]]


@pytest.mark.parametrize(
    "second",
    [DOWN, PermanentError("b: HTTP 400", 400), BudgetExceededError("b", 1, 1, 1), "partial"],
    ids=["down", "refused", "budget", "partial"],
)
def test_what_was_paid_for_is_not_lost_when_the_next_one_fails_too(scripted: Make, second: Any) -> None:
    a, b = scripted(), scripted()
    a.fail = lambda texts: partial_of(a, texts, 2, DOWN)
    b.fail = lambda texts: (
        None
        if texts == ["d first call"]
        else partial_of(b, texts, 1, None)
        if second == "partial"
        else second
    )
    with pytest.raises(PartialEmbedError) as caught:
        FallbackEmbedder([a, b], identity=a.fingerprint).embed(["t0", "t1", "t2", "t3"])
    done = 3 if second == "partial" else 2
    assert list(caught.value.failed) == list(range(done, 4))
    assert caught.value.vectors[:done].any(axis=1).all()
    assert not caught.value.vectors[done:].any()


def test_a_text_refused_among_others_is_told_and_not_asked_elsewhere(scripted: Make) -> None:
    a, b = scripted(), scripted()
    a.fail = lambda texts: partial_of(a, texts, len(texts) - 1, None)
    with pytest.raises(PartialEmbedError):
        FallbackEmbedder([a, b], identity=a.fingerprint).embed(["t0", "t1"])
    assert b.asked == []


def test_o21_no_other_vectors_at_query_time(scripted: Make) -> None:
    a, b = scripted("a", dim=768), scripted("b", dim=768)
    chain = FallbackEmbedder([a, b], identity=a.fingerprint)
    a.down(DOWN)
    for _ in range(2):  # the second time, a is left alone
        with pytest.raises(NoFallbackError) as caught:
            chain.embed(["x"], role="query")
        assert list(caught.value.reasons) == ["a", "b"]
        assert "other vectors" in caught.value.reasons["b"]
        assert caught.value.retry_in_s is not None
    assert b.asked == []


def test_o21_same_model_and_width_in_another_role_setting_is_another_space(scripted: Make) -> None:
    a = scripted("a")
    b = scripted("a")
    b._fingerprint = type(a.fingerprint)(**{**a.fingerprint.as_dict(), "query_template": "{text}"})
    a.down(DOWN)
    with pytest.raises(NoFallbackError, match="query_template"):
        FallbackEmbedder([a, b], identity=a.fingerprint).embed(["x"], role="query")


def test_o21_a_decided_chain_does_not_change_its_vectors(scripted: Make) -> None:
    a, b = scripted("a"), scripted("b")
    chain = FallbackEmbedder([a, b])
    assert (chain.name, chain.dim, chain.max_tokens) == ("a", 8, 0)
    a.down(DOWN)
    with pytest.raises(NoFallbackError):
        chain.embed(["x"])
    assert chain.fingerprint == a.fingerprint
    assert b.asked == []


def test_o21_an_undecided_chain_decides_by_a_probe_wholly(scripted: Make) -> None:
    a, b = scripted("a"), scripted("b", target="cpu", is_local=True)
    a.down(PermanentError("a: HTTP 401: wrong key; check A_API_KEY", 401))
    chain = FallbackEmbedder([a, b])
    assert chain.choose() is b
    assert chain.fingerprint == b.fingerprint
    assert (chain.name, chain.model, chain.target, chain.is_local) == ("b", "model-b", "cpu", True)
    a.down(None)
    assert np.array_equal(chain.embed(["x"]), b.embed(["x"]))


def test_an_undecided_chain_of_which_nobody_answers_says_why(scripted: Make) -> None:
    a, b = scripted("a"), scripted("b")
    a.down(DOWN)
    b.down(ProviderError("b: NaN"))
    chain = FallbackEmbedder([a, b], pauses=Pauses(4, 8))
    with pytest.raises(NoFallbackError, match=r"503.*NaN"):
        chain.embed(["x"])
    a.down(None)
    assert not chain.is_available()
    with pytest.raises(NoFallbackError, match="left alone"):
        chain.warmup()


def test_a_failed_provider_is_left_alone_and_comes_back(scripted: Make, clock: Any) -> None:
    a, b = scripted(), scripted()
    chain = FallbackEmbedder([a, b], identity=a.fingerprint, pauses=Pauses(5, 300, clock))
    a.down(DOWN)
    for _ in range(3):
        chain.embed(["x"])
    assert len(a.asked) == 1
    clock.now += 5
    chain.embed(["x"])
    assert len(a.asked) == 2
    clock.now += 5
    chain.embed(["x"])  # ten seconds by now
    assert len(a.asked) == 2
    a.down(None)
    clock.now += 5
    chain.embed(["x"])
    chain.embed(["x"])
    assert len(a.asked) == 4


def test_bad_arguments_after_a_pause_do_not_cost_the_provider_its_turn(scripted: Make, clock: Any) -> None:
    a, b = scripted(), scripted()
    chain = FallbackEmbedder([a, b], identity=a.fingerprint, pauses=Pauses(5, 300, clock))
    a.down(DOWN)
    chain.embed(["x"])
    a.down(None)
    clock.now += 5
    with pytest.raises(InvalidArgumentError):
        chain.embed([None])
    chain.embed(["x"])
    assert len(a.asked) == 2


def test_spec_strings_that_cannot_run_here_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COHERE_API_KEY", raising=False)
    chain = FallbackEmbedder(["cohere", "fake-cohere"])
    assert (chain.name, chain.target, chain.is_local) == ("cohere", "api", False)
    assert chain.is_available()
    assert chain.count_tokens(["a b"]) == [2]
    assert chain.fingerprint.provider == "fake-cohere"
    alone = FallbackEmbedder(["cohere"])
    assert not alone.is_available()
    with pytest.raises(
        NoFallbackError, match=r"cohere: api: (COHERE_API_KEY is not set|package .httpx. is not)"
    ):
        alone.count_tokens(["a"])
    with pytest.raises(
        NoFallbackError, match=r"cohere: api: (COHERE_API_KEY is not set|package .httpx. is not)"
    ):
        alone.embed(["a"])


def test_other_providers_are_not_loaded_to_know_that_they_are_others(scripted: Make) -> None:
    a = scripted("fake-cohere")
    chain = FallbackEmbedder(["fake-e5-large", a], identity=a.fingerprint)
    chain.embed(["x"])
    assert chain._members[0].made is None
    assert chain.name == "fake-cohere"


def test_for_identity_refuses_what_the_chain_cannot_be(scripted: Make) -> None:
    a, b = scripted("a"), scripted("b")
    with pytest.raises(IdentityMismatchError, match=r"rag rebuild --provider a"):
        FallbackEmbedder([a, "fake"]).for_identity(b.fingerprint)


def test_one_failure_is_known_to_all_views(scripted: Make) -> None:
    a, b = scripted("a"), scripted("b")
    chain = FallbackEmbedder([a, b])
    a.down(DOWN)
    with pytest.raises(NoFallbackError):
        chain.for_identity(a.fingerprint).embed(["x"])
    assert chain.choose() is b
    assert len(a.asked) == 1


def identity_of(folder: Path) -> str:
    return str(json.loads((folder / "index.json").read_text())["identity"]["provider"])


def test_o21_a_build_that_fails_on_the_way_leaves_nothing(scripted: Make, tmp_path: Path) -> None:
    a, b = scripted("a"), scripted("b")
    a.fail = lambda texts: None if texts == ["d first call"] else DOWN
    with pytest.raises(NoFallbackError):
        Index.build(tmp_path / "i", DOCUMENTS, FallbackEmbedder([a, b]))
    assert list(tmp_path.iterdir()) == []
    assert b.asked == []


def test_o21_a_build_starts_again_wholly_with_the_next(scripted: Make, tmp_path: Path) -> None:
    a, b = scripted("a"), scripted("b")
    many = [Document(f"d{i}", f"text {i}") for i in range(150)]
    a.fail = lambda texts: DOWN if "d text 140" in texts else None
    chain = FallbackEmbedder([a, b])
    index = chain.build_with(lambda embedder: Index.build(tmp_path / "i", many, embedder))
    assert len(a.asked) == 4  # probe, two batches, the one that failed
    assert identity_of(tmp_path / "i") == "b"
    for i in range(150):
        expected = b.embed([f"text {i}"])[0]
        assert index.store.search(expected, 1).scores[0] == pytest.approx(1, abs=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_a_build_that_every_provider_leaves_raises_the_last_failure(scripted: Make, tmp_path: Path) -> None:
    a, b = scripted("a"), scripted("b")
    for provider in (a, b):
        provider.fail = lambda texts: None if texts == ["d first call"] else DOWN
    with pytest.raises(NoFallbackError, match="b: "):
        FallbackEmbedder([a, b], pauses=Pauses(0, 0)).build_with(
            lambda embedder: Index.build(tmp_path / "i", DOCUMENTS, embedder)
        )
    assert list(tmp_path.iterdir()) == []


def test_a_build_with_a_bad_text_does_not_go_on_with_another_provider(scripted: Make) -> None:
    a, b = scripted("a"), scripted("b")
    a.fail = lambda texts: partial_of(a, texts, 0, None) if "d bad" in texts else None
    with pytest.raises(PartialEmbedError):
        FallbackEmbedder([a, b]).build_with(lambda embedder: embedder.embed(["bad"]))
    assert b.asked == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outcomes=st.lists(st.lists(st.sampled_from("okkkdpt"), max_size=8), min_size=3, max_size=3),
    batch=st.integers(1, 4),
)
def test_o21_never_two_fingerprints_in_one_build_whatever_fails_when(
    scripted: Make, outcomes: list[list[str]], batch: int
) -> None:
    """Three providers, two of them of the same vectors, each with its own script of failures."""
    providers = [scripted("a"), scripted("b"), scripted("a")]
    for provider, script in zip(providers, outcomes):
        provider.fail = Script(provider, script)
    texts = [f"text {i}" for i in range(9)]
    stored: dict[str, Any] = {}

    def build(embedder: Any) -> None:
        stored.clear()
        identity = embedder.fingerprint
        for start in range(0, len(texts), batch):
            part = texts[start : start + batch]
            for text, row in zip(part, embedder.embed(part)):
                stored[text] = (identity.provider, row)

    try:
        FallbackEmbedder(providers, pauses=Pauses(0, 0)).build_with(build)
    except (NoFallbackError, PartialEmbedError):
        pass
    else:
        assert list(stored) == texts
    assert len({name for name, _ in stored.values()}) <= 1
    plain = {"a": scripted("a"), "b": scripted("b")}
    for text, (name, row) in stored.items():
        assert np.allclose(row, plain[name].embed([text])[0], atol=1e-6)


class Script:
    """Answers by letter: ok, k: well; d: down; p: a wrong key; t: half of the texts, then down."""

    def __init__(self, provider: Any, letters: list[str]) -> None:
        self.provider, self.letters = provider, list(letters)

    def __call__(self, texts: Sequence[str]) -> Exception | None:
        letter = self.letters.pop(0) if self.letters else "k"
        if letter == "t":
            return partial_of(self.provider, texts, len(texts) // 2, DOWN)
        return {"d": DOWN, "p": PermanentError("wrong key", 401)}.get(letter)


@pytest.fixture
def built(scripted: Make, tmp_path: Path) -> tuple[Path, Any]:
    a = scripted("a")
    Index.build(tmp_path / "i", DOCUMENTS, a).close()
    return tmp_path / "i", a


def test_o21_a_search_without_its_provider_is_bm25_alone_and_says_so(built: Any, scripted: Make) -> None:
    path, a = built
    b = scripted("b")
    index = Index.open(path, FallbackEmbedder([a, b]))
    well = index.hybrid_search("ferry")
    assert well.degraded == ""
    assert {hit.source for hit in well} == {"hybrid"}
    a.down(DOWN)
    result = index.hybrid_search("ferry number 3")
    assert {hit.source for hit in result} == {"bm25"}
    assert result[0].document.doc_id == "d3"
    assert "503" in result.degraded
    assert "b: other vectors" in result.degraded
    assert result.degraded in result.warnings
    assert b.asked == []


def test_o21_an_index_opens_and_answers_while_its_provider_is_down(built: Any, scripted: Make) -> None:
    path, a = built
    a.down(DOWN)
    index = Index.open(path, FallbackEmbedder([a, scripted("b")]))
    assert index.hybrid_search("ferry").degraded
    a.down(None)


def test_o21_an_index_of_other_vectors_is_refused_on_open(built: Any, scripted: Make) -> None:
    b = scripted("b")
    with pytest.raises(IdentityMismatchError, match="model-a"):
        Index.open(built[0], FallbackEmbedder([b]))
    assert b.asked == []


def test_o21_hybrid_retrieval_degrades_where_an_application_asks_for_it(
    scripted: Make, tmp_path: Path
) -> None:
    a, b = scripted("a"), scripted("b")
    store = FlatStore.create(tmp_path / "v", a.fingerprint)
    store.upsert([d.doc_id for d in DOCUMENTS], a.embed([d.indexed_text for d in DOCUMENTS]))
    vectors = VectorRetriever(FallbackEmbedder([a, b], identity=a.fingerprint), store)
    bm25 = BM25.build(DOCUMENTS)
    queries = [Query("q", "ferry number 3")]
    a.down(DOWN)
    assert "503" in HybridRetriever([vectors, bm25]).search(queries, 3).failed["q"]
    run = HybridRetriever([vectors, bm25], degrade=True).search(queries, 3)
    assert run.failed == {}
    assert run.rankings["q"].doc_ids == bm25.search(queries, 3).rankings["q"].doc_ids
    assert run.degraded["q"].startswith(f"without {vectors.name}: ")
    texts = {d.doc_id: d.indexed_text for d in DOCUMENTS}
    reranked = RerankedRetriever(
        HybridRetriever([vectors, bm25], degrade=True), get_reranker("noop"), texts.__getitem__
    )
    assert list(reranked.search(queries, 3).degraded) == ["q"]
    nobody = HybridRetriever([vectors], degrade=True).search(queries, 3)
    assert list(nobody.failed) == ["q"]
    assert nobody.degraded == {}


def test_the_next_reranker_answers_and_says_so(clock: Any) -> None:
    first, stood_in = Failing(), []
    chain = FallbackReranker(
        [first, "fake-overlap"], pauses=Pauses(5, 300, clock), on_stand_in=stood_in.append
    )
    scores = chain.rerank("ferry", ["the ferry", "the bus"])
    assert scores == [1.0, 0.0]
    assert "reranked by fake-overlap" in scores.note
    assert [reranker.name for reranker in stood_in] == ["fake-overlap"]
    chain.rerank("ferry", ["the ferry"])
    assert first.calls == 1
    first.outcome = [0.5]
    clock.now += 5
    plain = chain.rerank("ferry", ["the ferry"])
    assert plain == [0.5]
    assert not hasattr(plain, "note")


def test_scores_of_one_call_come_from_one_reranker() -> None:
    short = Failing([0.5])
    assert FallbackReranker([short, "fake-overlap"]).rerank("bus", ["a bus", "a", "b"]) == [1.0, 0.0, 0.0]
    assert FallbackReranker([short]).rerank("bus", []) == []


def test_without_a_reranker_the_fused_order_stands_with_a_warning(built: Any) -> None:
    path, a = built
    index = Index.open(path, a)
    plain = index.hybrid_search("ferry", rerank=False)
    result = index.hybrid_search("ferry", reranker=FallbackReranker([Failing()]))
    assert [hit.document.doc_id for hit in result] == [hit.document.doc_id for hit in plain]
    assert any("fused order stands" in warning and "503" in warning for warning in result.warnings)
    assert result.degraded == ""
    note = index.hybrid_search("ferry", reranker=FallbackReranker([Failing(), "fake-overlap"])).warnings[0]
    assert note.startswith("reranked by fake-overlap, because others did not answer: failing: a: HTTP 503")


def test_a_request_that_a_reranker_refuses_goes_no_further() -> None:
    for outcome in (PermanentError("too long", 400), InvalidArgumentError("no")):
        last = Failing([1.0])
        with pytest.raises(type(outcome)):
            FallbackReranker([Failing(outcome), last]).rerank("q", ["a"])
        assert last.calls == 0


def test_rerankers_that_cannot_run_here_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    chain = FallbackReranker(["minilm-l6@cpu", "noop"])
    assert chain.fingerprint == "fallback(minilm-l6@cpu; noop)"
    assert chain.model == "cross-encoder/ms-marco-MiniLM-L-6-v2"
    assert chain.is_available()
    assert chain.rerank("q", ["a"]) == [1.0]
    alone = FallbackReranker(["minilm-l6@cpu"])
    assert not alone.is_available()
    with pytest.raises(NoFallbackError):
        alone.rerank("q", ["a"])


def test_closing_closes_what_was_made(scripted: Make) -> None:
    a, reranker = scripted("a"), Failing()
    FallbackEmbedder([a, "fake"]).close()
    FallbackReranker([reranker, "noop"]).close()
    assert (a.closed, reranker.closed) == (1, 1)


def test_no_key_in_a_repr_or_a_message(scripted: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-planted-0123456789"
    monkeypatch.setenv("A_API_KEY", key)
    a = scripted("a")
    a.down(TransientError(f"a: said {key}", 503))
    chain = FallbackEmbedder([a], identity=a.fingerprint)
    with pytest.raises(NoFallbackError) as caught:
        chain.embed(["x"])
    assert "planted" not in str(caught.value) + repr(chain) + repr(caught.value.reasons)
