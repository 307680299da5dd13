"""What every embedding provider does the same way, written once: roles, blanks, shapes, norms."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import numpy as np

from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.progress import Progress, listening, tell
from rag_core.protocols import Role, Target, Vectors
from rag_core.secrets import safe_repr

__all__ = [
    "FIRST_TEXT",
    "BaseEmbedder",
    "EmbedStats",
    "check_call",
    "normalised_rows",
    "templated",
    "without_lone_surrogates",
]

ROLES: tuple[str, ...] = get_args(Role)
#: The text of a warm-up: its call makes a library allocate, compile and open its threads.
FIRST_TEXT = "first call"


@dataclass(slots=True)
class EmbedStats:
    """Counts since the provider was made: texts given, of these blank and truncated, tokens sent."""

    texts: int = 0
    blank: int = 0
    truncated: int = 0
    tokens: int = 0


class BaseEmbedder(ABC):
    """Base of the shipped providers; a subclass writes :meth:`_encode` and :meth:`count_tokens`.

    The text that reaches the model is the text given, with the role's template applied and lone
    surrogates (which no encoder accepts) replaced by U+FFFD; nothing else is altered.
    """

    target: Target = "cpu"
    is_local: bool = True

    def __init__(self, fingerprint: Fingerprint) -> None:
        self._fingerprint = fingerprint
        self.name, self.model, self.dim = fingerprint.provider, fingerprint.model, fingerprint.dim
        self.max_tokens = fingerprint.max_tokens
        self.stats = EmbedStats()
        self._is_ready = False

    @property
    def is_ready(self) -> bool:
        """Whether the model has answered once, so that the next call is not its slow first one."""
        return self._is_ready

    def warmup(self, progress: Progress | None = None) -> None:
        """Make the first call; ``progress(stage, done, total)`` is told before and after.

        Raises:
            ProviderError: the call failed; it can be tried again.
        """
        with listening(progress):
            tell("first call", 0, 1)
            self.embed([FIRST_TEXT], role="query")
            tell("ready", 1, 1)

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors."""
        return self._fingerprint

    def is_available(self) -> bool:
        """True: a provider that was made has what it needs."""
        return True

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Embed ``texts`` as ``role``; see :class:`rag_core.protocols.EmbedProvider`.

        Raises:
            InvalidArgumentError: ``role`` is unknown, or ``texts`` is one string or holds something else.
            ProviderError: the model answered with another shape or with a row that has no direction.
        """
        check_call(self.name, texts, role)
        rows = [position for position, text in enumerate(texts) if text.strip()]
        self.stats.texts += len(texts)
        self.stats.blank += len(texts) - len(rows)
        vectors = np.zeros((len(texts), self.dim), np.float32)
        if rows:
            prepared = [self.prepare(texts[row], role) for row in rows]
            vectors[rows] = normalised_rows(self._encode(prepared, role), len(rows), self.dim, self.name)
            self._is_ready = True
        return vectors

    def with_templates(self, query: str, document: str) -> Self:
        """A copy on the same model that sends texts in other templates, ``{text}`` in place of the text.

        Its fingerprint says so, and its counts begin at 0. For measuring what a model's prompts are worth.

        Raises:
            InvalidArgumentError: a template lacks ``{text}``; or the role is no part of the text here.
        """
        own = (self._fingerprint.query_template, self._fingerprint.document_template)
        for template in (query, document):
            if "{text}" not in template:
                raise InvalidArgumentError(
                    f"{self.name}: template {template!r}; accepted: one with {{text}} in it"
                )
        if not all("{text}" in template for template in own):
            raise InvalidArgumentError(f"{self.name} is told a text's role beside it ({own[0]})")
        made = copy.copy(self)
        made._fingerprint = replace(self._fingerprint, query_template=query, document_template=document)
        made.stats = type(self.stats)()
        return made

    def prepare(self, text: str, role: Role) -> str:
        """The text as sent to the model."""
        return templated(self._fingerprint, text, role)

    @abstractmethod
    def _encode(self, texts: list[str], role: Role) -> Any:
        """Vectors of non-blank, prepared ``texts``: an array of shape (n, dim), on host or device."""

    @abstractmethod
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model would see it, before truncation."""

    def __repr__(self) -> str:
        return safe_repr(self, name=self.name, model=self.model, target=self.target, dim=self.dim)


def check_call(name: str, texts: Sequence[str], role: str) -> None:
    """Refuse what :meth:`rag_core.protocols.EmbedProvider.embed` does not take.

    Raises:
        InvalidArgumentError: ``role`` is unknown, or ``texts`` is one string or holds something else.
    """
    if role not in ROLES:
        raise InvalidArgumentError(f"{name}: role is {role!r}; accepted: {' or '.join(ROLES)}")
    if isinstance(texts, (str, bytes)):
        raise InvalidArgumentError(f"{name}: texts is one {type(texts).__name__}; accepted: a list of str")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise InvalidArgumentError(f"{name}: text {position} is of type {kind}; accepted: str")


def templated(fingerprint: Fingerprint, text: str, role: Role) -> str:
    """``text`` in the role's template, lone surrogates replaced; as it is where the role is a parameter."""
    template = fingerprint.query_template if role == "query" else fingerprint.document_template
    clean = without_lone_surrogates(text)
    return template.replace("{text}", clean) if "{text}" in template else clean


def without_lone_surrogates(text: str) -> str:
    """``text`` with U+FFFD for each half of a surrogate pair that stands alone; whole pairs are joined."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def normalised_rows(raw: Any, count: int, dim: int, name: str) -> Vectors:
    """``raw`` on the host as float32 ``(count, dim)`` with rows of length 1.

    Raises:
        ProviderError: another shape, or a row that is not finite or is all zeros.
    """
    vectors = np.ascontiguousarray(raw, dtype=np.float32)
    if vectors.shape != (count, dim):
        raise ProviderError(
            f"{name} answered shape {vectors.shape} for {count} texts; expected {(count, dim)}"
        )
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    bad = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if bad.size:
        raise ProviderError(
            f"{name}: the vector of text {bad[0]} has length {norms[bad[0]]}; expected above 0"
        )
    return np.asarray(vectors / norms[:, None], dtype=np.float32)
