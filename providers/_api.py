"""An embedding service over the one transport; what differs between services is data (:class:`Service`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from providers._answers import Rows, read_rows, value_at
from providers._http import Transport
from providers._many import EmbedCall, Limits, UnfinishedError
from providers._send import is_loopback
from providers._tokens import cut_to, estimate_tokens
from rag_core.embedding import FIRST_TEXT, BaseEmbedder, normalised_rows, without_lone_surrogates
from rag_core.errors import PartialEmbedError, ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Target, Vectors
from rag_core.wire import Send

__all__ = ["LONG", "ApiEmbedder", "Limits", "Model", "Service", "payload"]

#: What becomes of a text longer than the model reads: the service refuses it, or its end is lost.
LONG = ("error", "truncate")


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a service.

    Attributes:
        dim: width of its vectors.
        window: tokens of the longest text; 0 where that is not known.
        dims: widths it can be asked for; empty where it has only one.
        query, document: the text to send, with ``{text}`` in it, for a model whose roles are prefixes.
    """

    dim: int
    window: int = 0
    dims: Sequence[int] = ()
    query: str = "{text}"
    document: str = "{text}"


@dataclass(frozen=True, slots=True)
class Service:
    """The wire format and the limits of one embedding service.

    Attributes:
        url: base of the service's addresses.
        path: of the embedding call.
        key: environment variable of the key; empty for a service without one.
        models: by name; a model that is not here can be asked for with ``dim``.
        limits: of one request.
        texts: field of the request that holds the texts.
        fixed: fields of every request.
        roles: role -> fields; empty for a service that knows no roles.
        long: one of :data:`LONG` -> fields; empty for a service that always refuses a long text.
        width: field that asks for a narrower vector; empty where there is none.
        rows: path of the list of vectors, or of objects with ``index`` and ``embedding``, in the answer.
        used: path of the number of tokens that are paid for.
        base64: fields that ask for base64 of little-endian float32; empty where that is not to be had.
        other_roles: names for the option ``roles`` -> what stands in place of ``roles``.
        is_open: whether any server of this format may stand behind ``base_url``.
        sdk: package of the official client, and ``make(package, base_url, key, timeout_s) -> Send``.
    """

    url: str
    path: str
    key: str
    models: Mapping[str, Model]
    limits: Limits
    texts: str = "input"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    long: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    width: str = "dimensions"
    rows: str = "data"
    used: str = "usage.total_tokens"
    base64: Mapping[str, Any] = field(default_factory=dict)
    other_roles: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    is_open: bool = False
    sdk: tuple[str, Callable[[Any, str, str, float], Send]] | None = None


def payload(
    service: Service,
    model: str,
    texts: Sequence[str],
    role: Role,
    long: str,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON object of one request."""
    return {
        "model": model,
        service.texts: list(texts),
        **service.fixed,
        **service.roles.get(role, {}),
        **service.long.get(long, {}),
        **(extra or {}),
    }


class ApiEmbedder(BaseEmbedder):
    """Texts to vectors through a service.

    Attributes:
        transport: its ``stats`` count requests, retries, waits and latency.
        runtime: library, address, concurrency.
        limits: of one request.
        stats: ``tokens`` are those the service counted; ``truncated`` is an estimate, because no service
            tells.
        has_answered: whether the service has embedded anything since this was made.
        max_texts: texts of a request that the service is known to take.
    """

    target: Target = "api"

    def __init__(
        self,
        fingerprint: Fingerprint,
        service: Service,
        transport: Transport,
        limits: Limits,
        *,
        long: str = LONG[0],
        extra: Mapping[str, Any] | None = None,
        runtime: Mapping[str, Any] | None = None,
    ) -> None:
        """``extra``: fields of every request that an option asked for. ``long``: one of :data:`LONG`."""
        super().__init__(fingerprint)
        self.transport, self.limits, self.runtime = transport, limits, dict(runtime or {})
        self.is_local = is_loopback(transport.base_url)
        self.has_answered, self.max_texts = False, limits.texts
        self._service, self._extra, self._long = service, extra, long
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Embed ``texts``; see :class:`rag_core.protocols.EmbedProvider`.

        Raises:
            PartialEmbedError: some texts have no vector; it holds the vectors of the others.
            TransientError: the service cannot answer now, and no text has a vector.
            PermanentError: the service refuses any such request.
            InvalidArgumentError: as in :meth:`BaseEmbedder.embed`.
        """
        try:
            whole = super().embed(texts, role=role)
            self._count_cut(texts)
            return whole
        except UnfinishedError as unfinished:
            partial = unfinished
        self._count_cut(texts)
        rows = [position for position, text in enumerate(texts) if text.strip()]
        done = [i for i in range(len(rows)) if i not in partial.failed]
        vectors = np.zeros((len(texts), self.dim), np.float32)
        if done:
            good = normalised_rows(partial.vectors[done], len(done), self.dim, self.name)
            vectors[[rows[i] for i in done]] = good
            self._is_ready = True
        failed = {rows[i]: reason for i, reason in partial.failed.items()}
        raise PartialEmbedError(self.name, vectors, failed, partial.is_transient) from partial.cause

    def prepare(self, text: str, role: Role) -> str:
        """The text as sent; cut by the estimate where that was asked for and the service cannot cut."""
        whole = super().prepare(text, role)
        cuts = self._long == "truncate" and self.max_tokens and not self._service.long
        return cut_to(whole, self.max_tokens) if cuts else whole

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens as estimated from characters, rather too many than too few; 0 for a blank."""
        return [estimate_tokens(without_lone_surrogates(text)) if text.strip() else 0 for text in texts]

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def ask(self, texts: Sequence[str], role: Role, max_500: int = 0) -> Rows:
        """One request, its answer read; raises what :meth:`Transport.post` and :func:`read_rows` raise."""
        estimated = sum(map(estimate_tokens, texts))
        answer = self.transport.post(
            self._service.path,
            payload(self._service, self.model, texts, role, self._long, self._extra),
            texts=len(texts),
            tokens=estimated,
            max_500=max_500,
        )
        used = value_at(answer, self._service.used)
        tokens = int(used) if isinstance(used, (int, float)) and used >= 0 else estimated
        self.transport.settle(estimated, tokens)
        with self._lock:
            self.stats.tokens += tokens
            self.has_answered = True
        return read_rows(value_at(answer, self._service.rows), len(texts), self.dim, self.name)

    def works(self, role: Role) -> bool:
        """Whether the service embeds a harmless text when asked now."""
        try:
            return not self.ask([self.prepare(FIRST_TEXT, role)], role, max_500=2).bad
        except ProviderError:
            return False

    def _count_cut(self, texts: Sequence[str]) -> None:
        if self._long == "truncate" and self.max_tokens:
            with self._lock:
                self.stats.truncated += sum(n > self.max_tokens for n in self.count_tokens(texts))

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        return EmbedCall(self, texts, role).run(self.limits, self.transport.concurrency)
