"""Any text model of fastembed's catalogue, on a CPU: the model's files found here, the computing done there.

fastembed is always handed a folder, so that it never looks for a model itself: left to do that it asks the
hub before the disk, and without the hub turns to another host, waits and tries again. It pads a whole call
to its longest text, whence texts are sorted by length first; and its ``query_embed`` and ``passage_embed``
put nothing before a text (but for jina-embeddings-v3, which gets the number of its task from them), so that
the words a model was trained with come from :data:`PROMPTS`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from providers._common import count, require
from providers._folders import CONFIG, TOKENIZER, places
from providers._hub import fetch, may_fetch
from providers._rows import TOKEN_BUDGET, batches_by_length
from providers._weights import Weights
from rag_core.devices import usable_cpus
from rag_core.embedding import BaseEmbedder
from rag_core.errors import (
    InvalidArgumentError,
    MissingExtraError,
    ProviderError,
    ProviderUnavailableError,
)
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Vectors
from rag_core.registry import Spec, nearest

__all__ = ["PROMPTS", "SOURCES", "FastembedEmbedder", "Source", "load", "missing"]

_PASSAGES = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query"
_BGE = [
    f"BAAI/bge-{kind}" for kind in ("small-en", "base-en", "small-en-v1.5", "base-en-v1.5", "large-en-v1.5")
]
_ARCTIC = [f"snowflake/snowflake-arctic-embed-{size}" for size in ("xs", "s", "m", "m-long", "l")]
_NOMIC = [f"nomic-ai/nomic-embed-text-{edition}" for edition in ("v1", "v1.5", "v1.5-Q")]
#: Model -> what goes before a query and before a document, from the models' cards; the others want nothing.
PROMPTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys([*_BGE, *_ARCTIC, "mixedbread-ai/mxbai-embed-large-v1"], (_PASSAGES, "")),
    **dict.fromkeys(_NOMIC, ("search_query: ", "search_document: ")),
    "BAAI/bge-small-zh-v1.5": ("为这个句子生成表示以用于检索相关文章：", ""),
    "intfloat/multilingual-e5-large": ("query: ", "passage: "),
    "google/embeddinggemma-300m": ("task: search result | query: ", "title: none | text: "),
    "jinaai/jina-embeddings-v3": (
        "Represent the query for retrieving evidence documents: ",
        "Represent the document for retrieval: ",
    ),
    "Qdrant/stella-en-400M-v5-doc-onnx": (f"{_INSTRUCT}.\nQuery: ", ""),
    **dict.fromkeys(
        ["Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Embedding-0.6B-Q"], (f"{_INSTRUCT}\nQuery:", "")
    ),
}
_TOKENIZER_CONFIG = "tokenizer_config.json"
#: Taken along from the hub where they are there.
_MORE = (CONFIG, "special_tokens_map.json", "preprocessor_config.json")


class Source(NamedTuple):
    """Where a model of the catalogue comes from.

    Attributes:
        model: its name in the catalogue.
        repository: on the hub, ``owner/name``.
        files: what its folder must hold, the weights first.
    """

    model: str
    repository: str
    files: tuple[str, ...]

    def accept(self, folder: Path) -> None:
        """Raise FileNotFoundError with the reason if ``folder`` will not do."""
        if not folder.is_dir():
            raise FileNotFoundError("no such folder")
        for name in self.files:
            if not (folder / name).is_file():
                raise FileNotFoundError(f"no {name}")

    @property
    def is_static(self) -> bool:
        """Whether the model is a table of word vectors, which no onnxruntime computes."""
        return self.files[0].endswith(".safetensors")


#: The catalogue's entries that detection knows without importing fastembed, which takes a second.
SOURCES = {
    model: Source(model, f"Qdrant/{repository}", (file, TOKENIZER, _TOKENIZER_CONFIG))
    for model, repository, file in (
        ("BAAI/bge-small-en-v1.5", "bge-small-en-v1.5-onnx-Q", "model_optimized.onnx"),
        ("BAAI/bge-large-en-v1.5", "bge-large-en-v1.5-onnx", "model.onnx"),
    )
}


def missing(spec: Spec) -> str:
    """Why the weights of ``spec`` are not at hand; empty when they are, or when only loading can tell."""
    source = SOURCES.get(spec.model)
    if source is None:
        return ""
    found, looked = _look(source, "", "", os.environ)
    return "" if found else f"no weights of {spec.model}; looked in: {'; '.join(looked)}"


class FastembedEmbedder(BaseEmbedder):
    """Texts through fastembed's public calls, sorted by length, several calls at once.

    Attributes:
        runtime: library, version, threads, execution provider.
        batch_size: texts of one call; 0, the default, groups by a budget of tokens.
    """

    def __init__(
        self, fingerprint: Fingerprint, model: Any, token_budget: int, threads: int, runtime: dict[str, Any]
    ) -> None:
        """``model``: a ``fastembed.TextEmbedding``; ``token_budget`` 0 gives every text a call of its own."""
        super().__init__(fingerprint)
        self.runtime, self.batch_size = runtime, 0
        self._model, self._token_budget = model, token_budget
        inner = model.model.tokenizer
        self._tokenizer = type(inner).from_str(inner.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._pool = ThreadPoolExecutor(threads, "rag-fastembed")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens as a document, special tokens included, before truncation; 0 for a blank."""
        lengths = self._lengths([self.prepare(text, "document") for text in texts])
        return [length if text.strip() else 0 for text, length in zip(texts, lengths)]

    def _lengths(self, texts: list[str]) -> list[int]:
        return [len(made.ids) for made in self._tokenizer.encode_batch(texts)]

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        lengths = self._lengths(texts)
        if self.max_tokens:
            self.stats.truncated += sum(length > self.max_tokens for length in lengths)
            lengths = [min(length, self.max_tokens) for length in lengths]
        self.stats.tokens += sum(lengths)
        run: Callable[..., Any] = self._model.query_embed if role == "query" else self._model.passage_embed

        def compute(group: list[int]) -> list[Any]:
            return list(run([texts[i] for i in group], batch_size=len(group)))

        groups = batches_by_length(lengths, self._token_budget, batch_size=self.batch_size)
        vectors = np.empty((len(texts), self.dim), np.float32)
        for group, rows in zip(groups, self._pool.map(compute, groups)):
            vectors[group] = rows
        return vectors


