"""What providers did, counted: as an object, and in Prometheus' text form."""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rag_core.embedding import without_lone_surrogates
from rag_core.errors import InvalidArgumentError
from rag_core.secrets import redact

__all__ = ["BUCKETS_S", "CONTENT_TYPE", "COUNTERS", "Key", "Metrics"]

#: HTTP content type of :meth:`Metrics.prometheus`.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Upper bounds of the latency buckets, in seconds; a last one without a bound follows.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Provider and model.
Key = tuple[str, str]
#: Name in a snapshot -> name and help in the text form.
COUNTERS: Mapping[str, tuple[str, str]] = {
    "requests": ("rag_requests_total", "Requests sent to the provider, those that failed included."),
    "texts": ("rag_texts_total", "Texts that the provider embedded."),
    "tokens": ("rag_tokens_total", "Tokens that the provider counted; estimated where it does not tell."),
    "cache_hits": ("rag_cache_hits_total", "Texts answered without the provider."),
    "cache_misses": ("rag_cache_misses_total", "Texts that were looked up and sent to the provider."),
    "retries": ("rag_retries_total", "Requests that repeat a failed one."),
    "rate_limited": ("rag_rate_limited_total", "Answers with HTTP 429."),
    "waited_s": ("rag_waited_seconds_total", "Seconds spent waiting for limits and between tries."),
    "stand_ins": ("rag_stand_ins_total", "Calls answered in place of an earlier provider of the chain."),
    "cost_usd": ("rag_cost_usd_total", "USD spent, at list prices."),
}
ERRORS = ("rag_errors_total", "Calls that failed, by the kind of the error.")
LATENCY = ("rag_latency_seconds", "Seconds of an answered request, waits excluded.")


@dataclass(slots=True)
class _Provider:
    counts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0


class Metrics:
    """Counters and latencies a provider and model; safe for many threads.

    A key never gets in: names, models and kinds of errors are all that is kept, and the value of an
    environment variable that is named like a key is masked in them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._providers: dict[Key, _Provider] = {}
        self._sources: list[Callable[[], Iterable[tuple[Key, Mapping[str, float]]]]] = []

    def add(self, key: Key, **amounts: float) -> None:
        """Add to the counters of :data:`COUNTERS`.

        Raises:
            InvalidArgumentError: no such counter, or an amount below 0.
        """
        for name, amount in amounts.items():
            if name not in COUNTERS or not amount >= 0:
                raise InvalidArgumentError(
                    f"counter {name!r} by {amount!r}; accepted: {', '.join(COUNTERS)}, by 0 or more"
                )
        with self._lock:
            counts = self._of(key).counts
            for name, amount in amounts.items():
                counts[name] += amount

    def error(self, key: Key, kind: str) -> None:
        """Count a call that failed; ``kind`` is the name of the error's class."""
        with self._lock:
            self._of(key).errors[kind] += 1

    def observe(self, key: Key, seconds: Iterable[float]) -> None:
        """Note how long each answered request took, waits excluded."""
        with self._lock:
            provider = self._of(key)
            for value in seconds:
                provider.buckets[bisect.bisect_left(BUCKETS_S, value)] += 1
                provider.sum_s += value

    def watch(self, source: Callable[[], Iterable[tuple[Key, Mapping[str, float]]]]) -> None:
        """Ask ``source`` for further counts whenever somebody looks."""
        with self._lock:
            self._sources.append(source)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Plain JSON values now: ``provider:model`` -> counters, ``errors`` and ``latency_s``.

        ``errors`` maps kinds to counts. ``latency_s`` has ``count``, ``sum`` and ``buckets``, which maps an
        upper bound in seconds (``inf`` for none) to the requests that took so long or less.
        """
        found = {}
        for (name, model), provider in self._now():
            below, buckets = 0, {}
            for bound, count in zip((*BUCKETS_S, float("inf")), provider.buckets):
                below += count
                buckets[f"{bound:g}"] = below
            found[f"{name}:{model}"] = {
                **provider.counts,
                "errors": dict(provider.errors),
                "latency_s": {"count": below, "sum": provider.sum_s, "buckets": buckets},
            }
        return found

    @property
    def cost_usd(self) -> float:
        """USD spent so far on all providers."""
        with self._lock:
            return sum(provider.counts["cost_usd"] for provider in self._providers.values())

    def prometheus(self) -> str:
        """Everything in the text exposition format, version 0.0.4; serve it as :data:`CONTENT_TYPE`."""
        now = [(_labels(provider=n, model=m), provider) for (n, m), provider in self._now()]
        lines = []
        for name, (family, about) in COUNTERS.items():
            lines += _head(family, about, "counter")
            lines += [f"{family}{{{labels}}} {_number(p.counts[name])}" for labels, p in now]
        lines += _head(*ERRORS, "counter")
        for labels, provider in now:
            for kind, count in sorted(provider.errors.items()):
                lines.append(f"{ERRORS[0]}{{{labels},{_labels(kind=kind)}}} {count}")
        lines += _head(*LATENCY, "histogram")
        for labels, provider in now:
            below = 0
            for bound, count in zip((*BUCKETS_S, float("inf")), provider.buckets):
                below += count
                le = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f'{LATENCY[0]}_bucket{{{labels},le="{le}"}} {below}')
            lines.append(f"{LATENCY[0]}_sum{{{labels}}} {_number(provider.sum_s)}")
            lines.append(f"{LATENCY[0]}_count{{{labels}}} {below}")
        return "\n".join(lines) + "\n"

    def _of(self, key: Key) -> _Provider:
        clean = (redact(key[0]), redact(key[1]))
        return self._providers.setdefault(clean, _Provider())

    def _now(self) -> list[tuple[Key, _Provider]]:
        """A copy of everything, with what the sources say, in order of the names."""
        with self._lock:
            sources = list(self._sources)
        told = [(key, dict(counts)) for source in sources for key, counts in source()]
        with self._lock:
            for key, _ in told:
                self._of(key)
            copies = {
                key: _Provider(dict(p.counts), dict(p.errors), list(p.buckets), p.sum_s)
                for key, p in self._providers.items()
            }
        for (name, model), counts in told:
            for counter, amount in counts.items():
                copies[redact(name), redact(model)].counts[counter] += amount
        return sorted(copies.items(), key=lambda item: item[0])


def _head(family: str, about: str, kind: str) -> list[str]:
    escaped = about.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {family} {escaped}", f"# TYPE {family} {kind}"]


def _labels(**values: str) -> str:
    """``name="value",…`` with backslash, quote and line feed escaped, as the format asks."""
    shown = []
    for name, value in values.items():
        clean = without_lone_surrogates(value)
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        shown.append(f'{name}="{escaped}"')
    return ",".join(shown)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
