"""CachedEmbedder: what is kept under which key, what reaches the provider, and what a failure leaves."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core import CachedEmbedder, LazyEmbedder, get_embedder
from rag_core.embedding import BaseEmbedder
from rag_core.errors import InvalidArgumentError, PartialEmbedError, ProviderError, TransientError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import EmbedProvider, Role, Target, Vectors
from rag_core.testing import EmbedProviderConformance

PLAIN = Fingerprint("counting", "model-a", "1", 8, "fp32", "hash")
PREFIXED = replace(PLAIN, query_template="query: {text}", document_template="passage: {text}")
PARAMETER = replace(PLAIN, query_template="input_type=query", document_template="input_type=document")


class Counting(BaseEmbedder):
    """Hash vectors that depend on everything in the fingerprint; remembers what it was sent.

    ``refuse``: texts with this in them have no vector. ``fail``: raised by the next calls, one each.
    ``gate``: waited for in each call, ``entered`` is set before.
    """

    def __init__(self, fingerprint: Fingerprint = PLAIN, refuse: str = "") -> None:
        super().__init__(fingerprint)
        self.sent: list[str] = []
        self.calls = 0
        self.refuse = refuse
        self.fail: list[Exception] = []
        self.entered, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        vectors = super().embed(texts, role=role)
        failed = {
            i: f"holds {self.refuse}" for i, text in enumerate(texts) if self.refuse and self.refuse in text
        }
        if failed:
            vectors[list(failed)] = 0
            raise PartialEmbedError(self.name, vectors, failed, True) from TransientError("busy", 503)
        return vectors

    def _encode(self, texts: list[str], role: Role) -> Any:
        self.entered.set()
        assert self.gate.wait(10)
        self.calls += 1
        if self.fail:
            raise self.fail.pop(0)
        self.sent += texts
        return np.array([hashed(self.fingerprint, role, text) for text in texts], np.float32)


def hashed(fingerprint: Fingerprint, role: Role, text: str) -> Vectors:
    asymmetric = fingerprint.query_template != fingerprint.document_template
    seed = f"{fingerprint.digest} {role if asymmetric else ''} {text}".encode("utf-8", "surrogatepass")
    stream = hashlib.shake_256(seed).digest(fingerprint.dim)
    return np.frombuffer(stream, np.uint8).astype(np.float32) * 2 - 255


class Foreign:
    """A provider of somebody else: no base class, no ``prepare``, no ``warmup``."""

    name, model, target, is_local, dim, max_tokens = "counting", "model-a", "api", False, 8, 0

    def __init__(self, answer: Callable[[int], Any] | None = None) -> None:
        self.fingerprint = PREFIXED
        self.sent: list[str] = []
        self.answer = answer

    def is_available(self) -> bool:
        return False

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [1] * len(texts)

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Any:
        self.sent += texts
        if self.answer is not None:
            return self.answer(len(texts))
        return Counting(PREFIXED).embed(texts, role=role)


def cached(provider: EmbedProvider | None = None, folder: Path | None = None, **more: Any) -> CachedEmbedder:
    return CachedEmbedder(provider or Counting(), folder, **more)


def same(left: Vectors, right: Vectors) -> bool:
    return left.dtype == right.dtype == np.float32 and left.tobytes() == right.tobytes()


class TestCachedFakeConforms(EmbedProviderConformance):
    def make(self) -> EmbedProvider:
        return CachedEmbedder(get_embedder("fake"), tempfile.mkdtemp())


class TestCachedFakeE5Conforms(EmbedProviderConformance):
    def make(self) -> EmbedProvider:
        return CachedEmbedder(get_embedder("fake-e5-small"), tempfile.mkdtemp())


class TestCachedInMemoryConforms(EmbedProviderConformance):
    def make(self) -> EmbedProvider:
        return CachedEmbedder(get_embedder("fake"))


class TestCachedLazyConforms(EmbedProviderConformance):
    def make(self) -> EmbedProvider:
        return CachedEmbedder(LazyEmbedder("fake-e5-small"), tempfile.mkdtemp())


class TestCacheOfACacheConforms(EmbedProviderConformance):
    def make(self) -> EmbedProvider:
        return CachedEmbedder(CachedEmbedder(get_embedder("fake")))


# what is served, and from where


def test_the_second_call_is_served_from_memory_then_from_disk_bit_for_bit(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(50)]
    expected = Counting().embed(texts)
    first = cached(folder=tmp_path)
    for _ in range(2):
        vectors = first.embed(texts)
        assert same(vectors, expected)
        assert vectors.flags.c_contiguous
    assert (first.stats.misses, first.stats.hits_memory, first.stats.writes) == (50, 50, 50)
    assert (first.stats.calls, first.stats.calls_saved) == (2, 1)
    assert first.provider.calls == 1  # type: ignore[attr-defined]
    second = cached(folder=tmp_path)
    for _ in range(2):
        assert same(second.embed(texts), expected)
    assert (second.stats.misses, second.stats.hits_disk, second.stats.hits_memory) == (0, 50, 50)
    assert second.stats.hit_rate == 1.0
    assert second.stats.disk_bytes == 50 * (48 + 4 * 8)
    assert second.provider.calls == 0  # type: ignore[attr-defined]


def test_blank_texts_reach_neither_provider_nor_cache() -> None:
    embedder = cached()
    vectors = embedder.embed(["", "a", " \n", "b", "\t"])
    assert same(vectors, Counting().embed(["", "a", " \n", "b", "\t"]))
    assert embedder.provider.sent == ["a", "b"]  # type: ignore[attr-defined]
    assert (embedder.stats.texts, embedder.stats.blank, embedder.stats.misses) == (5, 3, 2)
    assert same(embedder.embed([" "]), np.zeros((1, 8), np.float32))
    assert embedder.embed([]).shape == (0, 8)
    assert embedder.provider.calls == 1  # type: ignore[attr-defined]
    assert embedder.stats.calls == 1


def test_duplicates_of_a_call_are_embedded_once_and_order_is_kept() -> None:
    embedder = cached()
    texts = ["b", "a", "b", "", "c", "a", "b"]
    assert same(embedder.embed(texts), Counting().embed(texts))
    assert embedder.provider.sent == ["b", "a", "c"]  # type: ignore[attr-defined]
    assert (embedder.stats.duplicates, embedder.stats.misses, embedder.stats.texts_saved) == (3, 3, 3)
    assert embedder.stats.hit_rate == 0.5


def test_known_and_new_texts_in_one_call(tmp_path: Path) -> None:
    cached(folder=tmp_path).embed(["disk"])
    embedder = cached(folder=tmp_path)
    embedder.embed(["memory"])
    texts = ["new 1", "memory", "disk", "new 2", "memory"]
    assert same(embedder.embed(texts), Counting().embed(texts))
    assert embedder.provider.sent == ["memory", "new 1", "new 2"]  # type: ignore[attr-defined]
    stats = embedder.stats
    assert (stats.hits_memory, stats.hits_disk, stats.duplicates, stats.misses) == (1, 1, 1, 3)


def test_a_caller_may_write_into_what_it_is_given(tmp_path: Path) -> None:
    embedder = cached(folder=tmp_path)
    for _ in range(3):
        embedder.embed(["a", "b"])[:] = 7
    assert same(embedder.embed(["a", "b"]), Counting().embed(["a", "b"]))


def test_wrong_arguments_are_refused_before_the_provider_is_asked() -> None:
    provider = Foreign()
    embedder = cached(provider)  # type: ignore[arg-type]
    role: Any = "passage"
    for call in (lambda: embedder.embed(["a"], role=role), lambda: embedder.embed("a")):
        with pytest.raises(InvalidArgumentError, match=r"counting: .*accepted"):
            call()
    assert provider.sent == []


@pytest.mark.parametrize("option", ["memory_bytes", "disk_bytes", "ttl_s"])
def test_negative_bounds_are_refused(option: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{option} -1; accepted: 0 or more"):
        cached(**{option: -1})


def test_what_the_provider_says_is_passed_on() -> None:
    provider = Counting(PREFIXED)
    embedder = cached(provider)
    for name in ("name", "model", "target", "is_local", "dim", "max_tokens", "fingerprint"):
        assert getattr(embedder, name) == getattr(provider, name)
    assert embedder.is_available() is True
    assert embedder.count_tokens(["a b"]) == [2]
    assert embedder.prepare("a", "query") == "query: a"
    foreign = cached(Foreign())  # type: ignore[arg-type]
    assert foreign.is_available() is False
    assert foreign.is_ready is True
    assert foreign.prepare("a \ud800", "document") == "passage: a \ufffd"


def test_warmup_goes_past_the_cache() -> None:
    told: list[str] = []
    embedder = cached()
    assert embedder.is_ready is False
    embedder.warmup(lambda stage, done, total: told.append(stage))
    assert embedder.is_ready is True
    assert told[-1] == "ready"
    assert embedder.stats.texts == 0
    foreign = Foreign()
    cached(foreign).warmup()  # type: ignore[arg-type]
    assert foreign.sent == ["first call"]


# keys: field reports


def settings_of_o18() -> list[Fingerprint]:
    return [
        PLAIN,
        replace(PLAIN, model="model-b"),
        replace(PLAIN, provider="other"),
        replace(PLAIN, revision="2"),
        replace(PLAIN, dim=6),
        replace(PLAIN, dim=4),
        replace(PLAIN, dtype="int8"),
        replace(PLAIN, pooling="cls"),
        replace(PLAIN, normalised=False),
        replace(PLAIN, max_tokens=256),
        PREFIXED,
        replace(PREFIXED, query_template="q: {text}", document_template="p: {text}"),
        PARAMETER,
        replace(PLAIN, batching="one text a call"),
    ]


def test_o18_each_combination_of_settings_has_entries_of_its_own(tmp_path: Path) -> None:
    for expected_hits in (0, 2):
        for fingerprint in settings_of_o18():
            with cached(Counting(fingerprint), tmp_path) as embedder:
                for role in ("query", "document"):
                    uncached = Counting(fingerprint).embed(["hello"], role=role)
                    assert same(embedder.embed(["hello"], role=role), uncached)
                assert (embedder.stats.hits_disk, embedder.stats.misses) == (expected_hits, 2 - expected_hits)


def test_o18_a_provider_that_changes_its_model_changes_its_entries(tmp_path: Path) -> None:
    provider = Counting()
    embedder = cached(provider, tmp_path)
    embedder.embed(["hello"])
    provider._fingerprint = other = replace(PLAIN, revision="2")
    assert same(embedder.embed(["hello"]), Counting(other).embed(["hello"]))
    assert embedder.stats.misses == 2
    assert embedder.stats.calls == 2
    provider._fingerprint = PLAIN
    assert same(embedder.embed(["hello"]), Counting().embed(["hello"]))
    assert embedder.stats.hits_disk == 1


def test_o18_files_of_another_model_answer_nothing(tmp_path: Path) -> None:
    """Even where somebody has renamed their folder: the model is part of each key."""
    with cached(folder=tmp_path) as embedder:
        embedder.embed(["hello"])
    other = replace(PLAIN, model="model-b")
    (tmp_path / "vectors-1" / PLAIN.digest).rename(tmp_path / "vectors-1" / other.digest)
    embedder = cached(Counting(other), tmp_path)
    assert same(embedder.embed(["hello"]), Counting(other).embed(["hello"]))
    assert embedder.stats.hits_disk == 0


@pytest.mark.parametrize("fingerprint", [PREFIXED, PARAMETER], ids=["prefix", "parameter"])
@pytest.mark.parametrize("first, second", [("query", "document"), ("document", "query")])
@pytest.mark.parametrize("size", [1, 5])
def test_o19_a_text_as_query_and_as_document_is_two_entries(
    tmp_path: Path, fingerprint: Fingerprint, first: Role, second: Role, size: int
) -> None:
    texts = ["How does it work?", *(f"more {number}" for number in range(size - 1))]
    embedder = cached(Counting(fingerprint), tmp_path)
    for _ in range(2):
        for role in (first, second):
            assert same(embedder.embed(texts, role=role), Counting(fingerprint).embed(texts, role=role))
    assert embedder.stats.misses == embedder.stats.hits_memory == 2 * size
    assert embedder.stats.disk_bytes == 2 * size * (48 + 4 * 8)


RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))}


def test_o20_any_model_name_and_text_gives_safe_files_within_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    models = [
        "nomic-embed-text:v1.5",
        "BAAI/bge-m3",
        "BAAI_bge-m3",
        "../x",
        "CON",
        "a" * 300,
        "nul.",
        "モデル",
    ]
    texts = ["x" * 10_000, "日本語の文", "be\0fore", "a/b\\c", "../../etc", "CON", "lone \ud800", "dot."]
    for model in models:
        fingerprint = replace(PLAIN, model=model)
        with cached(Counting(fingerprint), folder) as embedder:
            assert same(embedder.embed(texts), Counting(fingerprint).embed(texts))
        with cached(Counting(fingerprint), folder) as embedder:
            assert same(embedder.embed(texts), Counting(fingerprint).embed(texts))
            assert embedder.stats.hits_disk == len(texts)
    assert list(tmp_path.iterdir()) == [folder]
    paths = list(folder.rglob("*"))
    spaces = {path.parent for path in paths if path.suffix == ".keys"}
    assert len(spaces) == len(models)
    for path in paths:
        assert re.fullmatch(r"[0-9a-z][0-9a-z.-]*[0-9a-z]", path.name), path.name
        assert path.name.partition(".")[0] not in RESERVED
        assert len(str(path.relative_to(folder))) < 100


def test_o21_another_model_is_never_answered_from_the_entries_of_the_one_that_fails(tmp_path: Path) -> None:
    """Same width, same folder: A goes down after half of a build, B stands in, A's entries stay A's."""
    texts = [f"document {number}" for number in range(20)]
    first = Counting(replace(PLAIN, model="a"))
    a = cached(first, tmp_path)
    a.embed(texts[:10])
    first.fail = [TransientError("down", 503)] * 5
    with pytest.raises(TransientError):
        a.embed(texts)
    other = replace(PLAIN, model="b")
    b = cached(Counting(other), tmp_path)
    assert same(b.embed(texts), Counting(other).embed(texts))
    assert b.stats.hit_rate == 0
    # what A knows it still answers while it is down, and never with a vector of B
    assert same(a.embed(texts[:10]), Counting(first.fingerprint).embed(texts[:10]))
    with pytest.raises(TransientError):
        a.embed(["document 15"], role="query")
    first.fail.clear()
    assert same(a.embed(texts), Counting(first.fingerprint).embed(texts))
    assert first.sent == texts


def test_o25_the_key_is_the_text_that_is_sent() -> None:
    """Composed and decomposed accents are two texts, and the provider gets each as it was given."""
    composed, decomposed = "café Işık", "cafe\u0301 Is\u0327\u0131k"
    embedder = cached()
    for texts in ([composed], [decomposed], [composed, decomposed, "ＡＢＣ", "abc", "İstanbul", "istanbul"]):
        assert same(embedder.embed(texts), Counting().embed(texts))
    assert embedder.provider.sent == [  # type: ignore[attr-defined]
        composed, decomposed, "ＡＢＣ", "abc", "İstanbul", "istanbul",
    ]  # fmt: skip


def test_o25_texts_that_are_sent_alike_share_an_entry() -> None:
    class Composing(Counting):
        def prepare(self, text: str, role: Role) -> str:
            return super().prepare(text.replace("e\u0301", "é"), role)

    embedder = cached(Composing())
    vectors = embedder.embed(["café", "cafe\u0301", "lone \ud800", "lone \ufffd"])
    assert embedder.provider.sent == ["café", "lone \ufffd"]  # type: ignore[attr-defined]
    assert same(vectors[0], vectors[1])
    assert same(vectors[2], vectors[3])


def test_a_prefix_is_not_confused_with_a_text() -> None:
    embedder = cached(Counting(PREFIXED))
    for role, text in product(("query", "document"), ("a", "query: a", "passage: a", "passage: query: a")):
        assert same(embedder.embed([text], role=role), Counting(PREFIXED).embed([text], role=role))
    assert embedder.stats.misses == 8


def test_the_template_makes_the_key_where_a_provider_has_no_prepare(tmp_path: Path) -> None:
    """The same model through another wrapper finds the same entries."""
    cached(Counting(PREFIXED), tmp_path).embed(["a", "b \ud800"], role="query")
    foreign = Foreign()
    cached(foreign, tmp_path).embed(["a", "b \ud800"], role="query")  # type: ignore[arg-type]
    assert foreign.sent == []


# failures


def test_a_partial_answer_is_kept_and_reported_by_the_positions_of_the_call(tmp_path: Path) -> None:
    provider = Counting(refuse="bad")
    embedder = cached(provider, tmp_path)
    embedder.embed(["known"])
    texts = ["", "bad 1", "a", "known", "bad 1", "b", "a", "bad 2"]
    with pytest.raises(PartialEmbedError) as caught:
        embedder.embed(texts)
    error = caught.value
    assert error.failed == {1: "holds bad", 4: "holds bad", 7: "holds bad"}
    assert error.is_transient is True
    assert isinstance(error.__cause__, TransientError)
    expected = Counting().embed(texts)
    expected[[1, 4, 7]] = 0
    assert same(error.vectors, expected)
    assert (embedder.stats.failed, embedder.stats.writes) == (2, 3)
    provider.refuse = ""
    provider.sent.clear()
    assert same(embedder.embed(texts), Counting().embed(texts))
    assert provider.sent == ["bad 1", "bad 2"]


def test_nothing_but_refused_texts() -> None:
    embedder = cached(Counting(refuse="bad"))
    with pytest.raises(PartialEmbedError) as caught:
        embedder.embed(["bad"])
    assert caught.value.failed == {0: "holds bad"}
    assert not caught.value.vectors.any()


def test_a_failed_call_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    provider = Counting()
    provider.fail = [ProviderError("down")]
    embedder = cached(provider, tmp_path)
    with pytest.raises(ProviderError, match="down"):
        embedder.embed(["a", "b"])
    assert embedder.stats.writes == 0
    assert same(embedder.embed(["a", "b"]), Counting().embed(["a", "b"]))


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda n: np.ones((n, 7), np.float32), r"shape \(2, 7\); expected \(2, 8\)"),
        (lambda n: np.ones((n - 1, 8), np.float32), r"shape \(1, 8\); expected \(2, 8\)"),
        (lambda n: np.full((n, 8), np.nan, np.float32), "text 0 has length nan"),
        (lambda n: np.eye(n, 8, 7, dtype=np.float32) * 0, "text 0 has length 0"),
        (lambda n: np.array([[1] * 8, [np.inf] * 8], np.float32), "text 1 has length inf"),
    ],
    ids=["width", "count", "nan", "zero", "infinite"],
)
def test_an_answer_that_is_no_vector_is_not_kept(
    tmp_path: Path, answer: Callable[[int], Any], words: str
) -> None:
    provider = Foreign(answer)
    embedder = cached(provider, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ProviderError, match=f"counting.*{words}"):
        embedder.embed(["a", "b"])
    provider.answer = None
    assert same(embedder.embed(["a", "b"]), Counting(PREFIXED).embed(["a", "b"]))
    assert len(provider.sent) == 4


# bounds, time to live, bypass, clear


def test_memory_is_bounded_and_disk_answers_for_what_left_it(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(100)]
    embedder = cached(folder=tmp_path, memory_bytes=10 * 240)
    for text in texts:
        embedder.embed([text])
        assert embedder.stats.memory_bytes <= 10 * 240
    assert embedder.stats.evictions == 90
    assert same(embedder.embed(texts), Counting().embed(texts))
    assert (embedder.stats.hits_memory, embedder.stats.hits_disk) == (10, 90)


def test_without_memory_and_without_disk(tmp_path: Path) -> None:
    on_disk = cached(folder=tmp_path / "a", memory_bytes=0)
    nowhere = cached(folder=tmp_path / "b", memory_bytes=0, disk_bytes=0)
    for embedder in (on_disk, nowhere):
        for _ in range(2):
            assert same(embedder.embed(["a"]), Counting().embed(["a"]))
    assert (on_disk.stats.hits_disk, on_disk.stats.misses) == (1, 1)
    assert (nowhere.stats.hits_disk, nowhere.stats.misses) == (0, 2)
    assert not (tmp_path / "b").exists()


def test_a_bound_too_small_for_the_width_is_refused_at_the_first_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="disk cache may have 1 bytes"):
        cached(folder=tmp_path, disk_bytes=1).embed(["a"])


def test_vectors_expire_in_memory_and_on_disk(tmp_path: Path) -> None:
    now = [1000.0]
    options: dict[str, Any] = {"ttl_s": 60, "clock": lambda: now[0]}
    embedder, provider = cached(folder=tmp_path, **options), Counting()
    embedder.embed(["a"])
    now[0] = 1059.0
    # found on disk near its end: memory must not give it another minute
    other = cached(provider, tmp_path, **options)
    other.embed(["a"])
    assert provider.calls == 0
    now[0] = 1061.0
    for one in (embedder, other):
        assert same(one.embed(["a"]), Counting().embed(["a"]))
    assert embedder.stats.misses == 2
    assert embedder.stats.expired > 0
    assert (other.stats.hits_memory, other.stats.hits_disk) == (0, 2), "the first one has written it again"
    assert provider.calls == 0
    now[0] = 1120.0
    assert other.embed(["a"]).any()
    assert provider.calls == 0


def test_bypass_neither_reads_nor_fills(tmp_path: Path) -> None:
    provider = Counting()
    embedder = cached(provider, tmp_path)
    embedder.embed(["known"])
    with embedder.bypass():
        with embedder.bypass():
            embedder.embed(["known", "new"])
        assert same(embedder.embed(["known", "", "new"]), Counting().embed(["known", "", "new"]))
        with ThreadPoolExecutor(1) as pool:  # another thread's calls are its own affair
            pool.submit(embedder.embed, ["known"]).result()
    assert provider.sent == ["known", "known", "new", "known", "new"]
    assert (embedder.stats.bypassed, embedder.stats.hits_memory, embedder.stats.misses) == (5, 1, 1)
    embedder.embed(["new"])
    assert embedder.stats.misses == 2


def test_bypass_ends_with_an_exception() -> None:
    embedder = cached()
    with pytest.raises(KeyError), embedder.bypass():
        raise KeyError
    embedder.embed(["a"])
    assert embedder.stats.bypassed == 0


def test_bypass_as_an_option(tmp_path: Path) -> None:
    embedder = cached(folder=tmp_path / "cache", bypass=True)
    embedder.embed(["a"])
    embedder.embed(["a"])
    assert embedder.provider.calls == 2  # type: ignore[attr-defined]
    assert not (tmp_path / "cache").exists()


def test_clear_forgets_this_model_alone(tmp_path: Path) -> None:
    other = cached(Counting(PREFIXED), tmp_path)
    other.embed(["a"])
    embedder = cached(folder=tmp_path)
    embedder.embed(["a"])
    embedder.clear()
    assert embedder.stats.disk_bytes == embedder.stats.memory_bytes == 0
    embedder.embed(["a"])
    assert embedder.stats.misses == 2
    assert cached(folder=tmp_path).embed(["a"]).any()
    fresh = cached(Counting(PREFIXED), tmp_path)
    fresh.embed(["a"])
    assert fresh.stats.hits_disk == 1


def test_closing_keeps_what_is_on_disk_and_the_counts(tmp_path: Path) -> None:
    embedder = cached(folder=tmp_path)
    embedder.close()
    with embedder:
        embedder.embed(["a"])
    assert same(embedder.embed(["a"]), Counting().embed(["a"]))
    assert (embedder.stats.misses, embedder.stats.hits_disk) == (1, 1)


def test_a_disk_that_refuses_is_reported_and_memory_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "vectors-1").write_text("in the way")
    embedder = cached(folder=tmp_path)
    for _ in range(3):
        assert same(embedder.embed(["a", "b"]), Counting().embed(["a", "b"]))
        embedder.embed([f"new {len(caplog.records)}"])
    assert len(caplog.records) == 1
    assert embedder.stats.is_disk_writable is False
    assert embedder.stats.writes == 0


def test_repr_shows_provider_and_folder(tmp_path: Path) -> None:
    assert (
        repr(cached(folder=tmp_path)) == f"CachedEmbedder(provider={Counting()!r}, folder={str(tmp_path)!r})"
    )
    assert "folder=None" in repr(cached())


# threads


def test_concurrent_calls_for_one_text_embed_it_once() -> None:
    provider = Counting()
    provider.gate.clear()
    embedder = cached(provider)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(embedder.embed, ["a", "b"])
        assert provider.entered.wait(10)
        others = [pool.submit(embedder.embed, [text, "b"]) for text in ("a", "b", "a", "b")]
        waiting(embedder, 6)
        provider.gate.set()
        assert same(first.result(), Counting().embed(["a", "b"]))
        first.result()[:] = 7  # the others have copies
        for future, text in zip(others, ("a", "b", "a", "b")):
            assert same(future.result(), Counting().embed([text, "b"]))
    assert provider.sent == ["a", "b"]
    assert embedder.stats.shared == 6


def waiting(embedder: CachedEmbedder, keys: int) -> None:
    """Until other calls wait for ``keys`` keys in all."""
    for _ in range(2000):
        cache = embedder._cache
        assert cache is not None
        with cache._lock:
            if sum(flight.waiting for flight in set(cache._in_flight.values())) == keys:
                return
        threading.Event().wait(0.005)
    raise AssertionError("the calls did not start to wait")


def test_two_calls_that_need_each_others_texts_do_not_block() -> None:
    class Meeting(Counting):
        def _encode(self, texts: list[str], role: Role) -> Any:
            both.wait()
            return super()._encode(texts, role)

    both = threading.Barrier(2, timeout=10)
    provider = Meeting()
    embedder = cached(provider)
    started = threading.Barrier(2, timeout=10)

    def work(texts: list[str]) -> Vectors:
        started.wait()
        return embedder.embed(texts)

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.submit(work, ["a", "x"]), pool.submit(work, ["b", "x"])
        assert same(left.result(10), Counting().embed(["a", "x"]))
        assert same(right.result(10), Counting().embed(["b", "x"]))
    assert sorted(provider.sent) == ["a", "b", "x"]


def test_those_who_wait_for_a_call_that_fails_ask_for_themselves() -> None:
    """The failure may have come from another text of that call."""
    provider = Counting()
    provider.gate.clear()
    provider.fail = [ProviderError("poisoned")]
    embedder = cached(provider)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(embedder.embed, ["a", "poison"])
        assert provider.entered.wait(10)
        second = pool.submit(embedder.embed, ["a"])
        waiting(embedder, 1)
        provider.gate.set()
        with pytest.raises(ProviderError, match="poisoned"):
            first.result()
        assert same(second.result(), Counting().embed(["a"]))
    assert provider.sent == ["a"]
    assert same(embedder.embed(["a"]), Counting().embed(["a"]))
    assert provider.sent == ["a"]


def test_many_threads_on_few_texts(tmp_path: Path) -> None:
    provider = Counting()
    embedder = cached(provider, tmp_path, memory_bytes=8 * 240)
    texts = [f"text {number}" for number in range(25)]
    right = dict(zip(texts, Counting().embed(texts)))

    def work(seed: int) -> None:
        choose = np.random.default_rng(seed)
        for _ in range(40):
            asked = [texts[n] for n in choose.integers(0, 25, choose.integers(1, 6))]
            assert same(embedder.embed(asked), np.array([right[text] for text in asked]))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert sorted(provider.sent) == sorted(set(provider.sent)), "each text was embedded once"
    stats = embedder.stats
    assert stats.texts == stats.texts_saved + stats.misses
    assert stats.damaged == 0


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["query", "document"]),
        st.lists(st.sampled_from(["", " ", "a", "b", "c", "é", "e\u0301", "query: a", "bad"]), max_size=6),
        st.sampled_from(["", "close", "clear", "wait", "swap"]),
    ),
    max_size=15,
)


@settings(max_examples=60, deadline=None)
@given(CALLS)
def test_always_equal_to_the_provider_alone(calls: list[tuple[Role, list[str], str]]) -> None:
    """Two caches on one folder, small bounds, a time to live, a text that is always refused."""
    now = [0.0]
    with tempfile.TemporaryDirectory() as folder:
        pair = [
            cached(
                Counting(PREFIXED, refuse="bad"),
                Path(folder),
                memory_bytes=3 * 240,
                disk_bytes=64 * 80,
                ttl_s=10,
                clock=lambda: now[0],
            )
            for _ in range(2)
        ]
        for role, texts, then in calls:
            expected = Counting(PREFIXED).embed(texts, role=role)
            refused = [row for row, text in enumerate(texts) if text == "bad"]
            if refused:
                with pytest.raises(PartialEmbedError) as caught:
                    pair[0].embed(texts, role=role)
                assert list(caught.value.failed) == refused
                expected[refused] = 0
                vectors = caught.value.vectors
            else:
                vectors = pair[0].embed(texts, role=role)
            assert same(vectors, expected)
            if then == "close":
                pair[0].close()
            elif then == "clear":
                pair[0].clear()
            elif then == "wait":
                now[0] += 6
            elif then == "swap":
                pair.reverse()
        for embedder in pair:
            embedder.close()


def test_target_is_the_providers() -> None:
    target: Target = cached(Foreign()).target  # type: ignore[arg-type]
    assert target == "api"
