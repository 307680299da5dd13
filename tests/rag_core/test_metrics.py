"""Counters and latencies, and their text form, read back by a parser of that format."""

from __future__ import annotations

import json
import math
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.errors import InvalidArgumentError
from rag_core.metrics import BUCKETS_S, CONTENT_TYPE, COUNTERS, Metrics

KEY = ("cohere", "embed-v4.0")
_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\} (\S+)')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
Sample = tuple[str, tuple[tuple[str, str], ...]]


def parsed(text: str) -> tuple[dict[str, str], dict[Sample, float]]:
    """Types of the families and values of the samples; fails on what breaks the rules of format 0.0.4."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    helped: set[str] = set()
    samples: dict[Sample, float] = {}
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        else:
            found = _SAMPLE.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in types else name
            assert list(types)[-1] == family, "samples of a family stand together, below its TYPE"
            assert family in helped
            pairs = []
            at = 0
            while at < len(labels):
                label = _LABEL.match(labels, at)
                assert label, labels
                plain = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label[2])
                pairs.append((label[1], plain))
                at = label.end()
            key = (name, tuple(sorted(pairs)))
            assert key not in samples
            samples[key] = float(value)
    return types, samples


def labelled(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def test_counters_reach_both_forms() -> None:
    metrics = Metrics()
    metrics.add(KEY, requests=3, texts=40, tokens=900, retries=1, rate_limited=1, waited_s=2.5, cost_usd=0.25)
    metrics.add(KEY, requests=1)
    metrics.add(("e5-small", "m"), texts=1)
    metrics.error(KEY, "TransientError")
    metrics.error(KEY, "TransientError")
    snapshot = metrics.snapshot()
    assert json.loads(json.dumps(snapshot)) == snapshot
    cohere = snapshot["cohere:embed-v4.0"]
    assert (cohere["requests"], cohere["texts"], cohere["waited_s"]) == (4, 40, 2.5)
    assert cohere["errors"] == {"TransientError": 2}
    assert metrics.cost_usd == 0.25
    types, samples = parsed(metrics.prometheus())
    labels = labelled(provider="cohere", model="embed-v4.0")
    for name, (family, _) in COUNTERS.items():
        assert types[family] == "counter"
        assert family.endswith("_total")
        assert samples[family, labels] == cohere[name]
    errors = labelled(provider="cohere", model="embed-v4.0", kind="TransientError")
    assert samples["rag_errors_total", errors] == 2
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


def test_nothing_counted_is_valid_text_too() -> None:
    types, samples = parsed(Metrics().prometheus())
    assert samples == {}
    assert types["rag_latency_seconds"] == "histogram"


@given(st.lists(st.floats(0, 100), max_size=50))
def test_the_histogram_counts_every_latency_in_every_bucket_above_it(seconds: list[float]) -> None:
    metrics = Metrics()
    metrics.add(KEY)
    metrics.observe(KEY, seconds)
    _, samples = parsed(metrics.prometheus())
    labels = {"provider": "cohere", "model": "embed-v4.0"}
    for bound in BUCKETS_S:
        count = samples["rag_latency_seconds_bucket", labelled(**labels, le=f"{bound:g}")]
        assert count == sum(value <= bound for value in seconds)
    everything = samples["rag_latency_seconds_bucket", labelled(**labels, le="+Inf")]
    assert everything == samples["rag_latency_seconds_count", labelled(**labels)] == len(seconds)
    assert math.isclose(samples["rag_latency_seconds_sum", labelled(**labels)], sum(seconds), abs_tol=1e-9)
    told = metrics.snapshot()["cohere:embed-v4.0"]["latency_s"]
    assert (told["count"], told["buckets"]["inf"]) == (len(seconds), len(seconds))


@settings(max_examples=40)
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_name_survives_the_escaping(name: str, model: str) -> None:
    metrics = Metrics()
    metrics.add((name, model), texts=1)
    _, samples = parsed(metrics.prometheus())
    assert samples["rag_texts_total", labelled(provider=name, model=model)] == 1


def test_escapes_and_lone_surrogates() -> None:
    metrics = Metrics()
    metrics.add(('a"b\\c\nd', "\ud800"), texts=1)
    text = metrics.prometheus()
    assert 'provider="a\\"b\\\\c\\nd"' in text
    text.encode("utf-8")


def test_sources_are_asked_when_somebody_looks() -> None:
    metrics, hits = Metrics(), [1]
    metrics.add(KEY, cache_hits=10)
    metrics.watch(lambda: [(KEY, {"cache_hits": hits[0]}), (("b", "m"), {"cache_misses": 2})])
    assert metrics.snapshot()["cohere:embed-v4.0"]["cache_hits"] == 11
    hits[0] = 5
    assert metrics.snapshot()["cohere:embed-v4.0"]["cache_hits"] == 15
    assert metrics.snapshot()["b:m"]["cache_misses"] == 2


@pytest.mark.parametrize("amounts", [{"request": 1}, {"requests": -1}, {"tokens": float("nan")}])
def test_refuses_unknown_counters_and_negative_amounts(amounts: dict[str, float]) -> None:
    metrics = Metrics()
    with pytest.raises(InvalidArgumentError, match="accepted"):
        metrics.add(KEY, **amounts)
    assert metrics.snapshot() == {}


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(500):
            metrics.add(KEY, requests=1)
            metrics.observe(KEY, [0.1])
            metrics.error(KEY, "E")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = metrics.snapshot()["cohere:embed-v4.0"]
    assert (found["requests"], found["latency_s"]["count"], found["errors"]) == (2000, 2000, {"E": 2000})


def test_the_value_of_a_key_never_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COHERE_API_KEY", "sk-planted-0123456789")
    metrics = Metrics()
    metrics.add(("cohere", "m-sk-planted-0123456789"), texts=1)
    metrics.watch(lambda: [(("cohere", "m-sk-planted-0123456789"), {"cache_hits": 1})])
    shown = metrics.prometheus() + json.dumps(metrics.snapshot())
    assert "planted" not in shown
    assert "m-cohere-***" in shown
