"""Where the command's settings come from: its options, ``rag.toml``, the environment, the index itself."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rag_core.analysis import Analyser
from rag_core.chain import Pauses, members
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.factory import NOTHING_AVAILABLE, SpecString, default_spec, get_embedder
from rag_core.fallback import FallbackReranker
from rag_core.fingerprint import Fingerprint
from rag_core.index_files import write_whole
from rag_core.lazy import LazyReranker
from rag_core.protocols import EmbedProvider, Reranker
from rag_core.registry import EMBEDDERS, RERANKERS, load_plugins
from rag_core.service import EmbeddingService, ServiceBuilder
from rag_core.service_config import ServiceConfig, read_config

__all__ = [
    "Asked",
    "Engine",
    "analyser_for",
    "chain_of",
    "read_settings",
    "record_chain",
    "recorded_chain",
    "reranker_for",
    "search_options",
    "service_for",
]

log = logging.getLogger("rag_core")
FILE = "rag.toml"
#: In the index's folder: the spec strings of the chain that it was built with.
RECORD = "provider.json"


@dataclass(frozen=True, slots=True)
class Engine:
    """Where the vectors of an ingest are made: options ``--engine``, ``--address``, ``--workers`` and
    ``--worker-provider``."""

    name: str = "local"
    address: str = ""
    workers: int = 0
    provider: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """Options that several commands share, as given; empty values stand for the defaults."""

    index: Path
    config: Path | None = None
    provider: str = ""
    reranker: str = ""
    store: str = ""
    chunk_tokens: int | None = None
    overlap: int | None = None
    prune: bool = False
    max_usd: float | None = None
    rerank: bool = True
    search: dict[str, Any] = field(default_factory=dict)
    engine: Engine = Engine()


def read_settings(config: Path | None) -> ServiceConfig:
    """The file that ``--config`` names, else ``rag.toml`` of the current folder, else nothing set.

    Raises:
        InvalidArgumentError: see :func:`rag_core.service_config.read_config`.
    """
    if config is None and not Path(FILE).is_file():
        return ServiceConfig()
    return read_config(config or FILE, needs_provider=False)


def service_for(
    settings: ServiceConfig, provider: str, recorded: Sequence[str] = (), max_usd: float | None = None
) -> EmbeddingService:
    """The embedders to use: ``provider``, else those of the file, else of the environment, else those that
    the index was built with (``recorded``), else the first that is available here.

    The first of them is loaded, so that one that does not fit an index is refused before anything is paid
    for. One that cannot run here stays in the chain, and is named when it is needed.

    Raises:
        InvalidArgumentError, SpecStringError, UnknownNameError: a name or an option that is not accepted.
    """
    chain = chain_of(settings, provider, recorded)
    first: str | EmbedProvider = chain[0]
    members(chain, EMBEDDERS, get_embedder, Pauses())  # refuses names before anything is loaded
    try:
        first = get_embedder(chain[0])
    except ProviderUnavailableError as error:
        if len(chain) == 1 and not recorded:
            raise
        log.info("%s", error)
    limit = settings.max_usd if max_usd is None else max_usd
    config = replace(settings, chain=[first, *chain[1:]], max_usd=limit)
    return ServiceBuilder(config).build()


def chain_of(settings: ServiceConfig, provider: str, recorded: Sequence[str] = ()) -> list[str]:
    """The spec strings that :func:`service_for` uses."""
    if provider:
        return [provider]
    if settings.chain:
        return [str(entry) for entry in settings.chain]
    if recorded and not os.environ.get("RAG_EMBED_PROVIDER", "").strip():
        return list(recorded)
    chosen = default_spec(EMBEDDERS)
    if not chosen:
        log.warning(NOTHING_AVAILABLE)
    return [chosen or "fake"]


def record_chain(folder: Path, chain: Sequence[str]) -> None:
    """Keep the spec strings beside the index, so that a search need not name them again.

    Paths are made absolute; names and passwords in addresses are left out.
    """
    kept = [_absolute(member.label) for member in members(list(chain), EMBEDDERS, get_embedder, Pauses())]
    path = folder / RECORD
    text = json.dumps({"chain": kept}, ensure_ascii=False) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_whole(path, text.encode())


def recorded_chain(folder: Path, identity: Callable[[], Fingerprint]) -> list[str]:
    """The spec strings that the index in ``folder`` was built with; of an index that another program built,
    the provider that its identity names, which is only asked for then."""
    try:
        chain = json.loads((folder / RECORD).read_text(encoding="utf-8"))["chain"]
        if chain and all(isinstance(text, str) for text in chain):
            return list(chain)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    load_plugins()
    built = identity()
    models = [spec.model for spec in EMBEDDERS if spec.name == built.provider]
    is_default = not models or built.model in models
    return [built.provider if is_default else f"{built.provider}:{built.model}"]


def reranker_for(
    settings: ServiceConfig,
    name: str,
    corpus: Callable[[], Sequence[str]] = tuple,
) -> tuple[Reranker | None, list[str]]:
    """The reranker to use, loaded at its first call, and what the user should know about it.

    ``name``, else those of the file, else of the environment, else the first that is available without being
    named; None where there is nothing but the passthrough.

    Args:
        corpus: gives the languages of the documents; asked where the reranker is not made for all.

    Raises:
        SpecStringError, UnknownNameError, ProviderUnavailableError: see :func:`rag_core.factory.resolve`.
    """
    found = default_spec(RERANKERS) if not (name or settings.rerankers) else ""
    names = [name] if name else settings.rerankers or ([found] if found else [])
    if not names or (not name and SpecString.parse(names[0]).name == "noop"):
        return None, []
    reranker: Reranker = LazyReranker(names[0]) if len(names) == 1 else FallbackReranker(names)
    specs = RERANKERS.find(SpecString.parse(names[0]).name)
    made_for = specs[0].languages
    warnings = _language_warnings(names[0], made_for, corpus()) if made_for else []
    return reranker, warnings


def search_options(settings: ServiceConfig, **given: Any) -> dict[str, Any]:
    """Arguments of :meth:`rag_core.index.Index.hybrid_search`: those given that are not None, else the
    file's, else nothing, so that the library's own defaults hold."""
    from_file = settings.search | {f"rerank_{name}": value for name, value in settings.rerank.items()}
    return from_file | {name: value for name, value in given.items() if value is not None}


def analyser_for(settings: ServiceConfig) -> Analyser | None:
    """How a new index reads words, where the file says it; None leaves the library's own way.

    Raises:
        InvalidArgumentError: neither ``language`` nor ``raw``, or ``raw`` with languages.
    """
    kind, languages = settings.index.get("analyser", "language"), settings.index.get("languages")
    if kind not in ("language", "raw"):
        raise InvalidArgumentError(f"[index] analyser is {kind!r}; accepted: language, raw")
    if kind == "raw" and languages:
        raise InvalidArgumentError('[index] analyser = "raw" knows no languages; leave one of the two out')
    if kind == "raw":
        return Analyser.raw()
    return Analyser.for_languages(languages) if languages else None


def _language_warnings(name: str, languages: Sequence[str], corpus: Sequence[str]) -> list[str]:
    foreign = [language for language in corpus if language not in languages]
    if not foreign:
        return []
    return [
        f"reranker {name} is made for {', '.join(languages)}; the documents also have {', '.join(foreign)}, "
        "where it loses precision"
    ]


def _absolute(text: str) -> str:
    parsed = SpecString.parse(text)
    path = parsed.options.get("path", "")
    if not path or not Path(path).exists():
        return text
    return str(replace(parsed, options={**parsed.options, "path": str(Path(path).absolute())}))
