"""Chains of providers: the next one answers when one fails, and vectors of two embedders never meet.

What counts as a failure of the provider, so that the next one is asked, while building and at query time
alike: rate limits beyond what it waits for, outages, no network (:class:`~rag_core.errors.TransientError`,
``OSError``), a missing package, key or weights (:class:`~rag_core.errors.ProviderUnavailableError`), and
refusals that are not about the input, such as of a wrong key or an unknown model
(:class:`~rag_core.errors.PermanentError` of any status but 400, 413 and 422). Those three statuses, and a
:class:`~rag_core.errors.ProviderError` of no particular kind, may be the input's fault or the provider's: a
harmless text, sent to the same provider, tells. An input that is refused stays refused: another provider
would only hide it. A budget that is used up ends the call, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

from rag_core.chain import (
    FAILURES,
    Member,
    Passed,
    Pauses,
    close_all,
    is_providers_fault,
    members,
    names_of,
    nobody,
)
from rag_core.embedding import FIRST_TEXT
from rag_core.errors import (
    IdentityMismatchError,
    NoFallbackError,
    PartialEmbedError,
    ProviderError,
    ProviderUnavailableError,
    RagCoreError,
)
from rag_core.factory import get_embedder
from rag_core.fallback_reranker import FallbackReranker
from rag_core.fingerprint import Fingerprint
from rag_core.progress import Progress, listening, tell
from rag_core.protocols import EmbedProvider, Role, Target, Vectors
from rag_core.registry import EMBEDDERS
from rag_core.secrets import redact, safe_repr

__all__ = ["FallbackEmbedder", "FallbackReranker"]

T = TypeVar("T")
log = logging.getLogger("rag_core")


class FallbackEmbedder:
    """An :class:`~rag_core.protocols.EmbedProvider` over a chain; all its vectors have one fingerprint.

    With ``identity``, the fingerprint that a store was built with, only providers of that fingerprint are
    asked. Without it the first one that answers a probe decides, at the first need of a vector or of the
    fingerprint, and for good: if it fails later, only a provider of the same fingerprint stands in for it.
    :meth:`build_with` starts a build again, wholly with the next one.

    A provider that failed is left alone for a growing time (:class:`~rag_core.chain.Pauses`).

    ``name``, ``model``, ``target`` and ``is_local`` are those of the first provider until one has decided.
    """

    def __init__(
        self,
        chain: Sequence[EmbedProvider | str | Member[EmbedProvider]],
        *,
        identity: Fingerprint | None = None,
        pauses: Pauses | None = None,
        on_stand_in: Callable[[EmbedProvider], None] | None = None,
    ) -> None:
        """``chain``: providers, or spec strings of providers that are loaded when their turn comes.
        ``on_stand_in``: told each provider that answers in place of an earlier one, call by call.

        Raises:
            InvalidArgumentError, SpecStringError, UnknownNameError: see :func:`rag_core.chain.members`.
        """
        self._members = members(chain, EMBEDDERS, get_embedder, pauses or Pauses())
        self._identity, self._decided = identity, identity
        self._on_stand_in, self._lock = on_stand_in, threading.Lock()
        self._is_ready = False
        self.name, self.model = "", ""
        self.target: Target = "cpu"
        self.is_local = True
        self._show(next((m for m in self._members if self._why_not(m, identity) is None), self._members[0]))

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of all vectors; reading it decides, see the class.

        Raises:
            NoFallbackError: no provider answered, so that nothing is decided.
        """
        if self._decided is None:
            with self._lock:
                if self._decided is None:
                    member, provider = self._probe(frozenset())
                    self._show(member)
                    self._decided = provider.fingerprint
        return self._decided

    @property
    def dim(self) -> int:
        """Width of a vector; decides."""
        return self.fingerprint.dim

    @property
    def max_tokens(self) -> int:
        """Longest input in tokens, 0 for no limit; decides."""
        return self.fingerprint.max_tokens

    @property
    def is_ready(self) -> bool:
        """Whether a text has been embedded."""
        return self._is_ready

    def is_available(self) -> bool:
        """Whether a provider that may answer is at hand and not left alone just now; asks no service."""
        for member in self._members:
            try:
                if member.breaker.wait_s or self._why_not(member, self._decided, load=True):
                    continue
                if member.get().is_available():
                    return True
            except ProviderUnavailableError:
                continue
        return False

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Embed ``texts``; see :class:`rag_core.protocols.EmbedProvider`.

        Texts that a provider left without a vector because it failed on the way are asked of the next one of
        the same fingerprint.

        Raises:
            NoFallbackError: no provider of the fingerprint can answer now.
            PartialEmbedError: some texts have vectors, the others were refused, or nobody could do them.
            ProviderError: the input was refused.
            BudgetExceededError: the next call might pass the budget.
        """
        identity, passed = self.fingerprint, Passed()
        partial: PartialEmbedError | None = None
        for member, provider in self._candidates(identity, frozenset(), passed):
            try:
                if partial is None:
                    vectors = provider.embed(texts, role=role)
                else:
                    rest = list(partial.failed)
                    vectors = partial.vectors.copy()
                    vectors[rest] = provider.embed([texts[i] for i in rest], role=role)
            except FAILURES as error:
                if isinstance(error, PartialEmbedError):
                    partial = _merged(partial, error)
                if not self._is_to_blame(member, provider, error, role):
                    raise (partial or error) from (partial.__cause__ if partial else error.__cause__)
                self._pause(member, error, passed)
            except RagCoreError as error:  # arguments, budget: nothing was asked
                member.breaker.let_go()
                if partial is not None:
                    raise partial from error
                raise
            else:
                member.breaker.worked()
                self._is_ready = self._is_ready or bool(vectors.any())
                if passed.failed and self._on_stand_in:
                    self._on_stand_in(provider)
                return vectors
        if partial is not None:
            raise partial from partial.__cause__
        raise nobody(self._members, f"no embedding provider can answer for {identity}", passed)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the first provider at hand counts them; see :meth:`at_hand`."""
        return self.at_hand().count_tokens(texts)

    def at_hand(self) -> EmbedProvider:
        """The first provider of the chain that runs here and may answer; it is loaded, and asked nothing.

        Raises:
            NoFallbackError: none.
        """
        passed = Passed()
        for member in self._members:
            try:
                why = self._why_not(member, self._decided, load=True)
                if why is None:
                    return member.get()
            except ProviderUnavailableError as error:
                why = error.reason
            passed.add(member.key, why)
        raise NoFallbackError("no embedding provider of the chain is at hand", passed.reasons)

    def warmup(self, progress: Progress | None = None) -> None:
        """Decide, load and make the first call.

        Raises:
            NoFallbackError: no provider answered; it can be tried again.
        """
        with listening(progress):
            tell("first call", 0, 1)
            self.embed([FIRST_TEXT], role="query")
            tell("ready", 1, 1)

    def choose(self) -> EmbedProvider:
        """The first provider of the chain (of ``identity``, if one was given) that answers a probe now.

        Raises:
            NoFallbackError: none does.
        """
        return self._probe(frozenset())[1]

    def build_with(self, build: Callable[[EmbedProvider], T]) -> T:
        """``build(embedder)`` with an embedder of one fingerprint; again from the start where it fails.

        ``build`` must leave nothing behind when it raises, as :meth:`rag_core.index.Index.build` does. Each
        fingerprint of the chain is tried once.

        Raises:
            NoFallbackError, PartialEmbedError: no provider lasted to the end; the last failure.
            Exception: whatever else ``build`` raises.
        """
        tried: set[str] = set()
        failure: ProviderError | None = None
        while True:
            try:
                provider = self._probe(frozenset(tried))[1]
            except NoFallbackError as error:
                raise (failure or error) from error
            try:
                return build(cast(EmbedProvider, self.for_identity(provider.fingerprint)))
            except (NoFallbackError, PartialEmbedError) as error:
                if is_providers_fault(error) is not True:
                    raise
                failure = error
                tried.add(provider.fingerprint.digest)
                log.warning("a build stopped and starts again with the next provider: %s", redact(str(error)))

    def for_identity(self, identity: Fingerprint) -> FallbackEmbedder:
        """The same chain for a store that was built with ``identity``; it shares providers and pauses.

        Raises:
            IdentityMismatchError: no provider of the chain can have that fingerprint.
        """
        reasons = [(member.key, self._why_not(member, identity)) for member in self._members]
        if all(reason for _, reason in reasons):
            listed = "; ".join(f"{key}: {reason}" for key, reason in reasons)
            raise IdentityMismatchError(
                f"the store was built with {identity}, and no provider of the chain is that: {listed}. "
                f"Add {identity.provider!r} to the chain, or rebuild the store: "
                f"rag rebuild --provider {self._members[0].name}"
            )
        return FallbackEmbedder(self._members, identity=identity, on_stand_in=self._on_stand_in)

    def close(self) -> None:
        """Close the providers that have something to close."""
        close_all(self._members)

    def _show(self, member: Member[EmbedProvider]) -> None:
        """Take over the names of ``member``, without loading it."""
        if (provider := member.made) is not None:
            self.name, self.model = provider.name, provider.model
            self.target, self.is_local = provider.target, provider.is_local
        else:
            self.name, self.model, self.target = names_of(member, EMBEDDERS)
            self.is_local = self.target != "api"
        if self._identity is not None:
            self.name, self.model = self._identity.provider, self._identity.model

    def _why_not(
        self, member: Member[EmbedProvider], identity: Fingerprint | None, load: bool = False
    ) -> str | None:
        """Why ``member`` may not answer for ``identity``; None where it may, as far as is known."""
        if identity is None:
            return None
        if member.made is None:
            if member.name != identity.provider:  # that is known without loading it
                return f"other vectors (provider: {identity.provider!r} / {member.name!r})"
            if not load:
                return None
        theirs = member.get().fingerprint
        return None if theirs == identity else f"other vectors ({'; '.join(identity.differences(theirs))})"

    def _candidates(
        self, identity: Fingerprint | None, tried: frozenset[str], passed: Passed
    ) -> Iterator[tuple[Member[EmbedProvider], EmbedProvider]]:
        """Providers that may be asked now, in turn; ``passed`` is told why the others may not."""
        for member in self._members:
            wait_s = member.breaker.wait_s
            try:
                if why := self._why_not(member, identity, load=not wait_s):
                    passed.add(member.key, why, failed=False)
                elif wait_s or not member.breaker.let_through():
                    passed.add(
                        member.key, f"it failed and is left alone for {member.breaker.wait_s:.3g} s more"
                    )
                elif (provider := member.get()).fingerprint.digest in tried:
                    member.breaker.let_go()
                    passed.add(member.key, "it failed during this build")
                else:
                    yield member, provider
            except ProviderUnavailableError as error:
                member.breaker.let_go()  # to find out again costs nothing
                passed.add(member.key, error.reason)

    def _probe(self, tried: frozenset[str]) -> tuple[Member[EmbedProvider], EmbedProvider]:
        passed = Passed()
        for member, provider in self._candidates(self._identity, tried, passed):
            try:
                provider.embed([FIRST_TEXT], role="document")
            except FAILURES as error:
                self._pause(member, error, passed)
            except RagCoreError:
                member.breaker.let_go()
                raise
            else:
                member.breaker.worked()
                return member, provider
        raise nobody(self._members, "no embedding provider answers", passed)

    def _is_to_blame(
        self, member: Member[EmbedProvider], provider: EmbedProvider, error: Exception, role: Role
    ) -> bool:
        """Whether the provider is, and not the input. Where that is unclear, a harmless text tells."""
        fault = is_providers_fault(error)
        if fault is None:
            try:
                provider.embed([FIRST_TEXT], role=role)
                fault = False
            except FAILURES:
                fault = True
            except RagCoreError:  # the budget: nobody knows, so what the provider said stands
                fault = False
        if not fault:
            member.breaker.worked()
        return fault

    def _pause(self, member: Member[EmbedProvider], error: Exception, passed: Passed) -> None:
        member.pause(error)
        passed.add(member.key, str(error))
        log.warning("%s is left alone for %.3g s: %s", member.key, member.breaker.wait_s, redact(str(error)))

    def __repr__(self) -> str:
        chain = [member.key for member in self._members]
        return safe_repr(self, chain=chain, identity=str(self._decided) if self._decided else "")


def _merged(before: PartialEmbedError | None, later: PartialEmbedError) -> PartialEmbedError:
    """``later`` is the answer for the texts that ``before`` left without a vector."""
    if before is None:
        return later
    rest, vectors = list(before.failed), before.vectors.copy()
    vectors[rest] = later.vectors
    failed = {rest[position]: reason for position, reason in later.failed.items()}
    merged = PartialEmbedError(before.provider, vectors, failed, later.is_transient)
    merged.__cause__ = later.__cause__
    return merged
