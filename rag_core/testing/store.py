"""What every vector store must satisfy, checked against a plain matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rag_core.errors import IdentityMismatchError, InvalidArgumentError, RagCoreError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Vectors, VectorStore
from rag_core.testing._raises import raised
from rag_core.types import Ranking

__all__ = ["VectorStoreConformance", "oracle_ranking"]


def oracle_ranking(ids: Sequence[str], vectors: Vectors, query: Vectors, k: int) -> Ranking:
    """The exact answer: cosines in float64, ordered by ``Ranking``'s rule.

    Equal rows get equal scores: every row is summed by itself, in the same order of its columns.
    """
    rows = vectors.astype(np.float64)
    wanted = query.astype(np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=1)) * np.sqrt((wanted * wanted).sum())
    scores = (rows * wanted).sum(axis=1) / lengths
    return Ranking.from_scores(zip(ids, scores.tolist()), k)


class VectorStoreConformance:
    """Subclass it, name the class ``Test…``, and write :meth:`make` and :meth:`reopen`.

    Attributes:
        tolerance: largest difference between a score and the exact cosine.
        widths: widths of vectors that must work.
    """

    tolerance: ClassVar[float] = 1e-5
    widths: ClassVar[Sequence[int]] = (1, 384, 1536, 3072)

    def make(self, identity: Fingerprint, path: Path) -> VectorStore:
        """A new, empty store in the folder ``path`` for the vectors of ``identity``."""
        raise NotImplementedError(f"{type(self).__name__}: write make(self, identity, path)")

    def reopen(self, path: Path, identity: Fingerprint | None = None) -> VectorStore:
        """The store that was made in ``path``; with ``identity``, refusing another embedder's."""
        raise NotImplementedError(f"{type(self).__name__}: write reopen(self, path, identity=None)")

    @staticmethod
    def identity(dim: int, provider: str = "kit") -> Fingerprint:
        """The fingerprint of an embedder ``dim`` wide."""
        return Fingerprint(provider, f"{provider}-model", "1", dim, "fp32", "mean")

    @staticmethod
    def vectors(n: int, dim: int, seed: int = 5) -> Vectors:
        """``n`` rows of length 1."""
        raw = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
        return np.ascontiguousarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), dtype=np.float32)

    def filled(
        self,
        path: Path,
        n: int = 40,
        dim: int = 16,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> tuple[VectorStore, list[str], Vectors]:
        """A store with ``n`` rows, their ids and vectors."""
        store, ids, vectors = (
            self.make(self.identity(dim), path),
            [f"d{i}" for i in range(n)],
            self.vectors(n, dim),
        )
        store.upsert(ids, vectors, metadata)
        return store, ids, vectors

    def check_equal(self, found: Ranking, expected: Ranking) -> None:
        """The same ids in the same order, scores within ``tolerance``."""
        assert found.doc_ids == expected.doc_ids
        assert np.allclose(found.scores, expected.scores, rtol=0, atol=self.tolerance)

    def test_satisfies_the_protocol(self, tmp_path: Path) -> None:
        """All members."""
        identity = self.identity(4)
        store = self.make(identity, tmp_path / "s")
        assert isinstance(store, VectorStore)
        assert store.identity == identity
        assert store.count() == 0
        store.close()

    def test_search_equals_the_exact_answer(self, tmp_path: Path) -> None:
        """For several queries and depths."""
        store, ids, vectors = self.filled(tmp_path / "s")
        for query in self.vectors(5, 16, seed=9):
            for k in (1, 7, 40):
                self.check_equal(store.search(query, k), oracle_ranking(ids, vectors, query, k))
        store.close()

    def test_the_nearest_is_first_and_scores_are_cosines(self, tmp_path: Path) -> None:
        """Higher is better: a row finds itself at 1, its opposite comes last at -1."""
        store = self.make(self.identity(3), tmp_path / "s")
        rows = np.array([[0, 1, 0], [1, 0, 0], [-1, 0, 0], [0.6, 0.8, 0]], np.float32)
        store.upsert(["side", "same", "opposite", "near"], rows)
        found = store.search(np.array([1, 0, 0], np.float32), 4)
        assert found.doc_ids == ("same", "near", "side", "opposite")
        assert np.allclose(found.scores, (1.0, 0.6, 0.0, -1.0), rtol=0, atol=self.tolerance)
        store.close()

    def test_the_length_of_the_query_does_not_matter(self, tmp_path: Path) -> None:
        """Cosine, not dot product."""
        store, _, vectors = self.filled(tmp_path / "s")
        self.check_equal(store.search(vectors[3] * np.float32(7), 5), store.search(vectors[3], 5))
        store.close()

    def test_ties_are_ordered_by_id_descending(self, tmp_path: Path) -> None:
        """Also when the cut falls among equal rows."""
        store = self.make(self.identity(4), tmp_path / "s")
        ids = [f"t{i:02d}" for i in range(12)]
        store.upsert(ids, np.tile(self.vectors(1, 4), (12, 1)))
        query = self.vectors(1, 4, seed=3)[0]
        for k in (1, 5, 12):
            assert store.search(query, k).doc_ids == tuple(sorted(ids, reverse=True)[:k])
        store.close()

    def test_more_than_there_is(self, tmp_path: Path) -> None:
        """``k`` above the count gives all rows."""
        store, ids, _ = self.filled(tmp_path / "s", n=3)
        assert sorted(store.search(self.vectors(1, 16)[0], 10).doc_ids) == ids
        store.close()

    def test_k_below_one_is_refused(self, tmp_path: Path) -> None:
        """0 and negative numbers, also in an empty store."""
        store, query = self.make(self.identity(4), tmp_path / "s"), self.vectors(1, 4)[0]
        for k in (0, -1):
            assert str(k) in raised(InvalidArgumentError, lambda k=k: store.search(query, k), f"k = {k}")  # type: ignore[misc]
        store.close()

    def test_an_empty_store_finds_nothing(self, tmp_path: Path) -> None:
        """An empty ranking, no error; before and after reopening."""
        query = self.vectors(1, 4)[0]
        store = self.make(self.identity(4), tmp_path / "s")
        assert len(store.search(query, 5)) == 0
        store.close()
        store = self.reopen(tmp_path / "s")
        assert store.count() == 0
        assert len(store.search(query, 5)) == 0
        store.close()

    def test_a_blank_query_finds_nothing(self, tmp_path: Path) -> None:
        """The zero vector that stands for a blank text is near nothing."""
        store, _, _ = self.filled(tmp_path / "s", n=4)
        assert len(store.search(np.zeros(16, np.float32), 5)) == 0
        store.close()

    def test_upsert_replaces(self, tmp_path: Path) -> None:
        """The old vector and metadata are gone, the count stays."""
        store, ids, vectors = self.filled(tmp_path / "s", n=6, metadata=[{"v": 1}] * 6)
        fresh = self.vectors(2, 16, seed=77)
        store.upsert(["d2", "new"], fresh, [{"v": 2}, {"v": 2}])
        assert store.count() == 7
        rows = np.concatenate([vectors, fresh[1:]])
        rows[2] = fresh[0]
        self.check_equal(store.search(fresh[0], 7), oracle_ranking([*ids, "new"], rows, fresh[0], 7))
        assert set(store.search(fresh[0], 7, {"v": 2}).doc_ids) == {"d2", "new"}
        store.upsert(ids, vectors)
        assert store.count() == 7
        store.close()

    def test_delete(self, tmp_path: Path) -> None:
        """Known ids go, unknown ones are no error."""
        store, ids, vectors = self.filled(tmp_path / "s", n=5)
        assert store.delete(["d1", "unknown", "d3"]) == 2
        assert store.delete(["d1"]) == 0
        assert store.delete([]) == 0
        assert store.count() == 3
        kept = [0, 2, 4]
        expected = oracle_ranking([ids[i] for i in kept], vectors[kept], vectors[1], 5)
        self.check_equal(store.search(vectors[1], 5), expected)
        store.upsert(["d1"], vectors[1:2])
        assert store.search(vectors[1], 1).doc_ids == ("d1",)
        store.close()

    def test_stored_rows_are_given_back(self, tmp_path: Path) -> None:
        """Of stores that have ``vectors_of``: in the order asked for; an unknown id is refused."""
        store, ids, vectors = self.filled(tmp_path / "s")
        vectors_of = getattr(store, "vectors_of", None)
        if vectors_of is not None:
            assert vectors_of([]).shape == (0, 16)
            wanted = [17, 3, 39, 3]
            found = vectors_of([ids[i] for i in wanted])
            assert found.dtype == np.float32
            assert np.allclose(found, vectors[wanted], rtol=0, atol=1e-6)
            raised(KeyError, lambda: vectors_of([ids[0], "unknown"]), "an unknown id")
            store.delete([ids[3]])
            raised(KeyError, lambda: vectors_of([ids[3]]), "an id that was deleted")
        store.close()

    def test_many_queries_answer_as_one_by_one(self, tmp_path: Path) -> None:
        """Of stores that have ``search_many``; a blank query among them, with and without a filter."""
        store, _, _ = self.filled(tmp_path / "s", metadata=[{"even": i % 2 == 0} for i in range(40)])
        search_many = getattr(store, "search_many", None)
        if search_many is not None:
            queries = self.vectors(5, 16, seed=9)
            queries[2] = 0
            for where in (None, {"even": True}):
                wanted = [store.search(query, 7, where) for query in queries]
                assert list(search_many(queries, 7, where)) == wanted
        store.close()

    def test_reopening_changes_nothing(self, tmp_path: Path) -> None:
        """Rows, metadata and identity survive."""
        store, _, vectors = self.filled(tmp_path / "s", metadata=[{"even": i % 2 == 0} for i in range(40)])
        store.delete(["d7"])
        before = [store.search(vectors[i], 9) for i in range(4)]
        filtered = store.search(vectors[0], 9, {"even": True})
        store.close()
        store = self.reopen(tmp_path / "s", self.identity(16))
        assert store.identity == self.identity(16)
        assert store.count() == 39
        assert [store.search(vectors[i], 9) for i in range(4)] == before
        assert store.search(vectors[0], 9, {"even": True}) == filtered
        store.close()

    def test_another_embedder_is_refused_on_opening(self, tmp_path: Path) -> None:
        """Of another width, and of the same width: both are named, with how to rebuild."""
        self.make(self.identity(8, "first"), tmp_path / "s").close()
        for other in (
            self.identity(16, "second"),
            self.identity(8, "second"),
            replace(self.identity(8, "first"), query_template="query: {text}"),
        ):
            message = raised(
                IdentityMismatchError,
                lambda other=other: self.reopen(tmp_path / "s", other),  # type: ignore[misc]
                f"a store of another embedder than {other}",
            )
            assert self.identity(8, "first").digest in message
            assert other.digest in message
            assert "rebuild" in message

    def test_making_a_store_where_one_is_is_refused(self, tmp_path: Path) -> None:
        """Nothing is overwritten."""
        self.filled(tmp_path / "s", n=2)[0].close()
        raised(
            StoreError, lambda: self.make(self.identity(16), tmp_path / "s"), "a second store in one folder"
        )
        store = self.reopen(tmp_path / "s")
        assert store.count() == 2
        store.close()

    def test_opening_what_is_not_there_is_refused(self, tmp_path: Path) -> None:
        """With a store error, not a bare OSError."""
        raised(StoreError, lambda: self.reopen(tmp_path / "none"), "a folder without a store")

    def test_widths(self, tmp_path: Path) -> None:
        """Narrow and wide vectors alike."""
        for dim in self.widths:
            store, ids, vectors = self.filled(tmp_path / f"s{dim}", n=5, dim=dim)
            self.check_equal(store.search(vectors[2], 5), oracle_ranking(ids, vectors, vectors[2], 5))
            store.close()

    def test_another_width_is_refused(self, tmp_path: Path) -> None:
        """On writing and on searching; the store is as before."""
        store, _, _ = self.filled(tmp_path / "s", n=2)
        raised(RagCoreError, lambda: store.upsert(["x"], self.vectors(1, 8)), "a row of another width")
        raised(RagCoreError, lambda: store.search(self.vectors(1, 8)[0], 1), "a query of another width")
        assert store.count() == 2
        store.close()

    def test_filter_by_equality(self, tmp_path: Path) -> None:
        """The best of those that match: filtered before the cut, not after."""
        metadata = [{"lang": "en" if i % 4 else "pt", "page": i % 3} for i in range(40)]
        store, ids, vectors = self.filled(tmp_path / "s", metadata=metadata)
        for where in ({"lang": "pt"}, {"lang": "pt", "page": 1}, {"page": 2}):
            kept = [i for i, row in enumerate(metadata) if all(row[name] == v for name, v in where.items())]
            expected = oracle_ranking([ids[i] for i in kept], vectors[kept], vectors[0], 6)
            self.check_equal(store.search(vectors[0], 6, where), expected)
        assert len(store.search(vectors[0], 6, {"lang": "fr"})) == 0
        assert len(store.search(vectors[0], 6, {"absent": 1})) == 0
        store.close()

    def test_rows_without_direction_are_refused(self, tmp_path: Path) -> None:
        """NaN, infinity and zero; none of the call's rows is stored."""
        store, _, _ = self.filled(tmp_path / "s", n=3)
        for value in (np.nan, np.inf, 0.0):
            rows = self.vectors(2, 16, seed=8)
            rows[1] = value
            raised(RagCoreError, lambda rows=rows: store.upsert(["x", "y"], rows), f"a row of {value}")  # type: ignore[misc]
        assert store.count() == 3
        store.close()

    def test_repeated_or_missing_ids_are_refused(self, tmp_path: Path) -> None:
        """In one call."""
        store = self.make(self.identity(16), tmp_path / "s")
        raised(RagCoreError, lambda: store.upsert(["x", "x"], self.vectors(2, 16)), "one id twice")
        raised(RagCoreError, lambda: store.upsert(["x"], self.vectors(2, 16)), "two rows for one id")
        raised(RagCoreError, lambda: store.upsert(["", "x"], self.vectors(2, 16)), "an empty id")
        assert store.count() == 0
        store.close()

    def test_ids_are_any_text(self, tmp_path: Path) -> None:
        """Quotes, slashes, blanks, other scripts."""
        ids = ['say "hi"', "../up", "a'; DROP", "图书馆", "two words", "x" * 300]
        store = self.make(self.identity(16), tmp_path / "s")
        vectors = self.vectors(len(ids), 16)
        store.upsert(ids, vectors)
        store.close()
        store = self.reopen(tmp_path / "s")
        assert [store.search(row, 1).doc_ids[0] for row in vectors] == ids
        assert store.delete(ids) == len(ids)
        store.close()
