"""Vectors under 32-byte keys: memory first, then disk, then whoever can compute them; each of them once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rag_core.lru import VectorLRU
from rag_core.protocols import Vectors
from rag_core.vectorlog import VectorLog

__all__ = ["Answer", "CacheStats", "VectorCache"]


@dataclass(slots=True)
class CacheStats:
    """Counts since the cache was made.

    Attributes:
        texts: texts given, blank ones and those of bypassed calls included.
        blank: blank texts; they reach neither the cache nor the provider.
        bypassed: texts of calls that went past the cache.
        duplicates: texts that stood earlier in the same call.
        hits_memory: texts found in memory.
        hits_disk: texts found on disk.
        shared: texts that another thread was embedding at that moment; its answer was waited for.
        misses: texts sent to the provider.
        failed: of these, texts that the provider gave no vector for.
        calls: calls of ``embed`` that were not bypassed and held a text that is not blank.
        calls_saved: of these, calls that never reached the provider.
        writes: vectors written to disk.
        evictions: vectors that left memory to make room.
        expired: lookups that met a vector older than the time to live on disk.
        damaged: lookups that met a record on disk whose checksum is wrong; it counts as not there.
        segments_dropped: files dropped to keep the bound of the disk.
        memory_bytes: bytes in memory now.
        disk_bytes: bytes of this model's records on disk, as far as this process has seen them.
        is_disk_writable: False once the disk has refused a write.
    """

    texts: int = 0
    blank: int = 0
    bypassed: int = 0
    duplicates: int = 0
    hits_memory: int = 0
    hits_disk: int = 0
    shared: int = 0
    misses: int = 0
    failed: int = 0
    calls: int = 0
    calls_saved: int = 0
    writes: int = 0
    evictions: int = 0
    expired: int = 0
    damaged: int = 0
    segments_dropped: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    is_disk_writable: bool = True

    @property
    def texts_saved(self) -> int:
        """Texts answered without the provider: found, repeated within a call, or shared."""
        return self.hits_memory + self.hits_disk + self.duplicates + self.shared

    @property
    def hit_rate(self) -> float:
        """``texts_saved`` by the texts that were looked up; 0 where there were none."""
        looked_up = self.texts_saved + self.misses
        return self.texts_saved / looked_up if looked_up else 0.0


@dataclass(slots=True)
class Answer:
    """Vectors of a number of texts, and why some have none.

    Attributes:
        vectors: float32 ``(n, dim)``; zeros for a text without a vector.
        failed: position -> reason.
        is_transient: whether a later try of those may succeed.
        cause: what ended the call early, if anything did.
    """

    vectors: Vectors
    failed: dict[int, str] = field(default_factory=dict)
    is_transient: bool = False
    cause: BaseException | None = None


class _Flight:
    """The keys that one call is fetching; other calls that need them wait for it."""

    __slots__ = ("done", "vectors", "waiting")

    def __init__(self) -> None:
        self.done, self.waiting = threading.Event(), 0
        self.vectors: dict[bytes, Vectors] = {}


class VectorCache:
    """Memory and disk of one vector space, and the calls in flight; safe for many threads.

    Attributes:
        disk: the log, or None.
    """

    def __init__(
        self,
        dim: int,
        memory_bytes: int,
        disk: VectorLog | None = None,
        *,
        ttl_s: float | None = None,
        clock: Callable[[], float] = time.time,
        counts: CacheStats | None = None,
    ) -> None:
        """``ttl_s`` and ``clock`` as of the log; ``counts`` are carried on where there are some."""
        self.disk, self._dim, self._ttl_s, self._clock = disk, dim, ttl_s, clock
        self._memory = VectorLRU(memory_bytes, dim)
        self._counts = counts or CacheStats()
        self._lock = threading.Lock()
        self._in_flight: dict[bytes, _Flight] = {}

    def count(self, **more: int) -> None:
        """Add to counts by name."""
        with self._lock:
            self._add(**more)

    def _add(self, **more: int) -> None:
        for name, number in more.items():
            setattr(self._counts, name, getattr(self._counts, name) + number)

    @property
    def stats(self) -> CacheStats:
        """A copy of the counts."""
        with self._lock:
            counts = replace(self._counts, memory_bytes=self._memory.n_bytes)
        if self.disk is not None:
            counts.expired += self.disk.expired
            counts.damaged += self.disk.damaged
            counts.segments_dropped += self.disk.dropped
            counts.disk_bytes, counts.is_disk_writable = self.disk.n_bytes, self.disk.is_writable
        return counts

    def fetch(self, keys: Sequence[bytes], compute: Callable[[list[int]], Answer]) -> Answer:
        """The vectors of ``keys``.

        A key that another thread is fetching is waited for. Where that thread got no vector, this one
        computes for itself: the reason may have been another text of the same call.

        Args:
            keys: n different keys of 32 bytes.
            compute: given positions in ``keys``, answers for these, in that order.

        Raises:
            Whatever ``compute`` raises; what was found before stays known.
        """
        answer = Answer(np.zeros((len(keys), self._dim), np.float32))
        oldest = -np.inf if self._ttl_s is None else self._clock() - self._ttl_s
        flight, own, others = _Flight(), list[int](), list[tuple[int, _Flight]]()
        with self._lock:
            missing = self._memory.read(keys, answer.vectors, oldest)
            self._add(hits_memory=len(keys) - len(missing))
            for position in missing:
                other = self._in_flight.setdefault(keys[position], flight)
                if other is flight:
                    own.append(position)
                else:
                    other.waiting += 1
                    others.append((position, other))
        if own:
            got: list[int] = []
            try:
                got = self._fill(keys, own, compute, answer)
            finally:
                self._land(flight, keys, own, got, answer.vectors)
        # only now: two calls that wait for each other have both landed what they own
        alone = []
        for position, other in others:
            other.done.wait()
            vector = other.vectors.get(keys[position])
            if vector is None:
                alone.append(position)
            else:
                answer.vectors[position] = vector
        self.count(shared=len(others) - len(alone))
        if alone:
            self._fill(keys, alone, compute, answer)
        return answer

    def _land(
        self, flight: _Flight, keys: Sequence[bytes], own: list[int], got: list[int], vectors: Vectors
    ) -> None:
        """Let the others go on. They get copies: the caller may write into what it is given."""
        with self._lock:
            for position in own:
                del self._in_flight[keys[position]]
            if flight.waiting:
                flight.vectors = dict(zip([keys[position] for position in got], vectors[got]))
        flight.done.set()

    def _fill(
        self,
        keys: Sequence[bytes],
        positions: list[int],
        compute: Callable[[list[int]], Answer],
        answer: Answer,
    ) -> list[int]:
        """Complete ``answer`` at ``positions`` from disk and by ``compute``; returns where that worked."""
        got: list[int] = []
        if self.disk is not None:
            wanted = [keys[position] for position in positions]
            found, written_at = self.disk.read(wanted, answer.vectors, positions)
            got = [position for position, is_found in zip(positions, found) if is_found]
            positions = [position for position, is_found in zip(positions, found) if not is_found]
            self._remember(keys, got, answer.vectors, written_at[found], hits_disk=len(got))
        if not positions:
            return got
        self.count(misses=len(positions))
        computed = compute(positions)
        new = [position for row, position in enumerate(positions) if row not in computed.failed]
        rows = [row for row in range(len(positions)) if row not in computed.failed]
        answer.vectors[new] = computed.vectors[rows]
        answer.failed.update({positions[row]: reason for row, reason in computed.failed.items()})
        answer.is_transient |= computed.is_transient
        answer.cause = answer.cause or computed.cause
        now = self._clock()
        written = 0
        if self.disk is not None:
            written = self.disk.write([keys[position] for position in new], answer.vectors[new], now)
        self._remember(
            keys, new, answer.vectors, np.full(len(new), now), writes=written, failed=len(computed.failed)
        )
        return got + new

    def _remember(
        self,
        keys: Sequence[bytes],
        positions: list[int],
        vectors: Vectors,
        written_at: NDArray[np.float64],
        **more: int,
    ) -> None:
        with self._lock:
            before = self._memory.evictions
            self._memory.put([keys[position] for position in positions], vectors[positions], written_at)
            self._add(evictions=self._memory.evictions - before, **more)

    def clear(self) -> None:
        """Forget all vectors; the counts stay.

        Raises:
            OSError: a file cannot be removed.
        """
        with self._lock:
            self._memory.clear()
        if self.disk is not None:
            self.disk.clear()

    def close(self) -> None:
        """Release memory and files; a later use opens them again."""
        with self._lock:
            self._memory.clear()
        if self.disk is not None:
            self.disk.close()
