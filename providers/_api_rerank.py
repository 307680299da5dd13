"""A reranking service over the one transport; what differs between services is data."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from providers._answers import value_at
from providers._http import BatchRefusedError, Transport
from providers._many import Limits, batches
from providers._send import is_loopback
from providers._tokens import estimate_tokens
from providers._wiring import Options, Wiring
from rag_core.embedding import without_lone_surrogates
from rag_core.errors import InvalidArgumentError, PermanentError
from rag_core.protocols import Target
from rag_core.registry import Spec
from rag_core.reranking import RerankStats
from rag_core.secrets import safe_repr
from rag_core.wire import Send

__all__ = ["BLANK_SCORE", "ApiRerankStats", "ApiReranker", "RerankService", "load_reranker", "read_scores"]

#: The score of a blank candidate, and of all candidates of a blank query, none of which is sent: below every
#: score of a service.
BLANK_SCORE = -1.0e6
#: How often candidates are asked again whose score was missing. A fault of the moment is cured by the first
#: time nearly always.
ASKED_AGAIN = 2
#: What becomes of a candidate longer than the model reads: its end is lost, or the service refuses it.
LONG = ("truncate", "error")


@dataclass(frozen=True, slots=True)
class RerankService:
    """The wire format and the limits of one reranking service.

    Attributes:
        url: base of the service's addresses.
        path: of the reranking call.
        key: environment variable of the key.
        windows: model -> tokens of the longest candidate, with the query where ``counts_query``; 0 where a
            model reads longer ones in parts. A model that is not here is taken to be so.
        limits: of one request; its tokens count the query once for each candidate.
        top: field that asks for the number of scores; all are asked for.
        rows: path of the list of objects with ``index`` and ``relevance_score``.
        used: path of what is paid for.
        unit: what that counts: ``tokens`` or ``searches``.
        fixed: fields of every request.
        long: one of :data:`LONG` -> fields; empty for a service that has no choice.
        counts_query: whether the query takes up room in the window.
        names: a model's name elsewhere -> the one that the service knows.
        sdk: package of the official client, and ``make(package, base_url, key, timeout_s) -> Send``.
    """

    url: str
    path: str
    key: str
    windows: Mapping[str, int]
    limits: Limits
    top: str = "top_n"
    rows: str = "results"
    used: str = "usage.total_tokens"
    unit: str = "tokens"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    long: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts_query: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    sdk: tuple[str, Callable[[Any, str, str, float], Send]] | None = None


@dataclass(slots=True)
class ApiRerankStats(RerankStats):
    """Counts since the reranker was made; ``truncated`` is an estimate, because no service tells.

    Attributes:
        searches: searches that the service billed; 0 of one that bills tokens.
    """

    searches: int = 0


class ApiReranker:
    """Scores candidates through a service; safe for many threads.

    Attributes:
        transport: its ``stats`` count requests, retries, waits and latency.
        stats: pairs, tokens or searches, and pairs cut as estimated.
        limits: of one request.
        max_texts: candidates of a request that the service is known to take.
        max_tokens: longest input; 0 where nothing is cut.
        runtime: library, address, concurrency.
    """

    target: Target = "api"

    def __init__(
        self,
        name: str,
        model: str,
        service: RerankService,
        transport: Transport,
        limits: Limits,
        *,
        long: str = LONG[0],
        revision: str = "service",
        runtime: Mapping[str, Any] | None = None,
    ) -> None:
        """``long``: one of :data:`LONG`; ``revision``: tells servers apart."""
        self.name, self.model, self.transport, self.limits = name, model, transport, limits
        self.is_local = is_loopback(transport.base_url)
        self.max_texts, self.max_tokens = limits.texts, service.windows.get(model, 0)
        self.stats, self.runtime = ApiRerankStats(), dict(runtime or {})
        self._service, self._long, self._revision = service, long, revision
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Name, model and settings."""
        parts = [self.name, self.model, self._revision]
        return " ".join(parts + ([f"long={self._long}"] if self._service.long else []))

    def is_available(self) -> bool:
        """True: what is missing was found when this was made."""
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """The service's score of each candidate, in input order; NaN where it gave NaN or ``null``.

        No blank is sent: a blank candidate, and with a blank query every candidate, scores
        :data:`BLANK_SCORE`. Equal candidates are sent once. Many candidates go in several requests, which
        changes no score: a service scores each pair alone.

        Raises:
            TransientError: the service cannot answer now.
            PermanentError: it refuses the request, or left out a candidate each time it was asked.
        """
        scores = [BLANK_SCORE] * len(candidates)
        query = without_lone_surrogates(query)
        places: dict[str, list[int]] = {}
        for place, text in enumerate(candidates):
            if query.strip() and text.strip():
                places.setdefault(without_lone_surrogates(text), []).append(place)
        texts = list(places)
        found = self._all(query, texts) if texts else []
        for text, score in zip(texts, found):
            for place in places[text]:
                scores[place] = score
        self._count(query, texts, sum(map(len, places.values())))
        return scores

    def count_tokens(self, query: str, candidates: Sequence[str]) -> int:
        """Tokens of all pairs as estimated, rather too many than too few: the query counts in each."""
        asked = estimate_tokens(query) if query.strip() else 0
        return sum(asked + estimate_tokens(text) for text in candidates if asked and text.strip())

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def _all(self, query: str, texts: list[str]) -> list[float]:
        # the query counts in each pair, so batches are made of pairs
        plan = list(batches([f"{query} {text}" for text in texts], self.limits))
        parts = [[texts[i] for i in rows] for rows in plan]
        if len(parts) == 1:
            return self._some(query, parts[0])
        pool = ThreadPoolExecutor(min(self.transport.concurrency, len(parts)), "rerank")
        try:
            return [score for part in pool.map(lambda part: self._some(query, part), parts) for score in part]
        finally:
            pool.shutdown(cancel_futures=True)  # after an error, what waits is not sent

    def _some(self, query: str, texts: list[str]) -> list[float]:
        """The scores of ``texts``, in halves where the service does not take so many."""
        if len(texts) > self.max_texts:
            return self._halves(query, texts)
        try:
            return self._complete(query, texts)
        except BatchRefusedError as error:
            if len(texts) == 1 and error.status >= 500:
                return [math.nan]  # the model computed no number
            if len(texts) == 1:
                said = f"{error} (candidate {' '.join(texts[0][:60].split())!r}…, alone)"
                raise PermanentError(said, error.status) from error
            is_size = error.status < 500
        scores = self._halves(query, texts)
        if is_size:  # both halves went through: the sum was too much
            with self._lock:
                self.max_texts = min(self.max_texts, (len(texts) + 1) // 2)
        return scores

    def _halves(self, query: str, texts: list[str]) -> list[float]:
        middle = (len(texts) + 1) // 2
        return self._some(query, texts[:middle]) + self._some(query, texts[middle:])

    def _complete(self, query: str, texts: list[str]) -> list[float]:
        """One request, and further ones for what was left out of the answer."""
        scores: dict[int, float] = {}
        problem = ""
        for _ in range(1 + ASKED_AGAIN):
            asked = [i for i in range(len(texts)) if i not in scores]
            found, problem = self._ask(query, [texts[i] for i in asked])
            scores |= {asked[i]: score for i, score in found.items()}
            if len(scores) == len(texts):
                return [scores[i] for i in range(len(texts))]
        left = len(texts) - len(scores)
        raise PermanentError(
            f"{self.name}: {left} of {len(texts)} candidates have no score: the service's answer {problem}, "
            f"asked {1 + ASKED_AGAIN} times"
        )

    def _ask(self, query: str, texts: Sequence[str]) -> tuple[dict[int, float], str]:
        service = self._service
        estimated = self.count_tokens(query, texts)
        payload = {
            "model": self.model,
            "query": query,
            "documents": list(texts),
            service.top: len(texts),  # a service may have a default that drops the last ones
            **service.fixed,
            **service.long.get(self._long, {}),
        }
        answer = self.transport.post(service.path, payload, texts=len(texts), tokens=estimated)
        used = value_at(answer, service.used)
        counted = int(used) if isinstance(used, (int, float)) and used >= 0 else None
        is_tokens = service.unit == "tokens"
        tokens = counted if is_tokens and counted is not None else estimated
        self.transport.settle(estimated, tokens)
        with self._lock:
            self.stats.tokens += tokens
            self.stats.rows += len(texts)
            self.stats.searches += 0 if is_tokens else 1 if counted is None else counted
        return read_scores(value_at(answer, service.rows), len(texts))

    def _count(self, query: str, texts: Iterable[str], pairs: int) -> None:
        room = self.max_tokens - (estimate_tokens(query) if self._service.counts_query else 0)
        cut = sum(estimate_tokens(text) > room for text in texts) if self.max_tokens else 0
        with self._lock:
            self.stats.pairs += pairs
            self.stats.truncated += cut if self._long == "truncate" else 0

    def __repr__(self) -> str:
        return safe_repr(self, name=self.name, model=self.model, transport=self.transport)


def read_scores(rows: Any, count: int) -> tuple[dict[int, float], str]:
    """Position -> score of an answer's rows, matched by index; and what is wrong with it, if anything.

    A position with several scores, or with something else than a number, has none; ``null`` is NaN. An index
    that was not asked for makes the whole answer doubtful: no position has a score.
    """
    if not isinstance(rows, list):
        return {}, "holds no list of scores"
    found: dict[int, float] = {}
    several: set[int] = set()
    problem = ""
    for row in rows:
        index = row.get("index") if isinstance(row, Mapping) else None
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            return {}, f"has a score of index {index!r} for {count} candidates"
        score = row.get("relevance_score", "nothing")
        score = math.nan if score is None else score
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            problem = f"has {score!r} for a score"
            continue
        if index in found:
            several.add(index)
        found[index] = float(score)
    for index in several:
        del found[index]
        problem = "has several scores of one index"
    if len(found) < count:
        problem = problem or "leaves some out"
    return found, problem


def load_reranker(spec: Spec, service: RerankService, options: Mapping[str, str]) -> ApiReranker:
    """The reranker of ``service`` with the options of a spec string.

    Options: ``base_url``; ``long`` (truncate, error) where the service has the choice; ``batch`` (candidates
    a request); ``concurrency``; ``max_tries``; ``max_wait_s``; ``timeout_s``; ``rpm`` and ``tpm`` (requests
    and tokens a minute); ``engine`` (http, sdk) where there is an official client.

    Raises:
        InvalidArgumentError: an unknown option, or a value outside what is accepted.
        ProviderUnavailableError: the key is not set.
        MissingExtraError: httpx, or the official client asked for, is not installed.
    """
    opts = Options(spec.name, options)
    limits = service.limits
    wiring = Wiring.read(spec, opts, service.url, service.key, limits, service.sdk, limits.texts)
    long = opts.choose("long", LONG) if service.long else LONG[0]
    opts.refuse_the_rest()
    model = service.names.get(spec.model, spec.model)
    if not model.strip():
        raise InvalidArgumentError(f"{spec.name}: model is {model!r}; accepted: {', '.join(service.windows)}")
    transport, runtime = wiring.open()
    return ApiReranker(
        spec.name,
        model,
        service,
        transport,
        wiring.limits,
        long=long,
        revision=wiring.revision,
        runtime=runtime,
    )
