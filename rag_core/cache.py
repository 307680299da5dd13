"""An embedder that remembers: vectors under the hash of the text that was really sent, in memory and on disk.

::

    embedder = CachedEmbedder(get_embedder("cohere"), folder="~/.cache/my-app")
    embedder.embed(texts)            # calls the provider for what neither memory nor disk holds
    embedder.stats.hit_rate

A key is the SHA-256 of the fingerprint's digest, the role and the prepared text, so that another model,
revision, width, precision, prefix or length limit is another key, and a vector comes back bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rag_core.embedding import FIRST_TEXT, check_call, templated
from rag_core.errors import InvalidArgumentError, PartialEmbedError, ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.progress import Progress, listening
from rag_core.protocols import EmbedProvider, Role, Target, Vectors
from rag_core.secrets import safe_repr
from rag_core.vectorcache import Answer, CacheStats, VectorCache
from rag_core.vectorlog import VectorLog

__all__ = ["DISK_BYTES", "MEMORY_BYTES", "CacheStats", "CachedEmbedder"]

MEMORY_BYTES = 64 << 20
DISK_BYTES = 2 << 30
#: Folder below the given one; the number changes with the format of the files.
FORMAT_FOLDER = "vectors-1"


class CachedEmbedder:
    """An :class:`~rag_core.protocols.EmbedProvider` around another one; see the module.

    Many threads may use one object, and many processes one folder. Within a process a text that several
    calls need at the same time is embedded once; two processes may both embed it.

    Attributes:
        provider: the embedder inside.
    """

    def __init__(
        self,
        provider: EmbedProvider,
        folder: str | Path | None = None,
        *,
        memory_bytes: int = MEMORY_BYTES,
        disk_bytes: int = DISK_BYTES,
        ttl_s: float | None = None,
        bypass: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is loaded, opened or made before the first text.

        Args:
            provider: the embedder to ask for what is not known.
            folder: where vectors are kept; None: in memory only. Several models may share it.
            memory_bytes: bound of the memory; 0: none is used.
            disk_bytes: bound of the files of all models in ``folder``; see
                :class:`rag_core.vectorlog.VectorLog`. The oldest go first.
            ttl_s: seconds for which a vector is served; None: for ever.
            bypass: True sends every call straight to the provider, as inside :meth:`bypass`.
            clock: seconds since the epoch.

        Raises:
            InvalidArgumentError: a bound or the time to live is negative.
        """
        for name, value in (("memory_bytes", memory_bytes), ("disk_bytes", disk_bytes), ("ttl_s", ttl_s)):
            if value is not None and not value >= 0:
                raise InvalidArgumentError(f"the cache has {name} {value!r}; accepted: 0 or more")
        self.provider = provider
        self._root = None if folder is None else Path(folder).expanduser() / FORMAT_FOLDER
        self._memory_bytes, self._disk_bytes = memory_bytes, disk_bytes
        self._ttl_s, self._clock, self._is_bypassed = ttl_s, clock, bypass
        self._lock = threading.Lock()
        self._of_thread = threading.local()
        self._cache: VectorCache | None = None
        self._cached_for: Fingerprint | None = None
        self._digest = ""

    # what the provider says of itself

    @property
    def name(self) -> str:
        """The provider's registry name."""
        return self.provider.name

    @property
    def model(self) -> str:
        """The provider's model."""
        return self.provider.model

    @property
    def target(self) -> Target:
        """Where the provider computes."""
        return self.provider.target

    @property
    def is_local(self) -> bool:
        """Whether the provider needs no service."""
        return self.provider.is_local

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self.provider.dim

    @property
    def max_tokens(self) -> int:
        """Longest input in tokens; 0 where there is no limit."""
        return self.provider.max_tokens

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors: the provider's, for a cache changes nothing about them."""
        return self.provider.fingerprint

    @property
    def is_ready(self) -> bool:
        """Whether the provider has made its slow first call; True where it does not tell."""
        return bool(getattr(self.provider, "is_ready", True))

    def is_available(self) -> bool:
        """Whether the provider can be expected to answer."""
        return self.provider.is_available()

    def warmup(self, progress: Progress | None = None) -> None:
        """Warm the provider up, past the cache.

        Raises:
            ProviderError: the first call failed; it can be tried again.
        """
        inner = getattr(self.provider, "warmup", None)
        if inner is not None:
            inner(progress)
            return
        with listening(progress):
            self.provider.embed([FIRST_TEXT], role="query")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model would see it, before truncation."""
        return self.provider.count_tokens(texts)

    def prepare(self, text: str, role: Role) -> str:
        """The text as sent to the model."""
        own: Callable[[str, Role], str] | None = getattr(self.provider, "prepare", None)
        return own(text, role) if own is not None else templated(self.fingerprint, text, role)

    # embedding

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Embed ``texts`` as ``role``; see :class:`rag_core.protocols.EmbedProvider`.

        Raises:
            InvalidArgumentError: ``role`` is unknown, or ``texts`` is one string or holds something else.
            PartialEmbedError: the provider has vectors for some texts only. These are kept, in the error
                and in the cache; positions are those of ``texts``.
            ProviderError: the provider failed or broke its promise. What was known before stays known.
        """
        check_call(self.name, texts, role)
        if self._is_bypassed or self._depth() > 0:
            self._opened()[0].count(texts=len(texts), bypassed=len(texts))
            return self.provider.embed(texts, role=role)
        cache, digest = self._opened()
        rows = [row for row, text in enumerate(texts) if text.strip()]
        first: dict[bytes, int] = {}
        keys = self._keys(digest, [texts[row] for row in rows], role)
        for row, key in zip(rows, keys):
            first.setdefault(key, row)
        blank, duplicates = len(texts) - len(rows), len(rows) - len(first)
        cache.count(texts=len(texts), blank=blank, duplicates=duplicates, calls=int(bool(rows)))
        if not rows:
            return np.zeros((len(texts), self.dim), np.float32)
        asked = 0

        def compute(positions: list[int]) -> Answer:
            nonlocal asked
            asked += len(positions)
            return self._ask([unique[position] for position in positions], role)

        unique = [texts[row] for row in first.values()]
        answer = cache.fetch(list(first), compute)
        cache.count(calls_saved=int(not asked))
        if len(first) == len(texts) and not answer.failed:
            return answer.vectors
        places = dict(zip(first, range(len(first))))
        vectors = np.zeros((len(texts), self.dim), np.float32)
        vectors[rows] = answer.vectors[[places[key] for key in keys]]
        if answer.failed:
            reasons = {row: answer.failed.get(places[key]) for row, key in zip(rows, keys)}
            failed = {row: reason for row, reason in reasons.items() if reason is not None}
            raise PartialEmbedError(self.name, vectors, failed, answer.is_transient) from answer.cause
        return vectors

    def _ask(self, texts: list[str], role: Role) -> Answer:
        """Call the provider, and let nothing into the cache that is not a vector of length above 0."""
        answer = Answer(np.zeros((0, 0), np.float32))
        try:
            raw = self.provider.embed(texts, role=role)
        except PartialEmbedError as error:
            raw, answer.failed = error.vectors, dict(error.failed)
            answer.is_transient, answer.cause = error.is_transient, error.__cause__
        answer.vectors = np.ascontiguousarray(raw, np.float32)
        shape, expected = answer.vectors.shape, (len(texts), self.dim)
        if shape != expected:
            raise ProviderError(f"{self.name} answered shape {shape}; expected {expected}")
        norms = np.sqrt(np.einsum("ij,ij->i", answer.vectors, answer.vectors, dtype=np.float64))
        for row in np.flatnonzero(~(np.isfinite(norms) & (norms > 0))).tolist():
            if row not in answer.failed:
                raise ProviderError(
                    f"{self.name}: the vector of text {row} has length {norms[row]}; expected above 0"
                )
        return answer

    def _keys(self, digest: str, texts: Sequence[str], role: Role) -> list[bytes]:
        start = f"{digest}\0{role}\0".encode()
        sha256, prepare = hashlib.sha256, self.prepare
        return [
            sha256(start + prepare(text, role).encode("utf-8", "surrogatepass")).digest() for text in texts
        ]

    def _opened(self) -> tuple[VectorCache, str]:
        """The cache of the provider's fingerprint, made at the first text and after a change; its digest."""
        fingerprint = self.fingerprint
        with self._lock:
            if self._cache is None or self._cached_for != fingerprint:
                disk = None
                if self._root is not None and self._disk_bytes:
                    disk = VectorLog(
                        self._root,
                        fingerprint.digest,
                        fingerprint.dim,
                        max_bytes=self._disk_bytes,
                        ttl_s=self._ttl_s,
                        clock=self._clock,
                        about=json.dumps(fingerprint.as_dict(), indent=1) + "\n",
                    )
                counts = None
                if self._cache is not None:
                    counts = self._cache.stats
                    self._cache.close()
                self._cache = VectorCache(
                    fingerprint.dim,
                    self._memory_bytes,
                    disk,
                    ttl_s=self._ttl_s,
                    clock=self._clock,
                    counts=counts,
                )
                self._cached_for, self._digest = fingerprint, fingerprint.digest
            return self._cache, self._digest

    @contextmanager
    def bypass(self) -> Iterator[None]:
        """Inside the block, this thread's calls neither read nor fill the cache."""
        self._of_thread.depth = self._depth() + 1
        try:
            yield
        finally:
            self._of_thread.depth = self._depth() - 1

    def _depth(self) -> int:
        return int(getattr(self._of_thread, "depth", False))

    # looking after it

    @property
    def stats(self) -> CacheStats:
        """A copy of the counts."""
        with self._lock:
            cache = self._cache
        return CacheStats() if cache is None else cache.stats

    def clear(self) -> None:
        """Forget this model's vectors, in memory and in the folder; the counts stay.

        Raises:
            OSError: a file cannot be removed.
        """
        self._opened()[0].clear()

    def close(self) -> None:
        """Release memory and files; a later call opens them again."""
        with self._lock:
            if self._cache is not None:
                self._cache.close()

    def __enter__(self) -> CachedEmbedder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return safe_repr(self, provider=self.provider, folder=str(self._root.parent) if self._root else None)
