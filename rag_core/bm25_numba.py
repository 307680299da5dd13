"""BM25's kernel compiled by numba (extra ``fast``): once a machine, then read from a cache folder.

Importing numba and reading the compiled kernel take about half a second of each process, compiling several
seconds once, so that it pays where one process answers many queries on a large index.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from rag_core import bm25_kernel
from rag_core.bm25_postings import NOTHING, Array, Postings
from rag_core.errors import MissingExtraError
from rag_core.folders import cache_folder
from rag_core.packed_find import home_mask

__all__ = ["NumbaScorer", "compiled"]

log = logging.getLogger(__name__)
EVERY_ROW = np.zeros(0, bool)
EVERY_ROW.flags.writeable = False
Kernel = Callable[..., tuple[Array, Array]]
_compiling = threading.Lock()


def _numba() -> ModuleType:
    try:
        import numba
        import numba.extending
    except ImportError as error:
        raise MissingExtraError("bm25?engine=numba", "numba", "fast") from error
    return numba  # type: ignore[no-any-return]


@cache
def _compile(folder: str) -> Kernel:
    numba = _numba()
    for helper in bm25_kernel.HELPERS:
        numba.extending.register_jitable(helper)
    of, number = numba.types, numba.types.int64
    mapped = (of.int64, of.int32, of.float32, of.float32, of.uint8, of.int64, of.int32, of.uint8, of.boolean)
    read_only = [of.Array(kind, 1, "C", readonly=True) for kind in mapped]
    scratch = [of.Array(kind, 1, "C") for kind in (of.float64, of.int32)]
    signature = (*read_only, *scratch, number, number, number)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder  # read when the cache is set up, by this function alone
    try:
        return numba.njit(signature, cache=True, nogil=True)(bm25_kernel.best_documents)  # type: ignore[no-any-return]
    except (OSError, RuntimeError) as error:
        log.warning("BM25's kernel is compiled again at every start: %s; set RAG_CACHE_DIR", error)
        return numba.njit(signature, nogil=True)(bm25_kernel.best_documents)  # type: ignore[no-any-return]
    finally:
        numba.config.CACHE_DIR = before


def compiled() -> Kernel:
    """:func:`rag_core.bm25_kernel.best_documents`, compiled; at most once a process.

    It is kept on disk in ``NUMBA_CACHE_DIR``, else in the folder ``numba`` of ``RAG_CACHE_DIR``; where that
    cannot be written, beside the source. Where nothing can be, a warning says so and every process compiles.

    Raises:
        MissingExtraError: numba is not installed.
    """
    folder = os.environ.get("NUMBA_CACHE_DIR", "").strip() or str(cache_folder() / "numba")
    with _compiling:
        return _compile(folder)


class NumbaScorer:
    """The blocked kernel on the postings of one index; compiled, or read from the cache, when this is made.

    Args:
        postings: of an index.
        kernel: :func:`rag_core.bm25_kernel.best_documents`, compiled or not; by default :func:`compiled`.

    Raises:
        MissingExtraError: numba is not installed.
    """

    engine = "numba"

    def __init__(self, postings: Postings, kernel: Kernel | None = None) -> None:
        self.postings = postings
        self._kernel = compiled() if kernel is None else kernel
        # One signature, of arrays that are only read: those of a mapped index are.
        terms = postings.terms.hashed()
        self._arrays = tuple(_read_only(array) for array in (*postings.arrays.values(), *terms.arrays))
        self._numbers = home_mask(len(terms)), postings.n_rows
        self._window = max(1, min(bm25_kernel.WINDOW, postings.n_rows))
        # What each thread that searches at the same time works in: taking and giving back are atomic.
        self._idle: list[tuple[Array, Array]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return NumbaScorer, (self.postings,)

    def best(self, terms: Sequence[str], k: int, allowed: Array | None) -> tuple[Array, Array]:
        """As of :class:`rag_core.bm25_postings.Scorer`."""
        if not terms:
            return NOTHING
        words = np.frombuffer("\0".join(terms).encode("utf-8", "surrogatepass"), np.uint8)
        mask = EVERY_ROW if allowed is None else _read_only(allowed)
        try:
            scratch = self._idle.pop()
        except IndexError:
            scratch = np.zeros(self._window, np.float64), np.empty(self._window + 1, np.int32)
        found = self._kernel(*self._arrays, words, mask, *scratch, *self._numbers, k)
        self._idle.append(scratch)
        return found


def _read_only(array: Array) -> Array:
    view = array[:]
    view.flags.writeable = False
    return view
