"""The settings of an embedding service as a ``rag.toml``, and the check that each of them means something.

::

    [embedding]
    provider = "cohere"                    # a spec string: name[:model][@target][?option=value&…]
    fallback = ["e5-small@cpu"]            # one, or a list, in order; optional

    [cache]                                # optional: without it vectors are kept in memory only
    dir = "cache"                          # from the folder of this file; ~ is the home folder
    max_bytes = 2_000_000_000              # of the files on disk
    memory_bytes = 64_000_000
    ttl_s = 2_592_000                      # seconds for which a vector is served; without it, for ever
    bypass = false                         # true: no cache

    [limits]                               # optional
    max_usd = 5.0                          # of all calls of the service together
    first_pause_s = 5                      # how long a provider that failed is left alone,
    last_pause_s = 300                     # and how long at most

    [prices]                               # optional: USD for 1,000,000 tokens, in place of the table's
    "openai:text-embedding-3-small" = 0.02

    # the other tables are for the rag command, and an embedding service passes them over
    [rerank]
    provider = "minilm-l12@cpu"            # a spec string
    fallback = ["noop"]                    # one, or a list, in order; optional
    mix = "scores"                         # or "ranks": fuse the reranker's order with the one before it
    timeout_s = 10                         # then the fused order stands, with a warning
    template = "{title} ({date})\\n{text}"  # what the reranker reads; fields of the metadata

    [index]                                # how `rag ingest` builds one
    store = "flat"
    analyser = "language"                  # how BM25 reads words; or "raw": no stems, no stop words
    languages = ["en", "pt"]               # of the texts, for stems and stop words; without it en, es, pt
    chunk_tokens = 256
    overlap = 32

    [search]
    top_k = 10
    pipeline = "hybrid"                    # or one leg alone: "vector", "bm25"
    fusion = "rrf"                         # or "relative", "zscore", "convex", "adaptive"
    weights = [2, 1]                       # of the legs, vectors then BM25; without it, equal
    candidate_pool = 50                    # documents that each leg gives to the fusion
    rrf_k = 60.0
    score_threshold = 0.2                  # hits below it are dropped; without it, none

Keys of services are read from the environment and never stand here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_core.errors import InvalidArgumentError
from rag_core.registry import nearest

__all__ = ["TABLES", "ServiceConfig", "read_config"]


class NUMBERS(list[float]):
    """Stands in :data:`TABLES` for a list of numbers, where ``list`` stands for one of texts."""


#: Table -> key -> types of its value. ``prices`` takes any key.
TABLES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "embedding": {"provider": (str,), "fallback": (str, list)},
    "cache": {
        "dir": (str,),
        "max_bytes": (int,),
        "memory_bytes": (int,),
        "ttl_s": (int, float),
        "bypass": (bool,),
    },
    "limits": {"max_usd": (int, float), "first_pause_s": (int, float), "last_pause_s": (int, float)},
    "prices": {},
    "rerank": {
        "provider": (str,),
        "fallback": (str, list),
        "mix": (str,),
        "timeout_s": (int, float),
        "template": (str,),
    },
    "index": {
        "store": (str,),
        "analyser": (str,),
        "languages": (list,),
        "chunk_tokens": (int,),
        "overlap": (int,),
    },
    "search": {
        "top_k": (int,),
        "pipeline": (str,),
        "fusion": (str,),
        "weights": (NUMBERS,),
        "candidate_pool": (int,),
        "rrf_k": (int, float),
        "score_threshold": (int, float),
    },
}
_SAID = {
    str: "text",
    list: "a list of texts",
    NUMBERS: "a list of numbers",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


@dataclass(slots=True)
class ServiceConfig:
    """What a service is made of.

    Attributes:
        chain: spec strings or embedders; the first is the provider, the others its fallback.
        cache: options of :class:`rag_core.cache.CachedEmbedder`.
        max_usd: budget; None for none.
        pauses: options of :class:`rag_core.chain.Pauses`.
        prices: ``provider:model`` -> USD for 1,000,000 tokens.
        rerankers: spec strings; the first is the reranker, the others its fallback; empty where the file
            names none.
        rerank: ``mix``, ``timeout_s`` and ``template`` of ``[rerank]``, where they stand.
        index: ``[index]`` as it stands.
        search: ``[search]`` as it stands.
    """

    chain: list[Any] = field(default_factory=list)
    cache: dict[str, Any] = field(default_factory=dict)
    max_usd: float | None = None
    pauses: dict[str, Any] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)
    rerankers: list[str] = field(default_factory=list)
    rerank: dict[str, Any] = field(default_factory=dict)
    index: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)


def read_config(path: str | Path, *, needs_provider: bool = True) -> ServiceConfig:
    """Read a ``rag.toml``.

    Args:
        needs_provider: False accepts a file that names no embedding provider, because another place may.

    Raises:
        InvalidArgumentError: there is no such file, it is not TOML, or a table, a key or a value is not
            known; the message names the file and the nearest names.
    """
    path = Path(path)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} is not TOML: {error}") from error
    _check(path, found)
    embedding, rerank = found.get("embedding", {}), dict(found.get("rerank", {}))
    chain, rerankers = _chain(embedding), _chain(rerank)
    if "provider" not in embedding and (needs_provider or chain):
        raise InvalidArgumentError(
            f'{path} names no provider; write: [embedding] provider = "e5-small" (run: bench providers)'
        )
    if rerankers and "provider" not in rerank:
        raise InvalidArgumentError(
            f'{path} names a fallback and no reranker; write: [rerank] provider = "minilm-l12"'
        )
    cache = dict(found.get("cache", {}))
    if "dir" in cache:
        cache["folder"] = path.absolute().parent / Path(cache.pop("dir")).expanduser()
    if "max_bytes" in cache:
        cache["disk_bytes"] = cache.pop("max_bytes")
    limits = found.get("limits", {})
    return ServiceConfig(
        chain=chain,
        cache=cache,
        max_usd=limits.get("max_usd"),
        pauses={
            name: limits[key]
            for key, name in (("first_pause_s", "first_s"), ("last_pause_s", "last_s"))
            if key in limits
        },
        prices=dict(found.get("prices", {})),
        rerankers=rerankers,
        rerank={key: rerank[key] for key in ("mix", "timeout_s", "template") if key in rerank},
        index=dict(found.get("index", {})),
        search=dict(found.get("search", {})),
    )


def _chain(table: Mapping[str, Any]) -> list[str]:
    """``provider``, then ``fallback``, of those that stand in ``table``."""
    fallback = table.get("fallback", [])
    first = [table["provider"]] if "provider" in table else []
    return [*first, *([fallback] if isinstance(fallback, str) else fallback)]


def _check(path: Path, found: Mapping[str, Any]) -> None:
    for table, values in found.items():
        if table not in TABLES:
            homes = [f"[{name}]" for name, keys in TABLES.items() if table in keys]
            hint = f"; it belongs in {homes[0]}" if homes else nearest(table, TABLES)
            raise InvalidArgumentError(f"{path}: unknown table or key {table!r}{hint}")
        if not isinstance(values, dict):
            raise InvalidArgumentError(f"{path}: {table} is {values!r}; accepted: a table, [{table}]")
        known = TABLES[table]
        for key, value in values.items():
            if known and key not in known:
                raise InvalidArgumentError(f"{path}: unknown key {key!r} in [{table}]{nearest(key, known)}")
            types = known.get(key, (int, float))
            if not any(_fits(value, kind) for kind in types):
                accepted = " or ".join(_SAID[kind] for kind in types if kind is not int or float not in types)
                raise InvalidArgumentError(f"{path}: [{table}] {key} is {value!r}; accepted: {accepted}")


def _fits(value: Any, kind: type) -> bool:
    if type(value) is not list:
        return type(value) is kind
    if kind is NUMBERS:
        return all(type(item) in (int, float) for item in value)
    return kind is list and all(isinstance(item, str) for item in value)
