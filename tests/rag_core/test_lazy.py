from __future__ import annotations

import threading

import numpy as np
import pytest

from rag_core import factory, registry
from rag_core.errors import ProviderError, ProviderUnavailableError, UnknownNameError
from rag_core.lazy import LazyEmbedder, LazyReranker
from rag_core.protocols import EmbedProvider, Reranker
from rag_core.registry import Spec
from rag_core.testing import EmbedProviderConformance, RerankerConformance

LOADS: list[str] = []
FAILURES: list[Exception] = []


def load_counted(spec: Spec, **options: str) -> EmbedProvider:
    """The fake embedder; fails once for each exception in FAILURES."""
    LOADS.append(spec.name)
    if FAILURES:
        raise FAILURES.pop()
    return factory.get_embedder("fake")


def load_counted_reranker(spec: Spec, **options: str) -> Reranker:
    LOADS.append(spec.name)
    if FAILURES:
        raise FAILURES.pop()
    return factory.get_reranker("fake-overlap")


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    LOADS.clear()
    FAILURES.clear()
    registry.load_plugins()
    for table, loader in (
        (registry.EMBEDDERS, "load_counted"),
        (registry.RERANKERS, "load_counted_reranker"),
    ):
        monkeypatch.setattr(table, "_specs", dict(table._specs))
        table.add(Spec("counted", "hash-64", "cpu", 64, f"{__name__}:{loader}"))
    monkeypatch.setattr(
        registry, "load_attribute", lambda path: globals().get(path.rpartition(":")[2]) or real(path)
    )


real = registry.load_attribute


class TestLazyEmbedderConforms(EmbedProviderConformance):
    def make(self) -> EmbedProvider:
        return LazyEmbedder("fake")


class TestLazyRerankerConforms(RerankerConformance):
    def make(self) -> Reranker:
        return LazyReranker("fake-overlap")


def test_nothing_is_loaded_before_the_first_need() -> None:
    lazy = LazyEmbedder("counted")
    assert (lazy.name, lazy.model, lazy.target, lazy.dim) == ("counted", "hash-64", "cpu", 64)
    assert lazy.is_available()
    assert not lazy.is_ready
    assert LOADS == []
    assert lazy.embed(["a"]).shape == (1, 64)
    assert lazy.is_ready
    assert LOADS == ["counted"]


def test_a_blank_text_does_not_make_it_ready() -> None:
    lazy = LazyEmbedder("counted")
    lazy.embed([" "])
    assert not lazy.is_ready


def test_warmup_loads_and_tells_its_progress() -> None:
    seen: list[tuple[str, int, int]] = []
    lazy = LazyEmbedder("counted")
    lazy.warmup(lambda *said: seen.append(said))
    assert lazy.is_ready
    assert [stage for stage, _, _ in seen] == ["load", "first call", "ready"]
    lazy.embed(["a"])
    assert LOADS == ["counted"]


def test_a_failed_load_can_be_tried_again() -> None:
    FAILURES.append(ProviderError("the disk is gone"))
    lazy = LazyEmbedder("counted")
    with pytest.raises(ProviderError, match="the disk is gone"):
        lazy.warmup()
    assert not lazy.is_ready
    lazy.warmup()
    assert lazy.is_ready
    assert LOADS == ["counted", "counted"]


def test_many_threads_load_once() -> None:
    lazy = LazyEmbedder("counted")
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(lazy.embed(["a"]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert LOADS == ["counted"]
    assert len(results) == 8


def test_a_wrong_name_does_not_wait_for_the_first_request() -> None:
    with pytest.raises(UnknownNameError, match="unknown embedding provider 'minilmm'"):
        LazyEmbedder("minilmm")
    with pytest.raises(ProviderUnavailableError):
        LazyReranker("cross-encoder")


def test_a_reranker_warms_up_and_can_be_tried_again() -> None:
    FAILURES.append(ProviderError("no memory"))
    lazy = LazyReranker("counted")
    assert lazy.is_available()
    with pytest.raises(ProviderError):
        lazy.warmup()
    assert not lazy.is_ready
    lazy.warmup()
    assert lazy.is_ready
    assert lazy.rerank("a b", ["a b", "c"])[0] > lazy.rerank("a b", ["c"])[0]
    assert LOADS == ["counted", "counted"]


def test_eager_providers_say_when_they_have_answered() -> None:
    seen: list[str] = []
    embedder = factory.get_embedder("fake")
    assert not embedder.is_ready  # type: ignore[attr-defined]
    embedder.warmup(lambda stage, done, total: seen.append(stage))  # type: ignore[attr-defined]
    assert embedder.is_ready  # type: ignore[attr-defined]
    assert seen == ["first call", "ready"]
