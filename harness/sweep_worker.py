"""Inside the process of one variant: load the model once, then embed the same texts with every batch size.

Rounds are interleaved: each embeds the texts once per batch size before the next one starts, beginning with
another size, so that a machine that warms up or grows busy meets them all alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from harness.datasets import Dataset, load_dataset
from harness.environment import peak_rss_bytes
from harness.metrics import evaluated_queries
from harness.stages import language_warning
from harness.sweep_plan import SweepSpec, chosen_documents
from harness.sweep_result import Point
from harness.timing import summary_s, timed
from rag_core.factory import get_embedder, resolve
from rag_core.protocols import EmbedProvider, Vectors
from rag_core.registry import EMBEDDERS
from rag_core.types import Query

__all__ = ["QUERIES", "REFERENCE", "chosen_queries", "measure_variant", "point_file"]

Emit = Callable[..., None]
#: Queries embedded for agreement, judged ones first; each in a call of its own.
QUERIES = 256
#: Calls with a query before the clock counts.
WARMUP_CALLS = 3
#: File of the vectors at batch size 1, of the documents and of the queries.
REFERENCE, QUERY_FILE = "reference.npy", "queries.npy"
#: Where a provider may say what its device holds.
DEVICE_KEYS = ("device_peak_bytes", "device_memory_bytes", "device_bytes")


def measure_variant(job: Mapping[str, Any], emit: Emit) -> None:
    """Measure the variant ``job["label"]`` at the batch sizes ``job["batch_sizes"]``.

    Events: ``variant`` once the model has answered, ``progress``, then ``point`` for each batch size.
    """
    sweep, dataset = SweepSpec.from_dict(job["spec"]), load_dataset(job["data"])
    folder = Path(job["vectors"])
    folder.mkdir(parents=True, exist_ok=True)
    documents, n_timed = chosen_documents(dataset, sweep)
    texts = [document.indexed_text for document in documents]
    emit("progress", stage="load", done=0, total=0)
    spec, _ = resolve(EMBEDDERS, job["label"])
    embedder, load_s = timed(lambda: get_embedder(job["label"]))
    batching = _Batching(embedder)
    _, first_call_s = timed(lambda: embedder.embed([texts[0]], role="document"))
    query_s = _embed_queries(embedder, batching, chosen_queries(dataset, sweep), folder, sweep, emit)
    fingerprint = embedder.fingerprint
    emit(
        "variant",
        values={
            "model": embedder.model,
            "dtype": fingerprint.dtype,
            "fingerprint": fingerprint.as_dict() | {"digest": fingerprint.digest},
            "runtime": dict(getattr(embedder, "runtime", {})),
            "speed": {
                "load_s": load_s,
                "first_call_s": first_call_s,
                "query_p50_s": summary_s(query_s)["p50_s"],
            },
            "query_s": query_s,
            "warnings": language_warning(spec.name, spec.languages, dataset.languages),
        },
    )
    sizes: list[int | None] = list(job["batch_sizes"])
    points = _warm_up(embedder, batching, texts, sizes, folder, emit)
    alive = [point for point in points if point.status == "ok"]
    for number in range(sweep.rounds):
        turn = number % max(1, len(alive))
        for point in (*alive[turn:], *alive[:turn]):
            emit(
                "progress", stage=f"round {number + 1}", done=number, total=sweep.rounds, at=point.batch_size
            )
            try:
                _, calls_s = batching.embed(texts[:n_timed], point.batch_size)
            except Exception as error:  # noqa: BLE001 - the reason becomes the point's; the others go on
                point.status, point.reason = "failed", f"{type(error).__name__}: {error}"
                continue
            point.calls_s.append(calls_s)
        alive = [point for point in alive if point.status == "ok"]
    tokens = sum(_tokens(embedder, texts[:n_timed]))
    for point in points:
        if point.status == "ok":
            _summarise(point, n_timed, tokens)
        emit("point", values=asdict(point))


def chosen_queries(dataset: Dataset, sweep: SweepSpec) -> list[Query]:
    """Up to :data:`QUERIES` queries in a pseudo-random order, the judged ones first."""
    queries = [query for query in dataset.queries if query.text.strip()]
    random.Random(sweep.seed).shuffle(queries)
    judged = set(evaluated_queries(dataset.relevance))
    return sorted(queries, key=lambda query: query.query_id not in judged)[:QUERIES]


def point_file(batch_size: int | None) -> str:
    """Name of the file that holds the document vectors of a point."""
    return f"batch-{batch_size or 'own'}.npy"


class _Batching:
    """Calls a provider with so many texts at a time, and has it give so many rows to its model."""

    def __init__(self, embedder: EmbedProvider) -> None:
        self._embedder = embedder
        found = getattr(embedder, "batch_size", None)
        self._own = found if isinstance(found, int) and not isinstance(found, bool) else None

    def embed(self, texts: Sequence[str], size: int | None) -> tuple[Vectors, list[float]]:
        """Vectors of ``texts``, (n, dim) float32, and the seconds of each call; None: one call for all."""
        self.set(size)
        step = size or len(texts)
        rows, calls_s = [], []
        for start in range(0, len(texts), step):
            part = texts[start : start + step]
            found, took = timed(lambda part=part: self._embedder.embed(part, role="document"))  # type: ignore[misc]
            rows.append(found)
            calls_s.append(took)
        return np.concatenate(rows), calls_s

    def set(self, size: int | None) -> None:
        """Rows a call of the model, where the provider can be told; None gives back its own number."""
        if self._own is not None:
            self._embedder.batch_size = size or self._own  # type: ignore[attr-defined]


def _embed_queries(
    embedder: EmbedProvider,
    batching: _Batching,
    queries: Sequence[Query],
    folder: Path,
    sweep: SweepSpec,
    emit: Emit,
) -> list[float]:
    """Embed the queries one at a time into a file; the seconds of the first ``query_samples`` of them."""
    batching.set(1)
    emit("progress", stage="queries", done=0, total=len(queries))
    for query in queries[:WARMUP_CALLS]:
        embedder.embed([query.text], role="query")
    rows, query_s = [], []
    for query in queries:
        found, took = timed(lambda query=query: embedder.embed([query.text], role="query"))  # type: ignore[misc]
        rows.append(found)
        query_s.append(took)
    np.save(folder / QUERY_FILE, np.concatenate(rows) if rows else np.zeros((0, embedder.dim), np.float32))
    return query_s[: sweep.query_samples]


def _warm_up(
    embedder: EmbedProvider,
    batching: _Batching,
    texts: Sequence[str],
    sizes: Sequence[int | None],
    folder: Path,
    emit: Emit,
) -> list[Point]:
    """One untimed pass per batch size, ascending: its vectors are kept to be held against the reference.

    The reference is batch size 1, or the first one of a service, whose calls cost money.
    """
    points = []
    if 1 not in sizes and embedder.is_local:
        emit("progress", stage="reference", done=0, total=len(sizes), at=0)
        np.save(folder / REFERENCE, batching.embed(texts, 1)[0])
    for done, size in enumerate(sizes):
        emit("progress", stage="warm-up", done=done, total=len(sizes), at=size)
        point = Point(size)
        try:
            vectors, _ = batching.embed(texts, size)
        except Exception as error:  # noqa: BLE001 - the reason becomes the point's; the others go on
            point.status, point.reason = "failed", f"{type(error).__name__}: {error}"
        else:
            np.save(folder / point_file(size), vectors)
            if not (folder / REFERENCE).exists():
                np.save(folder / REFERENCE, vectors)
        point.peak_rss_bytes = peak_rss_bytes()
        runtime = dict(getattr(embedder, "runtime", {}))
        point.device_bytes = next((int(runtime[key]) for key in DEVICE_KEYS if runtime.get(key)), None)
        points.append(point)
    return points


def _tokens(embedder: EmbedProvider, texts: Sequence[str]) -> list[int]:
    """Tokens of each text; none where the provider has no way to count them."""
    count = getattr(embedder, "count_tokens", None)
    return list(count(list(texts))) if count else []


def _summarise(point: Point, n_texts: int, tokens: int) -> None:
    """Rates of the median round, and those of the slowest and the fastest."""
    rounds = sorted(sum(calls_s) for calls_s in point.calls_s)
    median = float(np.median(rounds))
    calls = summary_s([s for calls_s in point.calls_s for s in calls_s])
    point.n_texts, point.n_tokens = n_texts, tokens
    point.passages_per_s = n_texts / median if median else None
    point.passages_per_s_low = n_texts / rounds[-1] if rounds[-1] else None
    point.passages_per_s_high = n_texts / rounds[0] if rounds[0] else None
    point.tokens_per_s = tokens / median if median and tokens else None
    point.p50_s, point.p95_s = calls["p50_s"], calls["p95_s"]
