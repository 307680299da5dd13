"""An index opened to be asked: by one `rag search`, or by the clients of a server."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from rag_core.app.languages import languages_of
from rag_core.app.opening import open_index, recorded
from rag_core.app.settings import Asked, read_settings, reranker_for, search_options, service_for
from rag_core.app.where import parse_where
from rag_core.embedding import FIRST_TEXT
from rag_core.errors import InvalidArgumentError, RagCoreError, StoreError
from rag_core.index import SearchResult
from rag_core.progress import Progress
from rag_core.protocols import Reranker
from rag_core.secrets import redact

__all__ = ["Searcher", "mcp_server", "search", "serve"]

Say = Callable[[str], None]
#: Of the MCP server: a language model waits for the answer.
RERANK_TIMEOUT_S = 10.0


class Searcher:
    """An index opened to be asked, once or by a server: its embedders, its reranker, its settings.

    Attributes:
        warnings: what holds for every answer; part of each.
    """

    def __init__(self, asked: Asked, rerank_timeout_s: float | None = None) -> None:
        """Opens the index, and loads the embedder to see that it fits; nothing is embedded.

        ``rerank_timeout_s`` holds where neither the options nor the file set one; None for no limit.

        Raises:
            StoreError: no index there, or it is damaged.
            IdentityMismatchError: it was built with another embedder.
            InvalidArgumentError, UnknownNameError, ProviderUnavailableError: a setting or a name.
        """
        settings = read_settings(asked.config)
        limits = () if rerank_timeout_s is None else (("rerank_timeout_s", rerank_timeout_s),)
        self._options = dict(limits) | search_options(settings, **asked.search)
        self.service = service_for(settings, asked.provider, recorded(asked.index))
        self._lock = threading.Lock()
        try:
            self.index = open_index(asked.index, self.service)
            self.reranker, self.warnings = (
                reranker_for(settings, asked.reranker, lambda: languages_of(self.index.documents.values()))
                if asked.rerank
                else (None, [])
            )
        except BaseException:
            self.service.close()
            raise

    def warmup(self, progress: Progress | None, say: Say) -> None:
        """Load the models and make their first calls. An embedder that does not answer is no error: the index
        answers by words alone and says so; a reranker that does not load is told and tried again."""
        for model in (self.index.embedder, self.reranker):
            try:
                if (warm := getattr(model, "warmup", None)) is not None:
                    warm(progress)
                elif isinstance(model, Reranker):  # a chain: the first that answers
                    model.rerank(FIRST_TEXT, [FIRST_TEXT])
            except RagCoreError as error:
                say(f"{getattr(model, 'name', 'a model')} is not ready: {redact(str(error))}")

    def __call__(
        self, query: str, top_k: int | None = None, rerank: bool = True, where: dict[str, Any] | None = None
    ) -> SearchResult:
        """Search the newest version of the index; see :meth:`rag_core.index.Index.hybrid_search`."""
        with self._lock:
            self.index.refresh()
        options = self._options if top_k is None else {**self._options, "top_k": top_k}
        found = self.index.hybrid_search(
            query, rerank=rerank and self.reranker is not None, reranker=self.reranker, where=where, **options
        )
        told = self.warnings if rerank else []
        return replace(found, warnings=(*told, *found.warnings))

    def close(self) -> None:
        """Release the index and the models."""
        self.index.close()
        self.service.close()


def search(query: str, clauses: Sequence[str], asked: Asked) -> SearchResult:
    """One question; ``clauses`` are filters as they are typed.

    Raises:
        InvalidArgumentError: a blank query, a bad filter or number.
        RagCoreError: as of :class:`Searcher`.
    """
    if not query.strip():
        raise InvalidArgumentError("the query is blank; accepted: a question or key words")
    top_k = asked.search.get("top_k")
    if top_k is not None and top_k < 1:
        raise InvalidArgumentError(f"--top-k is {top_k}; accepted: a whole number from 1")
    where = parse_where(clauses)
    with closing(Searcher(asked)) as searcher:
        return searcher(query, rerank=asked.rerank, where=where)


def mcp_server(asked: Asked, say: Say, progress: Progress) -> Any:
    """The server of :mod:`rag_core.app.mcp_server` over a warm index, ready to ``run()``.

    Nothing may reach standard output but the protocol: while the models load, what they print there goes to
    standard error. The SDK sees to that from then on.

    Raises:
        MissingExtraError: the SDK is not installed.
        RagCoreError: as of :class:`Searcher`.
    """
    from rag_core.app.mcp_server import make_server

    make_server(_unopened)  # a missing package is told before a model is loaded
    with _stdout_to_stderr():
        searcher = Searcher(asked, RERANK_TIMEOUT_S)
        searcher.warmup(progress, say)
    return make_server(searcher)


def serve(server: Any) -> None:
    """Run ``server`` until its client hangs up. What is printed meanwhile goes where the SDK has turned file
    descriptor 1 to, line by line: were it kept in a buffer, it would reach standard output at the end."""
    getattr(sys.stdout, "reconfigure", lambda **options: None)(line_buffering=True)
    server.run()


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """For native code as well, which does not ask ``sys.stdout``."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _unopened(*args: Any) -> SearchResult:
    raise StoreError("the index is not open")
