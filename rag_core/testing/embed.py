"""What every embedding provider, and every wrapper around one, must satisfy."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, get_args

import numpy as np

from rag_core.errors import InvalidArgumentError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import EmbedProvider, Role, Target, Vectors
from rag_core.secrets import redact
from rag_core.testing._raises import raised

__all__ = ["EmbedProviderConformance"]

_WORDS = (
    "water council library bridge recycling permit school garden market harbour tax office river "
    "la biblioteca abre los lunes você pode pagar online Straße Überweisung 図書館 北京 опера"
)


class EmbedProviderConformance:
    """Subclass it, name the class ``Test…``, and return a provider from :meth:`make`.

    Attributes:
        min_cosine: least cosine between a text's vectors in two batches: 0.9999 for fp32, 0.999 for fp16.
        n_texts: texts of the batch check; above 32, so that a batch of 32 is full.
        lengths: words of these texts, taken in turn.
        long_words: words of the very long text.
        secrets: values, for example of keys, that ``repr`` must not show.
    """

    min_cosine: ClassVar[float] = 0.9999
    n_texts: ClassVar[int] = 33
    lengths: ClassVar[Sequence[int]] = (1, 2, 3, 5, 8, 13, 1, 4, 2, 40, 6)
    long_words: ClassVar[int] = 20_000
    secrets: ClassVar[Sequence[str]] = ()
    _made: ClassVar[EmbedProvider | None] = None

    def make(self) -> EmbedProvider:
        """A provider; called once for the class."""
        raise NotImplementedError(f"{type(self).__name__}: write make(self) and return the provider")

    def provider(self) -> EmbedProvider:
        """The provider that :meth:`make` gave."""
        kind = type(self)
        if kind.__dict__.get("_made") is None:
            kind._made = self.make()
        made = kind._made
        assert made is not None
        return made

    def sample(self) -> list[str]:
        """The texts of the batch check; the same in every process."""
        choose = random.Random(7)
        return [
            " ".join(choose.choice(_WORDS.split()) for _ in range(self.lengths[i % len(self.lengths)]))
            for i in range(self.n_texts)
        ]

    def check_vectors(self, vectors: Vectors, n: int) -> None:
        """Shape, type, memory order, finite, rows of length 1 within 1e-6."""
        assert vectors.shape == (n, self.provider().dim)
        assert vectors.dtype == np.float32
        assert vectors.flags.c_contiguous
        assert np.isfinite(vectors).all()
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        assert np.allclose(norms, 1.0, rtol=0, atol=1e-6), f"rows of length {norms.min()} to {norms.max()}"

    def test_satisfies_the_protocol(self) -> None:
        """All members, with values of the right kind."""
        provider = self.provider()
        assert isinstance(provider, EmbedProvider)
        assert provider.name
        assert provider.model
        assert provider.target in get_args(Target)
        assert isinstance(provider.is_local, bool)
        assert provider.dim >= 1
        assert provider.max_tokens >= 0
        assert provider.is_available() is True

    def test_vectors_have_the_promised_form(self) -> None:
        """For both roles."""
        for role in get_args(Role):
            self.check_vectors(self.provider().embed(["one text", "another"], role=role), 2)

    def test_no_text_gives_no_row(self) -> None:
        """``[]`` gives ``(0, dim)``."""
        vectors = self.provider().embed([])
        assert vectors.shape == (0, self.provider().dim)
        assert vectors.dtype == np.float32

    def test_blank_texts_are_zero_rows_in_place(self) -> None:
        """A blank does not shift its neighbours."""
        provider = self.provider()
        mixed = provider.embed(["a", "", "  \n", "b"])
        apart = provider.embed(["a", "b"])
        assert mixed.shape == (4, provider.dim)
        assert not mixed[1:3].any()
        self.check_same(mixed[[0, 3]], apart)
        assert not provider.embed(["", "\t"], role="query").any()

    def test_a_vector_does_not_depend_on_its_batch(self) -> None:
        """Alone, in batches of 8 and 32, and in another order: the same vectors, each with its own text."""
        provider, texts = self.provider(), self.sample()
        alone = np.concatenate([provider.embed([text]) for text in texts])
        self.check_vectors(alone, len(texts))
        for size in (8, 32):
            batched = [provider.embed(texts[i : i + size]) for i in range(0, len(texts), size)]
            self.check_same(np.concatenate(batched), alone)
        order = list(range(len(texts)))
        random.Random(11).shuffle(order)
        self.check_same(provider.embed([texts[i] for i in order]), alone[order])

    def check_same(self, left: Vectors, right: Vectors) -> None:
        """Row by row, cosine of at least ``min_cosine``."""
        cosines = np.einsum("ij,ij->i", left, right, dtype=np.float64)
        assert cosines.min() >= self.min_cosine, f"row {cosines.argmin()}: cosine {cosines.min()}"

    def test_repeated_texts_get_equal_vectors(self) -> None:
        """Within one call."""
        vectors = self.provider().embed(["same", "other", "same"])
        self.check_same(vectors[[0]], vectors[[2]])

    def test_different_texts_get_different_vectors(self) -> None:
        """Not a constant."""
        vectors = self.provider().embed(["the library opens on Monday", "pay your water bill"])
        assert float(vectors[0] @ vectors[1]) < 0.999

    def test_refuses_an_unknown_role(self) -> None:
        """Naming what is accepted."""
        bad_role: Role = "passage"  # type: ignore[assignment]
        message = raised(
            InvalidArgumentError, lambda: self.provider().embed(["a"], role=bad_role), "an unknown role"
        )
        assert "query" in message
        assert "document" in message

    def test_refuses_what_is_not_a_list_of_texts(self) -> None:
        """One string, or a list that holds something else."""
        raised(InvalidArgumentError, lambda: self.provider().embed("text"), "one string as texts")
        wrong: list[str] = ["a", None]  # type: ignore[list-item]
        raised(InvalidArgumentError, lambda: self.provider().embed(wrong), "None among the texts")

    def test_roles_change_vectors_exactly_when_their_templates_differ(self) -> None:
        """The fingerprint tells the truth about roles."""
        provider = self.provider()
        text = ["how does the library lend books"]
        query, document = provider.embed(text, role="query"), provider.embed(text, role="document")
        fingerprint = provider.fingerprint
        if fingerprint.query_template == fingerprint.document_template:
            self.check_same(query, document)
        else:
            assert float(query[0] @ document[0]) < 0.99999, "the templates differ, the vectors do not"

    def test_fingerprint_is_stable_and_survives_json(self) -> None:
        """Before and after a call, and agreeing with the provider's attributes."""
        provider = self.provider()
        before = provider.fingerprint
        provider.embed(["x"])
        assert provider.fingerprint == before
        assert Fingerprint.from_dict(json.loads(json.dumps(before.as_dict()))) == before
        assert (before.provider, before.model) == (provider.name, provider.model)
        assert (before.dim, before.max_tokens) == (provider.dim, provider.max_tokens)
        assert before.normalised
        assert before.revision

    def test_unusual_texts(self) -> None:
        """NUL, lone surrogates, controls, CJK, emoji, right-to-left, one endless word."""
        texts = [
            "be\0fore",
            "\0",
            "lone \ud800 surrogate",
            "\u200b",
            "图书馆",
            "日本語の文",
            "👩‍👩‍👧 🇵🇹",
            "مكتبة",
            "x" * 3000,
        ]
        vectors = self.provider().embed(texts)
        self.check_vectors(vectors, len(texts))

    def test_text_after_nul_counts(self) -> None:
        """A NUL does not end the text."""
        cut, whole = self.provider().embed(["opening hours", "opening hours\0of the swimming pool"])
        assert float(cut @ whole) < 0.9999

    def test_a_very_long_text(self) -> None:
        """Neither raises nor changes its neighbour."""
        long = "the council meets in the old town hall " * (self.long_words // 8)
        vectors = self.provider().embed([long, "short"])
        self.check_vectors(vectors, 2)
        self.check_same(vectors[[1]], self.provider().embed(["short"]))

    def test_counts_tokens(self) -> None:
        """One whole number a text; longer texts have more."""
        counts = self.provider().count_tokens(["one", "one two three four five six", "\ud800"])
        assert len(counts) == 3
        assert all(isinstance(n, int) and n >= 1 for n in counts)
        assert counts[1] > counts[0]
        assert self.provider().count_tokens([]) == []

    def test_two_threads_get_the_same_vectors(self) -> None:
        """Concurrent calls do not mix."""
        provider, texts = self.provider(), self.sample()[:8]
        expected = [provider.embed([text]) for text in texts]
        with ThreadPoolExecutor(2) as workers:
            for vectors, right in zip(
                workers.map(lambda text: provider.embed([text]), texts * 2), expected * 2
            ):
                self.check_same(vectors, right)

    def test_repr_is_short_and_holds_no_secret(self) -> None:
        """Keys never appear, nor the value of an environment variable named like one."""
        shown = repr(self.provider())
        assert len(shown) < 500
        assert not any(secret in shown for secret in self.secrets)
        assert redact(shown) == shown