def load(
    spec: Spec,
    *,
    path: str = "",
    cache_dir: str = "",
    threads: str | int = "",
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> FastembedEmbedder:
    """A model of the catalogue.

    Args:
        spec: the table's line; its model is the one of the spec string, ``fastembed:owner/name``.
        path: a folder with the model's files, and no other place.
        cache_dir: a cache in the hub's layout to look in and download to; by default fastembed's own
            (``FASTEMBED_CACHE_PATH``) and the hub's are looked in, and the hub's is downloaded to.
        threads: calls at once; by default the CPUs that this process may use.
        query_prompt, document_prompt: put before a text; by default what :data:`PROMPTS` says.

    Raises:
        MissingExtraError: fastembed is not installed.
        InvalidArgumentError: an option is outside what is accepted, or the catalogue has no such model.
        ProviderUnavailableError: no weights at hand, and none to be had; the folders stand in the message.
        ProviderError: fastembed cannot load them.
    """
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    library = require(spec, "fastembed")
    entry = _entry(spec, library)
    source = _source(entry)
    folder = _find(spec, source, path, cache_dir)
    weights = Weights(folder, folder / source.files[0])
    query, document = PROMPTS.get(source.model, ("", ""))
    # a session of one thread a call, several calls at once: see providers._onnx
    options: dict[str, Any] = (
        {} if source.is_static else {"threads": 1, "providers": ["CPUExecutionProvider"]}
    )
    try:
        model = library.TextEmbedding(
            source.model,
            cache_dir=str(folder),
            specific_model_path=str(folder),
            local_files_only=True,
            **options,
        )
    except Exception as error:  # the library's, its tokenizer's and onnxruntime's own
        told = str(error).strip().splitlines() or [type(error).__name__]
        raise ProviderError(f"{spec.name}: fastembed cannot load {folder} ({told[0][:300]})") from error
    truncation = model.model.tokenizer.truncation or {}
    release = version("fastembed")
    fingerprint = Fingerprint(
        provider=spec.name,
        model=source.model,
        revision=weights.digest,
        dim=int(entry["dim"]),
        dtype="stored",
        pooling=f"fastembed {release}",  # its releases have changed the pooling of single models
        query_template=f"{query if query_prompt is None else query_prompt}{{text}}",
        document_template=f"{document if document_prompt is None else document_prompt}{{text}}",
        max_tokens=int(truncation.get("max_length", 0)),
        batching="one text a call" if weights.is_dynamic else "any",
    )
    runtime = {
        "library": "fastembed",
        "version": release,
        "threads": used,
        "execution_provider": "numpy" if source.is_static else "CPUExecutionProvider",
        "file": source.files[0],
    }
    return FastembedEmbedder(fingerprint, model, 0 if weights.is_dynamic else TOKEN_BUDGET, used, runtime)


def _entry(spec: Spec, library: Any) -> dict[str, Any]:
    """The catalogue's entry of ``spec.model``."""
    entries = {str(each["model"]): each for each in library.TextEmbedding.list_supported_models()}
    for name, entry in entries.items():
        if name.lower() == spec.model.lower():
            return dict(entry)
    raise InvalidArgumentError(
        f"{spec.name}: fastembed's catalogue has no model {spec.model!r}{nearest(spec.model, entries)}; any "
        "other ONNX folder: onnx?path=FOLDER"
    )


def _source(entry: Mapping[str, Any]) -> Source:
    weights = (str(entry["model_file"]), *entry.get("additional_files", ()))
    is_static = weights[0].endswith(".safetensors")
    tokenizer = (TOKENIZER,) if is_static else (TOKENIZER, _TOKENIZER_CONFIG)
    return Source(str(entry["model"]), str(entry["sources"].get("hf") or ""), (*weights, *tokenizer))


def _find(spec: Spec, source: Source, path: str, cache_dir: str) -> Path:
    """The folder with the model's files, fetched if it is nowhere and the network may be used."""
    env = dict(os.environ)
    found, looked = _look(source, path, cache_dir, env)
    if found is not None:
        return found
    if not path and may_fetch(source.repository, env):
        if cache_dir:
            env["HF_HUB_CACHE"] = cache_dir
        try:
            folder = fetch(spec, source.repository, (*source.files, *_MORE), looked, env)
        except MissingExtraError:
            raise
        except ProviderUnavailableError as error:  # it names the repository, which few will know
            raise ProviderUnavailableError(
                spec.name, f"no {source.model}: {error.reason}", error.hint
            ) from error
        try:
            source.accept(folder)
        except FileNotFoundError as error:
            looked.append(f"{folder} ({error})")
        else:
            return folder
    hint = f"accepted: path=FOLDER with {', '.join(source.files)}" + ("" if path else ", or RAG_MODELS_DIR")
    raise ProviderUnavailableError(
        spec.name, f"no weights of {source.model}; looked in: {'; '.join(looked)}", hint
    )


def _look(source: Source, path: str, cache_dir: str, env: Mapping[str, str]) -> tuple[Path | None, list[str]]:
    """The first folder on disk that will do, and those that will not with the reason of each."""
    looked = []
    for folder in [Path(path).expanduser()] if path else _folders(source, cache_dir, env):
        try:
            source.accept(folder)
        except FileNotFoundError as error:
            looked.append(f"{folder} ({error})")
        else:
            return folder, looked
    return None, looked


def _folders(source: Source, cache_dir: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Folders that may hold the model: in ``RAG_MODELS_DIR`` under the name of its repository or its own, in
    ``cache_dir``; without one in fastembed's own cache and the hub's.
    """
    own = cache_dir or env.get("FASTEMBED_CACHE_PATH") or str(Path(tempfile.gettempdir()) / "fastembed_cache")
    found = [*places(source.repository, {**env, "HF_HUB_CACHE": own})]
    found.append(Path(own).expanduser() / f"fast-{source.model.rpartition('/')[2]}")  # an older layout of it
    if not cache_dir:
        found += [*places(source.repository, env), *places(source.model, env)]
    yield from dict.fromkeys(found)
