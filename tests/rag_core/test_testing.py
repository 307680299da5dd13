"""The kits catch what they are for: each fault below fails the check that names it, and only faults do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core.embedding import BaseEmbedder
from rag_core.fingerprint import Fingerprint
from rag_core.stores.flat import FlatStore
from rag_core.testing import EmbedProviderConformance, RerankerConformance, VectorStoreConformance
from rag_core.testing._raises import raised
from rag_core.types import Ranking

ROOT = Path(__file__).resolve().parents[2]


def failing(kit: Any, tmp_path: Path | None = None) -> set[str]:
    """Names of the checks of ``kit`` that fail."""
    failed = set()
    for name in dir(kit):
        if name.startswith("test_"):
            try:
                getattr(kit, name)(*([tmp_path / name] if tmp_path else []))
            except Exception:  # noqa: BLE001 - a check may fail in any way
                failed.add(name.removeprefix("test_"))
    return failed


class Good(BaseEmbedder):
    """A sound embedder: letters counted, prefix applied."""

    def __init__(self, query: str = "{text}", document: str = "{text}", **other: Any) -> None:
        super().__init__(
            Fingerprint(
                "good",
                "m",
                "1",
                64,
                "fp32",
                "mean",
                query_template=query,
                document_template=document,
                **other,
            )
        )

    def _encode(self, texts: list[str], role: str) -> Any:
        return np.array([self.row(text) for text in texts], np.float32)

    def row(self, text: str) -> np.ndarray:
        row = np.ones(64)
        for position, letter in enumerate(text[:2000]):
            row[(ord(letter) * 7 + position) % 64] += 1
        return row

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


class NoBlanks(Good):
    def embed(self, texts: Any, *, role: Any = "document") -> Any:
        return super().embed([text for text in texts if text.strip()], role=role)


class Doubled(Good):
    def embed(self, texts: Any, *, role: Any = "document") -> Any:
        return super().embed(texts, role=role) * np.float32(2)


class Doubles(Good):
    def embed(self, texts: Any, *, role: Any = "document") -> Any:
        return super().embed(texts, role=role).astype(np.float64)


class Neighbours(Good):
    def _encode(self, texts: list[str], role: str) -> Any:
        rows = super()._encode(texts, role)
        return rows + 0.3 * rows[::-1] * (len(texts) > 1)


class Shuffled(Good):
    def _encode(self, texts: list[str], role: str) -> Any:
        return super()._encode(texts, role)[::-1] if len(texts) > 4 else super()._encode(texts, role)


class Constant(Good):
    def row(self, text: str) -> np.ndarray:
        return np.ones(64)


class CutsAtNul(Good):
    def row(self, text: str) -> np.ndarray:
        return super().row(text.partition("\0")[0])


class AnyRole(Good):
    def embed(self, texts: Any, *, role: Any = "document") -> Any:
        return super().embed(texts, role=role if role in ("query", "document") else "document")


class AnyTexts(Good):
    def embed(self, texts: Any, *, role: Any = "document") -> Any:
        return super().embed([str(text) for text in texts], role=role)


class SecretRole(Good):
    def row(self, text: str) -> np.ndarray:
        return super().row(text)

    def _encode(self, texts: list[str], role: str) -> Any:
        return super()._encode([f"{role}: {text}" for text in texts], role)


class NoRole(Good):
    def __init__(self) -> None:
        super().__init__("query: {text}", "passage: {text}")

    def prepare(self, text: str, role: Any) -> str:
        return text


class Drifting(Good):
    def _encode(self, texts: list[str], role: str) -> Any:
        self._fingerprint = replace(self._fingerprint, revision=self._fingerprint.revision + "x")
        return super()._encode(texts, role)


class Leaking(Good):
    def __repr__(self) -> str:
        return "Leaking(api_key='sk-very-secret')"


class NoTokens(Good):
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [1] * len(texts)


class Strict(Good):
    def prepare(self, text: str, role: Any) -> str:
        text.encode("utf-8")
        return text


class ShortOnly(Good):
    def row(self, text: str) -> np.ndarray:
        if len(text) > 50_000:
            raise OverflowError
        return super().row(text)


class Racing(Good):
    """Keeps the text in an attribute between two steps."""

    def row(self, text: str) -> np.ndarray:
        self.current = text
        time.sleep(0.002)
        return super().row(self.current)


class Unready(Good):
    def is_available(self) -> bool:
        return False


def kit_of(make: Callable[[], Any], **attributes: Any) -> EmbedProviderConformance:
    body = {"make": lambda self: make(), "long_words": 20_000, **attributes}
    return type("Kit", (EmbedProviderConformance,), body)()  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [Good, lambda: Good("query: {text}", "passage: {text}")])
def test_a_sound_embedder_passes(make: Callable[[], Any]) -> None:
    assert failing(kit_of(make)) == set()


@pytest.mark.parametrize(
    "fault, check",
    [
        (NoBlanks, "blank_texts_are_zero_rows_in_place"),
        (Doubled, "vectors_have_the_promised_form"),
        (Doubles, "vectors_have_the_promised_form"),
        (Neighbours, "a_vector_does_not_depend_on_its_batch"),
        (Shuffled, "a_vector_does_not_depend_on_its_batch"),
        (Constant, "different_texts_get_different_vectors"),
        (CutsAtNul, "text_after_nul_counts"),
        (AnyRole, "refuses_an_unknown_role"),
        (AnyTexts, "refuses_what_is_not_a_list_of_texts"),
        (SecretRole, "roles_change_vectors_exactly_when_their_templates_differ"),
        (NoRole, "roles_change_vectors_exactly_when_their_templates_differ"),
        (Drifting, "fingerprint_is_stable_and_survives_json"),
        (Leaking, "repr_is_short_and_holds_no_secret"),
        (NoTokens, "counts_tokens"),
        (Strict, "unusual_texts"),
        (ShortOnly, "a_very_long_text"),
        (Racing, "two_threads_get_the_same_vectors"),
        (Unready, "satisfies_the_protocol"),
    ],
)
def test_a_faulty_embedder_fails(fault: type, check: str) -> None:
    assert check in failing(kit_of(fault, secrets=("sk-very-secret",)))


class Scorer:
    name = model = fingerprint = "scorer"
    target = "cpu"

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        return [float(len(text)) for text in candidates]


class SortedScores(Scorer):
    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        return sorted(super().rerank(query, candidates), reverse=True)


class Relative(Scorer):
    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        return [score / (1 + sum(map(len, candidates))) for score in super().rerank(query, candidates)]


class Deduplicating(Scorer):
    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        return super().rerank(query, list(dict.fromkeys(candidates)))


class NeedsOne(Scorer):
    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        return [score + 0 * len(candidates[0]) for score in super().rerank(query, candidates)] or [1.0]


class Whole(Scorer):
    def rerank(self, query: str, candidates: Sequence[str]) -> Any:
        return [len(text) for text in candidates]


class Encoding(Scorer):
    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        return [float(len(text.encode())) for text in candidates]


def reranker_kit(kind: type) -> RerankerConformance:
    return type("Kit", (RerankerConformance,), {"make": lambda self: kind()})()  # type: ignore[no-any-return]


def test_a_sound_reranker_passes() -> None:
    assert failing(reranker_kit(Scorer)) == set()


@pytest.mark.parametrize(
    "fault, check",
    [
        (SortedScores, "each_score_belongs_to_its_candidate"),
        (Relative, "each_score_belongs_to_its_candidate"),
        (Deduplicating, "duplicates_keep_their_places"),
        (NeedsOne, "no_candidate_and_one"),
        (Whole, "one_number_per_candidate"),
        (Encoding, "unusual_texts"),
    ],
)
def test_a_faulty_reranker_fails(fault: type, check: str) -> None:
    assert check in failing(reranker_kit(fault))


class Distance(FlatStore):
    def search(self, vector: Any, k: int, where: Any = None) -> Ranking:
        found = super().search(vector, k, where)
        return Ranking.from_scores((hit.doc_id, 1 - hit.score) for hit in found)


class PostFilter(FlatStore):
    def search(self, vector: Any, k: int, where: Any = None) -> Ranking:
        found = super().search(vector, k)
        kept = super().search(vector, max(self.count(), 1), where).doc_ids if where else found.doc_ids
        return Ranking.from_scores((hit.doc_id, hit.score) for hit in found if hit.doc_id in kept)


class AnyK(FlatStore):
    def search(self, vector: Any, k: int, where: Any = None) -> Ranking:
        return super().search(vector, max(k, 1), where)


class InsertOnly(FlatStore):
    def upsert(self, ids: Any, vectors: Any, metadata: Any = None) -> None:
        super().upsert(ids, vectors, metadata) if not set(ids) & set(self.ids) else None


class AnyIdentity(FlatStore):
    @classmethod
    def open(cls, path: Path, identity: Any = None) -> Any:
        return super().open(path)


class Forgetful(FlatStore):
    def delete(self, ids: Any) -> int:
        return len(ids)


def store_kit(kind: Any) -> VectorStoreConformance:
    body = {
        "make": lambda self, identity, path: kind.create(path, identity),
        "reopen": lambda self, path, identity=None: kind.open(path, identity),
    }
    return type("Kit", (VectorStoreConformance,), body)()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "fault, check",
    [
        (Distance, "the_nearest_is_first_and_scores_are_cosines"),
        (Distance, "search_equals_the_exact_answer"),
        (PostFilter, "filter_by_equality"),
        (AnyK, "k_below_one_is_refused"),
        (InsertOnly, "upsert_replaces"),
        (AnyIdentity, "another_embedder_is_refused_on_opening"),
        (Forgetful, "delete"),
    ],
)
def test_a_faulty_store_fails(fault: Any, check: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        getattr(store_kit(fault), f"test_{check}")(tmp_path)


def test_a_kit_without_make_says_what_to_write(tmp_path: Path) -> None:
    for call in (
        lambda: EmbedProviderConformance().provider(),
        lambda: RerankerConformance().reranker(),
        lambda: VectorStoreConformance().make(VectorStoreConformance.identity(4), tmp_path),
        lambda: VectorStoreConformance().reopen(tmp_path),
    ):
        with pytest.raises(NotImplementedError, match="Conformance: write "):
            call()


def test_two_kits_do_not_share_their_provider() -> None:
    first, second = kit_of(Good), kit_of(Constant)
    assert type(first.provider()) is Good
    assert type(second.provider()) is Constant
    assert first.provider() is first.provider()


def test_raised() -> None:
    assert raised(ValueError, lambda: int("x"), "no number").startswith("invalid literal")
    with pytest.raises(AssertionError, match="no number: expected ValueError, got 1"):
        raised(ValueError, lambda: int("1"), "no number")
    with pytest.raises(TypeError):
        raised(ValueError, lambda: int([]), "no number")  # type: ignore[call-overload]


def test_the_kits_need_no_test_framework() -> None:
    code = (
        "import sys, rag_core.testing; "
        "print([m for m in ('pytest', '_pytest', 'unittest') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
