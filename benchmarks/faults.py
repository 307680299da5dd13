"""10,000 texts through a server that fails: are vectors wrong, missing or shifted, are refusals repeated?

Run ``python benchmarks/faults.py``. Of the requests 20 % are answered 429, 10 % 500 to 503, 5 % too late,
5 % by a reset connection, 2 % out of order or a vector short, 1 % with a NaN. The back-off is the real one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from providers import EMBEDDERS
from providers._pacing import Timers
from rag_core.errors import PartialEmbedError, PermanentError
from rag_core.registry import load_attribute
from rag_core.testing.server import Fault, FaultServer, Request, vector_of

DIM = 64
TIMEOUT_S = 0.4
SPEC = next(spec for spec in EMBEDDERS if spec.name == "openai")
PERMANENT = (400, 401, 403, 404, 422)


def mix(seed: int) -> Callable[[Request], Fault | None]:
    """Chooses the fault of a request."""
    chance, lock = random.Random(seed), threading.Lock()
    weighted: list[tuple[float, Callable[[], Fault | None]]] = [
        (0.20, lambda: Fault(status=429, headers={"Retry-After": chance.choice(["0.05", "0.1", "nan", ""])})),
        (0.10, lambda: Fault(status=chance.choice([500, 502, 503]))),
        (0.05, lambda: Fault(delay_s=4 * TIMEOUT_S)),
        (0.05, lambda: Fault(kind="reset")),
        (0.02, lambda: Fault(kind=chance.choice(["reordered", "short"]))),
        (0.01, lambda: Fault(kind="nan")),
        (0.57, lambda: None),
    ]

    def choose(request: Request) -> Fault | None:
        with lock:
            (make,) = chance.choices([m for _, m in weighted], [w for w, _ in weighted])
            return make()

    return choose


def provider(server: FaultServer, **options: str) -> Any:
    settings = {"dimensions": str(DIM), "batch": "16", "timeout_s": str(TIMEOUT_S), **options}
    return load_attribute(SPEC.load)(SPEC, base_url=server.url("openai"), **settings)


def run(n_texts: int, seed: int = 1, sleep: Callable[[float], None] | None = None) -> dict[str, Any]:
    """The figures; ``sleep`` replaces waiting."""
    texts = [f"text number {i} of {n_texts}" for i in range(n_texts)]
    expected = np.stack([vector_of(text, DIM) for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    with FaultServer(DIM) as server:
        server.choose = mix(seed)
        embedder = provider(server, concurrency="8", max_tries="20")
        if sleep:
            embedder.transport.timers = Timers(sleep=sleep)
        started = perf_counter()
        failed: dict[int, str] = {}
        try:
            vectors = embedder.embed(texts)
        except PartialEmbedError as error:
            vectors, failed = error.vectors, error.failed
        seconds = perf_counter() - started
        own = np.einsum("ij,ij->i", vectors, expected)
        nearest = np.concatenate([(part @ expected.T).argmax(1) for part in np.array_split(vectors, 10)])
        missing = (own < 0.5) & ~vectors.any(axis=1)
        shifted = (nearest != np.arange(n_texts)) & ~missing
        stats = embedder.transport.stats
        embedder.close()
    return {
        "texts": n_texts,
        "wrong": int(((own < 0.99999) & ~missing & ~shifted).sum()),
        "missing": int(missing.sum()),
        "shifted": int(shifted.sum()),
        "failed": failed,
        "requests": stats.requests,
        "retries": stats.retries,
        "answers_429": stats.n_429,
        "retries_of_permanent_errors": retries_of_permanent_errors(),
        "waited_s": round(stats.waited_s, 2),
        "seconds": round(seconds, 2),
    }


def retries_of_permanent_errors() -> int:
    """Requests beyond the first for each status that no repetition cures."""
    beyond = 0
    for status in PERMANENT:
        with FaultServer(DIM) as server:
            server.choose = lambda request, status=status: Fault(status=status, message="refused")  # type: ignore[misc]
            embedder = provider(server)
            try:
                embedder.embed(["one text"])
            except PermanentError:
                beyond += len(server.requests) - 1
            else:
                raise AssertionError(f"HTTP {status} was no error")
            embedder.close()
    return beyond


def baseline(n_texts: int) -> float:
    """Seconds of the same without any fault."""
    with FaultServer(DIM) as server:
        embedder = provider(server, concurrency="8", timeout_s="60")
        started = perf_counter()
        embedder.embed([f"text number {i} of {n_texts}" for i in range(n_texts)])
        seconds = perf_counter() - started
        embedder.close()
        assert Counter(len(r.texts) for r in server.requests)[16] >= n_texts // 16
    return seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    figures = run(asked.texts, asked.seed)
    figures["seconds_without_faults"] = round(baseline(asked.texts), 2)
    print(json.dumps(figures, indent=2))
    sys.exit(any(figures[name] for name in ("wrong", "missing", "shifted", "retries_of_permanent_errors")))
