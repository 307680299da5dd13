"""The three reranking services against a server that speaks their formats, and fails on demand.

Formats as in :mod:`rag_core.testing.server`, read in November 2026.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from providers import RERANKERS
from providers._api_rerank import BLANK_SCORE
from providers._pacing import Timers
from rag_core.errors import (
    InvalidArgumentError,
    PermanentError,
    ProviderError,
    ProviderUnavailableError,
    TransientError,
)
from rag_core.registry import Spec, load_attribute
from rag_core.reranking import reorder
from rag_core.testing.server import Answer, Fault, FaultServer, score_of
from rag_core.types import Ranking

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SPECS = {spec.name: spec for spec in RERANKERS if spec.target == "api"}
NAMES = sorted(SPECS)
SDKS = {"cohere": "cohere", "voyage": "voyageai"}
ENGINES = [
    pytest.param(
        name,
        engine,
        marks=pytest.mark.skipif(
            engine == "sdk" and importlib.util.find_spec(SDKS[name]) is None,
            reason=f"package {SDKS.get(name)!r} is not installed",
        ),
    )
    for name in NAMES
    for engine in ("http", "sdk")
    if engine == "http" or name in SDKS
]
QUERY = "when does the library open"


@pytest.fixture
def reranker() -> Iterator[Callable[..., Any]]:
    """``reranker(server, name, model="", **options)``: asks ``server`` and never really waits."""
    made = []

    def make(server: FaultServer, name: str, model: str = "", **options: str) -> Any:
        spec = SPECS[name]
        spec = Spec(name, model, "api", 0, spec.load) if model else spec
        found = load_attribute(spec.load)(spec, **{"base_url": server.url(name), **options})
        found.transport.timers = Timers(sleep=lambda seconds: None)
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_each_score_belongs_to_its_candidate(
    server: FaultServer, reranker: Any, name: str, engine: str
) -> None:
    options = {"engine": engine} if engine == "sdk" else {}
    texts = [f"candidate {i}" for i in range(7)]
    one = reranker(server, name, **options)
    assert one.rerank(QUERY, texts) == [score_of(QUERY, text) for text in texts]
    [request] = server.requests
    assert request.texts == texts
    assert request.body["query"] == QUERY
    assert request.body["model"] == SPECS[name].model
    assert one.stats.pairs == 7
    assert one.fingerprint == reranker(server, name, **options).fingerprint


def test_what_each_service_is_sent_and_counts(server: FaultServer, reranker: Any) -> None:
    asked = {}
    for name in NAMES:
        one = reranker(server, name)
        one.rerank(QUERY, ["a b", "c"])
        asked[name] = {k: v for k, v in server.requests[-1].body.items() if k not in ("query", "documents")}
        counted = (one.stats.searches, one.transport.stats.tokens)
        # the server counts words: the query's five with each candidate
        assert counted == ((1, one.count_tokens(QUERY, ["a b", "c"])) if name == "cohere" else (0, 13))
    assert asked == {
        "cohere": {"model": "rerank-v3.5", "top_n": 2},
        "jina": {"model": "jina-reranker-v2-base-multilingual", "top_n": 2, "return_documents": False},
        "voyage": {"model": "rerank-2.5", "top_k": 2, "truncation": True},
    }
    paths = [request.path for request in server.requests]
    assert paths == ["/cohere/v2/rerank", "/jina/v1/rerank", "/voyage/v1/rerank"]


def test_the_designs_name_of_coheres_model_is_sent_as_the_service_knows_it(
    server: FaultServer, reranker: Any
) -> None:
    one = reranker(server, "cohere", "rerank-multilingual-v3.5")
    one.rerank(QUERY, ["a"])
    assert server.requests[0].body["model"] == one.model == "rerank-v3.5"
    assert one.fingerprint == reranker(server, "cohere").fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_in_another_order_is_matched_by_index(
    server: FaultServer, reranker: Any, name: str
) -> None:
    """O29: three candidates answered as [(2, .9), (0, .5), (1, .1)]."""
    listed = "data" if name == "voyage" else "results"
    rows = [{"index": i, "relevance_score": s} for i, s in ((2, 0.9), (0, 0.5), (1, 0.1))]
    path = {"cohere": "/cohere/v2/rerank"}.get(name, f"/{name}/v1/rerank")
    server.routes[path] = lambda request: Answer([], lambda _: {listed: rows})
    scores = reranker(server, name).rerank(QUERY, ["first", "second", "third"])
    assert scores == [0.5, 0.1, 0.9]
    fused = Ranking.from_scores([("0", 3.0), ("1", 2.0), ("2", 1.0)])
    again = reorder(fused, scores)
    assert list(zip(again.ranking.doc_ids, again.ranking.scores)) == [("2", 0.9), ("0", 0.5), ("1", 0.1)]


@pytest.mark.parametrize("name", NAMES)
def test_none_is_dropped_and_duplicates_are_sent_once(server: FaultServer, reranker: Any, name: str) -> None:
    one = reranker(server, name)
    texts = ["same", "other", "same", *(f"candidate {i}" for i in range(40))]
    assert one.rerank(QUERY, texts) == [score_of(QUERY, text) for text in texts]
    assert len(server.requests[0].texts) == len(texts) - 1


@pytest.mark.parametrize("name", NAMES)
def test_blanks_are_not_sent_and_come_last(server: FaultServer, reranker: Any, name: str) -> None:
    one = reranker(server, name)
    assert one.rerank(QUERY, ["", "text", "  \n"]) == [BLANK_SCORE, score_of(QUERY, "text"), BLANK_SCORE]
    assert server.requests[0].texts == ["text"]
    assert one.rerank(" ", ["text"]) == [BLANK_SCORE]
    assert one.rerank(QUERY, ["", " "]) == [BLANK_SCORE] * 2
    assert one.rerank(QUERY, []) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["nan", "null"])
def test_nan_is_kept_and_reported(server: FaultServer, reranker: Any, name: str, kind: str) -> None:
    server.choose = lambda request: Fault(kind=kind)
    texts = [f"candidate {i}" for i in range(5)]
    scores = reranker(server, name).rerank(QUERY, texts)
    [nan] = [i for i, score in enumerate(scores) if math.isnan(score)]
    assert all(scores[i] == score_of(QUERY, texts[i]) for i in range(5) if i != nan)
    again = reorder(Ranking.from_scores((str(i), float(-i)) for i in range(5)), scores)
    assert again.ranking.doc_ids[-1] == str(nan)
    assert "NaN for 1 of 5" in again.warnings[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["short", "duplicate"])
def test_what_is_left_out_is_asked_again(server: FaultServer, reranker: Any, name: str, kind: str) -> None:
    server.plan(Fault(kind=kind))
    texts = [f"candidate {i}" for i in range(6)]
    assert reranker(server, name).rerank(QUERY, texts) == [score_of(QUERY, text) for text in texts]
    assert len(server.requests) == 2
    assert len(server.requests[1].texts) < 6
    server.choose = lambda request: Fault(kind=kind)
    with pytest.raises(PermanentError, match=rf"{name}: \d of 6 candidates have no score: .*, asked 3 times"):
        reranker(server, name).rerank(QUERY, texts)


def test_answers_that_make_no_sense(server: FaultServer, reranker: Any) -> None:
    for rows, said in (
        ([{"index": 5, "relevance_score": 0.1}], "has a score of index 5 for 1 candidates"),
        ([{"index": "0", "relevance_score": 0.1}], "index '0'"),
        (["x"], "index None"),
        ([{"index": 0, "relevance_score": "high"}], "has 'high' for a score"),
        ([{"index": 0}], "has 'nothing' for a score"),
        ({"0": 0.1}, "holds no list of scores"),
        ([], "leaves some out"),
    ):
        server.routes["/jina/v1/rerank"] = lambda request, rows=rows: Answer([], lambda _: {"results": rows})
        with pytest.raises(PermanentError, match=said):
            reranker(server, "jina").rerank(QUERY, ["a"])


@pytest.mark.parametrize("name", NAMES)
def test_many_candidates_go_in_several_requests(server: FaultServer, reranker: Any, name: str) -> None:
    texts = [f"candidate {i}" for i in range(2_300)]
    assert reranker(server, name).rerank(QUERY, texts) == [score_of(QUERY, text) for text in texts]
    assert sorted(len(request.texts) for request in server.requests) == [300, 1000, 1000]


def test_tokens_of_a_request_count_the_query_with_each_candidate(server: FaultServer, reranker: Any) -> None:
    one = reranker(server, "voyage", tpm="2000")
    assert one.limits.tokens == 200
    one.rerank("word " * 30, [f"candidate {i}" for i in range(20)])
    assert len(server.requests) > 5


@pytest.mark.parametrize("name", NAMES)
def test_a_request_that_is_too_large_is_halved(server: FaultServer, reranker: Any, name: str) -> None:
    server.max_texts = 20
    one = reranker(server, name)
    texts = [f"candidate {i}" for i in range(50)]
    assert one.rerank(QUERY, texts) == [score_of(QUERY, text) for text in texts]
    sizes = [len(request.texts) for request in server.requests]
    assert sizes[:2] == [50, 25]
    server.requests.clear()
    one.rerank(QUERY, texts)
    assert max(len(request.texts) for request in server.requests) <= 20, "a refused size was sent again"
    server.max_text_tokens = 3
    with pytest.raises(PermanentError, match=r"HTTP 400.*candidate 'one two three four'…, alone"):
        one.rerank(QUERY, ["short", "one two three four", "c"])


def test_a_candidate_that_breaks_the_model_has_no_number(server: FaultServer, reranker: Any) -> None:
    broken = Fault(500, "json: unsupported value: NaN")
    server.choose = lambda request: broken if "bad" in request.texts else None
    one = reranker(server, "jina")
    scores = one.rerank(QUERY, ["a", "b", "bad", "c"])
    assert math.isnan(scores[2])
    assert [scores[i] for i in (0, 1, 3)] == [score_of(QUERY, text) for text in "abc"]
    assert one.max_texts == 1000


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_faults_of_the_moment_are_retried_and_refusals_are_not(
    server: FaultServer, reranker: Any, name: str, engine: str
) -> None:
    options = {"engine": engine} if engine == "sdk" else {}
    one = reranker(server, name, timeout_s="2", **options)
    texts = ["a", "b"]
    server.plan(Fault(429, "slow", {"Retry-After": "3"}), Fault(503), Fault(kind="reset"), Fault(kind="cut"))
    assert one.rerank(QUERY, texts) == [score_of(QUERY, text) for text in texts]
    stats = one.transport.stats
    assert (stats.requests, stats.retries, stats.n_429) == (5, 4, 1)
    assert stats.waited_s >= 3
    for status in (400, 401, 403, 404, 422):
        server.requests.clear()
        server.plan(Fault(status, "no"))
        with pytest.raises(PermanentError, match=f"HTTP {status}") as error:
            one.rerank(QUERY, texts)
        assert error.value.status == status
        assert len(server.requests) == 1
    server.plan(Fault(429, "slow", {"Retry-After": "99999"}))
    with pytest.raises(TransientError, match="99999 s") as late:
        one.rerank(QUERY, texts)
    assert late.value.retry_after_s == 99999
    server.choose = lambda request: Fault(500)
    with pytest.raises(TransientError, match="gave up after 2 tries"):
        reranker(server, name, max_tries="2", **options).rerank(QUERY, texts)


def test_an_error_ends_a_call_of_several_requests(server: FaultServer, reranker: Any) -> None:
    server.choose = lambda request: Fault(401, "no")
    with pytest.raises(PermanentError, match="401"):
        reranker(server, "jina", batch="1", concurrency="1").rerank(QUERY, [str(i) for i in range(50)])
    assert len(server.requests) < 5


def test_pairs_that_are_cut_are_counted(server: FaultServer, reranker: Any) -> None:
    long = "word " * 40_000
    for name, cut in (("cohere", 1), ("voyage", 1), ("jina", 0)):
        one = reranker(server, name)
        one.rerank(QUERY, [long, "short"])
        assert one.stats.truncated == cut, name
    refusing = reranker(server, "voyage", long="error")
    refusing.rerank(QUERY, [long, "short"])
    assert server.requests[-1].body["truncation"] is False
    assert refusing.stats.truncated == 0
    assert "long=error" in refusing.fingerprint


def test_a_key_is_needed_away_from_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        with pytest.raises(ProviderUnavailableError, match=f"{SPECS[name].env[0]} is not set"):
            load_attribute(SPECS[name].load)(SPECS[name])


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_are_refused(server: FaultServer, reranker: Any, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown option 'dim'; accepted: base_url, batch"):
        reranker(server, name, dim="3")
    with pytest.raises(InvalidArgumentError, match="batch is '2000'"):
        reranker(server, name, batch="2000")
    with pytest.raises(InvalidArgumentError, match="model is ' '"):
        reranker(server, name, " ")


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_a_planted_key_appears_nowhere(
    name: str,
    engine: str,
    reranker: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    key = "Zq7vKp2mXw9rTb4nYc6hLd8s"
    monkeypatch.setenv(SPECS[name].env[0], key)
    caplog.set_level(logging.DEBUG)
    options = {"engine": engine, "max_tries": "1", "timeout_s": "1"}
    if name not in SDKS:
        del options["engine"]
    with FaultServer() as server:
        one = reranker(server, name, **options)
        seen = [repr(one), repr(vars(one)), repr(one.runtime), one.fingerprint, repr(one.transport)]
        one.rerank(QUERY, ["a"])
        assert server.requests[0].headers["authorization"] == f"Bearer {key}", "the key was not sent"
        for status in (400, 401, 429, 500):
            server.plan(Fault(status, f"key {key} or {key[:9]}…{key[-9:]}"))
            with pytest.raises(ProviderError) as error:
                one.rerank(QUERY, ["a"])
            seen += [*traceback.format_exception(error.value), repr(error.value)]
    out, err = capfd.readouterr()
    seen += [out, err, *(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)]
    everything = "\n".join(seen)
    assert not [i for i in range(len(key) - 7) if key[i : i + 8] in everything]
    assert f"{name}-***" in everything, "nothing was masked, so nothing was tested"


@pytest.mark.skipif(importlib.util.find_spec("cohere") is None, reason="package 'cohere' is not installed")
def test_coheres_client_parses_the_same_answers(server: FaultServer) -> None:
    import cohere
    import httpx

    with httpx.Client() as connections:
        client = cohere.ClientV2(
            "none", base_url=server.url("cohere"), max_retries=0, httpx_client=connections
        )
        answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=["a", "b", "c"], top_n=2)
    best = sorted("abc", key=lambda text: -score_of(QUERY, text))[:2]
    assert ["abc"[row.index] for row in answer.results] == best
    assert [row.relevance_score for row in answer.results] == [score_of(QUERY, text) for text in best]
    assert answer.meta.billed_units.search_units == 1


@pytest.mark.skipif(
    importlib.util.find_spec("voyageai") is None, reason="package 'voyageai' is not installed"
)
def test_voyages_client_parses_the_same_answers(server: FaultServer) -> None:
    import voyageai

    client = voyageai.Client("none", max_retries=1, base_url=server.url("voyage"))
    answer = client.rerank(QUERY, ["a", "b", "c"], "rerank-2.5", top_k=2)
    best = sorted("abc", key=lambda text: -score_of(QUERY, text))[:2]
    assert [row.document for row in answer.results] == best
    assert [row.relevance_score for row in answer.results] == [score_of(QUERY, text) for text in best]
    assert answer.total_tokens == 18
