"""The one object that an application builds to embed."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core import Document, EmbeddingService, Index
from rag_core.errors import (
    BudgetExceededError,
    IdentityMismatchError,
    InvalidArgumentError,
    NoFallbackError,
    PartialEmbedError,
    SpecStringError,
    TransientError,
    UnknownNameError,
)
from rag_core.prices import CostEstimate
from rag_core.testing import EmbedProviderConformance

Make = Callable[..., Any]
DOWN = TransientError("a: HTTP 503; gave up after 6 tries", 503)
DOCUMENTS = [Document(f"d{i}", f"the ferry number {i} leaves the old port") for i in range(5)]


class TestConformance(EmbedProviderConformance):
    def make(self) -> Any:
        folder = tempfile.TemporaryDirectory(prefix="service-")
        service = EmbeddingService.builder().provider("fake-e5-small").cache(folder.name).build()
        service.folder = folder  # type: ignore[attr-defined]
        return service


class TestConformanceWhereTheFirstProviderIsDown(EmbedProviderConformance):
    def make(self) -> Any:
        down = "fake-cohere?fail_role=document"
        return EmbeddingService.builder().provider(down).fallback("fake-e5-small").max_usd(1).build()


def test_nothing_is_loaded_before_it_is_needed() -> None:
    service = EmbeddingService.builder().provider("fake-cohere?load_s=30").fallback("fake").build()
    assert (service.name, service.is_local, service.target) == ("fake-cohere", True, "cpu")
    assert not service.is_ready
    assert "fake-cohere" in repr(service)


def test_what_is_known_is_not_asked_again_by_any_view(scripted: Make, tmp_path: Path) -> None:
    a = scripted("a")
    with EmbeddingService.builder().provider(a).cache(tmp_path / "c").build() as service:
        first = service.embed(["x", "y", "x", ""])
        assert np.array_equal(service.for_identity(a.fingerprint).embed(["y", "x"]), first[[1, 0]])
        assert np.array_equal(service.embed_query("x"), service.embed_query("x"))
        assert service.embed_query("x").shape == (8,)
        assert [texts for texts in a.asked if texts != ["d first call"]] == [["d x", "d y"], ["q x"]]
        found = service.metrics.snapshot()["a:model-a"]
        assert (found["cache_hits"], found["cache_misses"]) == (5, 3)
        assert service.cache_stats.hits_memory == 4
    assert a.closed == 1
    again = EmbeddingService.builder().provider(a).cache(tmp_path / "c").build()
    assert np.array_equal(again.embed(["x", "y"]), first[:2])
    assert again.cache_stats.hits_disk == 2


def test_cached_texts_need_no_provider(scripted: Make) -> None:
    a = scripted("a")
    service = EmbeddingService.builder().provider(a).build()
    known = service.embed(["x"])
    a.down(DOWN)
    assert np.array_equal(service.embed(["x"]), known)
    with pytest.raises(NoFallbackError):
        service.embed(["y"])


def test_a_cache_can_be_bypassed(scripted: Make) -> None:
    a = scripted("a")
    service = EmbeddingService.builder().provider(a).cache(bypass=True).build()
    for _ in range(2):
        service.embed(["x"])
    assert a.asked.count(["d x"]) == 2


def test_what_a_failed_call_has_paid_for_is_kept(scripted: Make) -> None:
    a = scripted("a")
    service = EmbeddingService.builder().provider(a).build()
    service.warmup()

    def half(texts: Sequence[str]) -> Exception:
        vectors = np.zeros((len(texts), a.dim), np.float32)
        vectors[0, 0] = 1
        return PartialEmbedError("a", vectors, dict.fromkeys(range(1, len(texts)), "too long"))

    a.fail = half
    with pytest.raises(PartialEmbedError) as caught:
        service.embed(["x", "", "y", "y"])
    assert caught.value.failed == {2: "too long", 3: "too long"}
    a.fail = lambda texts: None
    a.asked.clear()
    service.embed(["x", "y"])
    assert a.asked == [["d y"]]


def test_stand_ins_and_errors_are_counted(scripted: Make) -> None:
    a, b = scripted("a"), scripted("a", "model-a")
    service = EmbeddingService.builder().provider(a).fallback(b).build()
    service.warmup()
    a.down(DOWN)
    service.embed(["x"])
    found = service.metrics.snapshot()["a:model-a"]
    assert (found["stand_ins"], found["errors"]) == (1, {"TransientError": 1})
    assert "rag_stand_ins_total" in service.metrics.prometheus()


def test_the_budget_is_that_of_all_calls_and_is_not_passed(scripted: Make) -> None:
    a = scripted("a")
    service = EmbeddingService.builder().provider(a).max_usd(20).price("a", 1_000_000).build()
    assert service.budget is not None
    stopped = 0
    for i in range(12):
        try:
            service.embed([f"text {i}"])
        except BudgetExceededError:
            stopped += 1
    assert stopped
    assert service.budget.spent_usd <= 20
    assert service.metrics.cost_usd == service.budget.spent_usd
    known = service.embed(["text 0"])  # costs nothing
    assert known.any()


def test_a_price_of_the_model_goes_before_that_of_the_provider(scripted: Make) -> None:
    builder = EmbeddingService.builder().price("a", 1.0).price("a:model-a", 3.0)
    service = builder.provider(scripted("a")).build()
    assert service.cost_estimate(["w " * 999_999, "w " * 999_999, ""]) == CostEstimate(1_000_000, 3.0)


def test_an_estimate_asks_nobody(scripted: Make) -> None:
    a = scripted("openai", "text-embedding-3-small")
    service = EmbeddingService.builder().provider(a).build()
    estimate = service.cost_estimate(["one two"] * 1000)
    assert estimate.tokens == service.count_tokens(["one two"])[0] == 3
    assert a.asked == []


def test_a_budget_without_a_price_is_refused_at_the_first_need(scripted: Make) -> None:
    with pytest.raises(InvalidArgumentError, match="no price of acme"):
        EmbeddingService.builder().provider(scripted("acme")).max_usd(1).build()


def test_o21_an_index_built_with_a_stand_in_is_wholly_of_it_and_stays_so(
    scripted: Make, tmp_path: Path
) -> None:
    a, b = scripted("a"), scripted("b")
    many = [Document(f"d{i}", f"text {i}") for i in range(100)]
    a.fail = lambda texts: DOWN if "d text 90" in texts else None
    service = EmbeddingService.builder().provider(a).fallback(b).cache(tmp_path / "c").build()
    service.build_with(lambda embedder: Index.build(tmp_path / "i", many, embedder)).close()
    assert json.loads((tmp_path / "i" / "index.json").read_text())["identity"]["provider"] == "b"
    a.fail = lambda texts: None
    index = Index.open(tmp_path / "i", service)
    result = index.hybrid_search("text 7")
    assert {hit.source for hit in result} == {"hybrid"}
    assert a.asked[-1] != ["q text 7"]
    b.down(DOWN)
    assert index.hybrid_search("text 7").degraded == ""  # that query is in the cache
    lost = index.hybrid_search("number 8")
    assert "503" in lost.degraded
    assert all("number" not in text for texts in a.asked for text in texts)


def test_o21_an_index_of_a_provider_outside_the_chain_is_refused(scripted: Make, tmp_path: Path) -> None:
    Index.build(tmp_path / "i", DOCUMENTS, scripted("c")).close()
    service = EmbeddingService.builder().provider(scripted("a")).build()
    with pytest.raises(IdentityMismatchError, match="'c'"):
        Index.open(tmp_path / "i", service)


def test_choose_gives_the_provider_that_answers(scripted: Make) -> None:
    a, b = scripted("a"), scripted("b")
    a.down(DOWN)
    assert EmbeddingService.builder().provider(a).fallback(b).build().choose().name == "b"


def test_warming_up_tells_and_is_ready(scripted: Make) -> None:
    told: list[str] = []
    service = EmbeddingService.builder().provider(scripted("a")).build()
    service.warmup(lambda stage, done, total: told.append(stage))
    assert told[-1] == "ready"
    assert service.is_ready
    assert service.is_available()


def test_many_threads_share_one_service(scripted: Make) -> None:
    a = scripted("a")
    service = EmbeddingService.builder().provider(a).build()
    expected = scripted("a").embed([f"t{i}" for i in range(20)])
    wrong: list[int] = []

    def work() -> None:
        same = [np.array_equal(service.embed([f"t{i}"])[0], expected[i]) for i in range(20)]
        wrong.extend(i for i in range(20) if not same[i])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(len(texts) for texts in a.asked if texts != ["d first call"]) == 20


def test_from_toml(tmp_path: Path) -> None:
    toml = tmp_path / "rag.toml"
    toml.write_text(
        '[embedding]\nprovider = "fake-cohere"\nfallback = ["fake-e5-small"]\n[cache]\ndir = "c"\n'
        "max_bytes = 1_000_000\n[limits]\nmax_usd = 2\nfirst_pause_s = 1\n"
    )
    with EmbeddingService.from_toml(toml) as service:
        assert service.embed(["x"]).shape == (1, 1024)
        assert service.budget is not None
        assert service.budget.max_usd == 2
    assert (tmp_path / "c").is_dir()


@pytest.mark.parametrize(
    "build, error",
    [
        (lambda b: b, InvalidArgumentError),
        (lambda b: b.provider("fakee"), UnknownNameError),
        (lambda b: b.provider("fake?"), SpecStringError),
        (lambda b: b.provider("fake").max_usd(-1), InvalidArgumentError),
        (lambda b: b.provider("fake").cache(max_bytes=-1), InvalidArgumentError),
        (lambda b: b.provider("fake").pauses(first_s=-1), InvalidArgumentError),
        (lambda b: b.provider("fake").price("fake", -1), InvalidArgumentError),
    ],
)
def test_a_bad_setting_is_refused_when_the_service_is_built(build: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        build(EmbeddingService.builder()).build()


def test_no_piece_of_a_key_is_shown(
    scripted: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-planted-0123456789"
    monkeypatch.setenv("A_API_KEY", key)
    a = scripted("a")
    service = EmbeddingService.builder().provider(a).fallback("fake").build()
    service.warmup()
    a.down(TransientError(f"a: HTTP 503: no credit for {key}", 503))
    with pytest.raises(NoFallbackError) as caught:
        service.embed(["x"])
    shown = "".join(
        (
            repr(service),
            str(service),
            str(caught.value),
            repr(caught.value),
            service.metrics.prometheus(),
            json.dumps(service.metrics.snapshot()),
            caplog.text,
        )
    )
    assert not [key[i : i + 8] for i in range(len(key) - 7) if key[i : i + 8] in shown]
