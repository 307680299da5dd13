"""What the commands do between parsing and printing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from rag_core.app.engines import check_engine, engine_for
from rag_core.app.opening import open_index, recorded
from rag_core.app.settings import (
    Asked,
    analyser_for,
    chain_of,
    read_settings,
    record_chain,
    service_for,
)
from rag_core.chunking import check_limits
from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.index import Index
from rag_core.index_report import IngestReport
from rag_core.progress import Progress
from rag_core.protocols import EmbedProvider
from rag_core.reading import SUFFIXES
from rag_core.recording import replay_from
from rag_core.service import EmbeddingService
from rag_core.stores import check_store

__all__ = ["ingest", "rebuild", "stats"]

Say = Callable[[str], None]
#: Texts for a paid provider beyond which the estimate is shown before they are sent.
MANY_TEXTS = 1_000
DEFAULT_STORE, CHUNK_TOKENS, OVERLAP = "flat", 256, 32


def ingest(source: Path, asked: Asked, say: Say, progress: Progress) -> IngestReport:
    """Bring the index up to date with ``source``, a folder or a file; a new one is made where there is none.

    ``say`` is told the estimate before more than 1,000 texts go to a paid provider.

    Raises:
        InvalidArgumentError: nothing there that is read; nothing is made then. Also see the library.
        StoreError, ProviderError, BudgetExceededError: see the library.
        IdentityMismatchError: the index was built with another embedder.
    """
    if not source.exists():
        raise InvalidArgumentError(f"{source} does not exist; accepted: a folder of documents, or one file")
    if not _holds_files(source):
        raise InvalidArgumentError(
            f"{source} holds nothing that is read; accepted: files of type {', '.join(SUFFIXES)}"
        )
    settings = read_settings(asked.config)
    check_engine(asked, settings.max_usd)
    reading = {
        "prune": asked.prune,
        "max_tokens": _first(asked.chunk_tokens, settings.index.get("chunk_tokens"), CHUNK_TOKENS),
        "overlap": _first(asked.overlap, settings.index.get("overlap"), OVERLAP),
    }
    analyser = analyser_for(settings)
    store = asked.store or settings.index.get("store", DEFAULT_STORE)
    _check(reading["max_tokens"], reading["overlap"])
    is_new = not Index.is_index(asked.index)
    if is_new:
        check_store(store)  # before anything is made or paid for
    built_with = [] if is_new else recorded(asked.index)
    chain = chain_of(settings, asked.provider, built_with)

    def bring(index: Index, embedder: EmbedProvider) -> IngestReport:
        if _is_paid(embedder):
            _estimate(index.plan(source, **reading).texts, service, say)
        with engine_for(asked, chain) as engine:
            return index.ingest(source, progress=progress, engine=engine, **reading)

    begun: list[EmbedProvider] = []

    def build(embedder: EmbedProvider) -> IngestReport:
        if begun:  # by the provider before, which failed on the way
            shutil.rmtree(asked.index)
        with closing(Index.create(asked.index, embedder, store=store, analyser=analyser)) as index:
            begun.append(embedder)
            record_chain(asked.index, chain)
            return bring(index, embedder)

    with service_for(settings, asked.provider, built_with, asked.max_usd) as service:
        if is_new:
            return service.build_with(build)
        with closing(open_index(asked.index, service)) as index:
            if asked.store and asked.store != index.store_name:
                raise StoreError(
                    f"{asked.index} is a {index.store_name!r} store, and --store is {asked.store!r}; "
                    f"to change it: rag rebuild --index {asked.index} --store {asked.store}"
                )
            return bring(index, cast(EmbedProvider, service))


def rebuild(asked: Asked, say: Say, progress: Progress) -> IngestReport:
    """Embed the texts of the index again, with another provider or into another store; until all is done the
    old version answers.

    Raises:
        StoreError: no index there.
        ProviderError, BudgetExceededError: see the library; the old version stays.
    """
    settings = read_settings(asked.config)
    built_with = recorded(asked.index)
    chain = chain_of(settings, asked.provider, built_with)
    with (
        service_for(settings, asked.provider, built_with, asked.max_usd) as service,
        closing(Index.open(asked.index, check_store=False)) as index,
    ):
        if _is_paid(cast(EmbedProvider, service)):
            texts = [document.indexed_text for document in index.documents.values() if not document.is_empty]
            _estimate(texts, service, say)
        store = asked.store or None
        report = service.build_with(lambda held: index.rebuild(held, store=store, progress=progress))
        record_chain(asked.index, chain)
        return report


def stats(asked: Asked) -> dict[str, Any]:
    """Plain JSON values about the index; loads no model."""
    chain = recorded(asked.index)
    with closing(Index.open(asked.index)) as index:
        found = index.stats()
        return {**found, "provider": chain}


def _holds_files(source: Path) -> bool:
    if source.is_file():
        return source.suffix.lower() in SUFFIXES
    found = (Path(name) for _, _, names in os.walk(source) for name in names)
    return any(file.suffix.lower() in SUFFIXES for file in found)


def _check(chunk_tokens: int, overlap: int) -> None:
    try:
        check_limits(chunk_tokens, overlap)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(str(error).replace("max_tokens", "chunk_tokens")) from error


def _is_paid(embedder: EmbedProvider) -> bool:
    return not embedder.is_local and not replay_from()


def _estimate(texts: Sequence[str], service: EmbeddingService, say: Say) -> None:
    estimate = service.cost_estimate(texts)
    limit = service.budget.max_usd if service.budget else None
    is_above = limit is not None and estimate.usd is not None and estimate.usd > limit
    if len(texts) > MANY_TEXTS or is_above:
        say(f"{len(texts):,} texts for {service.name}: {estimate}")
    if is_above:
        say(f"that is above the limit of {limit:g} USD: it will stop there, and keep what is done")


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
