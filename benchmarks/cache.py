"""The embedding cache: lookups beside diskcache and plain sqlite, and what it saves on a workload.

    python benchmarks/cache.py [--records 100000] [--dim 1024] [--batch 1000] [--rounds 5] [--json FILE]

Lookups: every contender holds the same random vectors under the same 32-byte keys, is asked for the same
batches of known keys in turn with the others, and must give a float32 matrix in the order of the keys; the
matrices are compared bit for bit before any time is printed. All of it lies in the page cache of the system
by then. sqlite runs with its defaults and WAL, and once more with its file mapped, which few programs ask
for. Ours alone checks every vector that it returns. A batch counts with its least disturbed round. Absolute
times depend on the machine; the ratios are the figures. A peer that is not installed is left out with a note
(pip install diskcache).

Workload: chunks are indexed, indexed again with some of them changed, then queries come one at a time,
drawn from a number of questions by Zipf's law (the n-th is asked 1/n as often as the first). The provider is
a fake with the limits of a service: 96 texts a request. Each stage opens the cache anew, as a new process
would.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from providers import EMBEDDERS
from rag_core.cache import CachedEmbedder
from rag_core.protocols import Vectors
from rag_core.registry import load_attribute
from rag_core.vectorlog import VectorLog

Read = Callable[[Sequence[bytes]], Vectors]
STEP = 1000


class Contender(Protocol):
    def write(self, keys: Sequence[bytes], vectors: Vectors) -> None: ...

    def reads(self) -> dict[str, Read]: ...


class Ours:
    def __init__(self, folder: Path, dim: int) -> None:
        self.folder, self.dim = folder, dim
        self.log = VectorLog(folder, "space", dim, max_bytes=2 << 30)

    def write(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        self.log.write(keys, vectors)

    def reads(self) -> dict[str, Read]:
        log = VectorLog(self.folder, "space", self.dim, max_bytes=2 << 30)

        def read(keys: Sequence[bytes]) -> Vectors:
            out = np.empty((len(keys), self.dim), np.float32)
            assert log.read(keys, out)[0].all()
            return out

        return {"ours": read}


class Sqlite:
    def __init__(self, folder: Path, dim: int) -> None:
        self.dim = dim
        self.path = folder / "vectors.sqlite"
        self.db = sqlite3.connect(self.path)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute("CREATE TABLE vectors (key BLOB PRIMARY KEY, vector BLOB)")

    def write(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        rows = [(key, vector.tobytes()) for key, vector in zip(keys, vectors)]
        with self.db:
            self.db.executemany("INSERT INTO vectors VALUES (?, ?)", rows)

    def reads(self) -> dict[str, Read]:
        mapped = sqlite3.connect(self.path)
        mapped.execute("PRAGMA mmap_size=2000000000")

        def one_by_one(keys: Sequence[bytes]) -> Vectors:
            ask = "SELECT vector FROM vectors WHERE key = ?"
            return matrix([self.db.execute(ask, (key,)).fetchone()[0] for key in keys], self.dim)

        def many(db: sqlite3.Connection, keys: Sequence[bytes]) -> Vectors:
            marks = ",".join("?" * len(keys))
            ask = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"
            found = dict(db.execute(ask, keys))
            return matrix([found[key] for key in keys], self.dim)

        return {
            "sqlite one by one": one_by_one,
            "sqlite IN": partial(many, self.db),
            "sqlite IN, mapped": partial(many, mapped),
        }


class Diskcache:
    def __init__(self, folder: Path, dim: int) -> None:
        import diskcache

        self.dim = dim
        self.cache = diskcache.Cache(str(folder), eviction_policy="none", size_limit=1 << 40)

    def write(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        with self.cache.transact():
            for key, vector in zip(keys, vectors):
                self.cache.set(key, vector.tobytes())

    def reads(self) -> dict[str, Read]:
        def get(keys: Sequence[bytes]) -> Vectors:
            return matrix([self.cache.get(key) for key in keys], self.dim)

        return {"diskcache": get}


def matrix(rows: Sequence[bytes], dim: int) -> Vectors:
    return np.frombuffer(b"".join(rows), np.float32).reshape(-1, dim)


def lookups(records: int, dim: int, batch: int, rounds: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((records, dim), dtype=np.float32)
    joined = generator.bytes(32 * records)
    keys = [joined[i : i + 32] for i in range(0, len(joined), 32)]
    kinds: dict[str, type[Ours] | type[Sqlite] | type[Diskcache]] = {
        "ours": Ours,
        "sqlite": Sqlite,
        "diskcache": Diskcache,
    }
    written_s: dict[str, float] = {}
    reads: dict[str, Read] = {}
    left_out: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cache-benchmark-") as folder:
        for name, kind in kinds.items():
            place = Path(folder) / name
            place.mkdir()
            try:
                contender: Contender = kind(place, dim)
            except ImportError as error:
                left_out.append(f"{name}: {error}")
                continue
            started = perf_counter()
            for first in range(0, records, STEP):
                contender.write(keys[first : first + STEP], vectors[first : first + STEP])
            written_s[name] = perf_counter() - started
            reads |= contender.reads()
        batches = [generator.choice(records, batch, replace=False) for _ in range(10)]
        asked = [[keys[row] for row in rows] for rows in batches]
        for name, read in reads.items():
            for rows, wanted in zip(batches, asked):
                if not np.array_equal(read(wanted).view(np.uint32), vectors[rows].view(np.uint32)):
                    raise SystemExit(f"{name} gives other vectors")
        taken_s = {name: np.zeros((rounds, len(asked))) for name in reads}
        for turn in range(rounds):
            for number, wanted in enumerate(asked):
                for name, read in reads.items():
                    started = perf_counter()
                    read(wanted)
                    taken_s[name][turn, number] = perf_counter() - started
    # the least disturbed of the rounds for each batch, and the median that a busy machine gives
    best_s = {name: float(values.min(axis=0).mean()) for name, values in taken_s.items()}
    median_s = {name: float(np.median(values)) for name, values in taken_s.items()}
    return {
        "records": records,
        "dim": dim,
        "batch": batch,
        "lookups_per_s": {name: batch / value for name, value in best_s.items()},
        "ours_is_faster_by": {name: value / best_s["ours"] for name, value in best_s.items()},
        "ours_is_faster_by_median": {name: value / median_s["ours"] for name, value in median_s.items()},
        "writes_per_s": {name: records / value for name, value in written_s.items()},
        "left_out": left_out,
    }


def workload(chunks: int, changed: float, queries: int, questions: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    texts = [f"chunk {number} of the manual" for number in range(chunks)]
    again = list(texts)
    for row in generator.choice(chunks, round(changed * chunks), replace=False):
        again[row] += ", revised"
    chance = 1 / np.arange(1, questions + 1)
    drawn: NDArray[np.int64] = generator.choice(questions, queries, p=chance / chance.sum())
    spec = next(spec for spec in EMBEDDERS if spec.name == "fake-cohere")
    stages = {
        "first index": [("document", texts[i : i + STEP]) for i in range(0, chunks, STEP)],
        "index again": [("document", again[i : i + STEP]) for i in range(0, chunks, STEP)],
        "queries": [("query", [f"question {number}?"]) for number in drawn],
    }
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="cache-benchmark-") as folder:
        for stage, calls in stages.items():
            plain = load_attribute(spec.load)(spec)
            inside = load_attribute(spec.load)(spec)
            with CachedEmbedder(inside, folder) as cached:
                for role, part in calls:
                    expected = plain.embed(part, role=role)
                    if not np.array_equal(cached.embed(part, role=role), expected):
                        raise SystemExit(f"{stage}: the cache gives other vectors")
                stats = cached.stats
            rows[stage] = {
                "texts": stats.texts,
                "texts_sent": stats.misses,
                "requests_without": len(plain.batches),
                "requests": len(inside.batches),
            }
    rows["all"] = total(list(rows.values()))
    rows["after the first index"] = total([rows["index again"], rows["queries"]])
    for row in rows.values():
        row["hit_rate"] = 1 - row["texts_sent"] / row["texts"]
        row["requests_saved"] = 1 - row["requests"] / row["requests_without"]
    return {
        "chunks": chunks,
        "changed": changed,
        "queries": queries,
        "questions": questions,
        "distinct_questions_asked": len(np.unique(drawn)),
        "stages": rows,
    }


def total(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("records", 100_000), ("dim", 1024), ("batch", 1000), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("chunks", 10_000), ("queries", 2000), ("questions", 1000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--changed", type=float, default=0.05, help="share of chunks (default 0.05)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    saved = workload(given.chunks, given.changed, given.queries, given.questions)
    found = lookups(given.records, given.dim, given.batch, given.rounds)
    if given.json:
        given.json.write_text(json.dumps({"lookups": found, "workload": saved}, indent=1) + "\n")
    print(f"{given.records} vectors of {given.dim} floats, batches of {given.batch} keys, all found")
    for name, rate in found["lookups_per_s"].items():
        best, middle = found["ours_is_faster_by"][name], found["ours_is_faster_by_median"][name]
        print(f"{name:20} {rate:12,.0f} lookups/s   ours : this {best:6.2f} (by medians {middle:.2f})")
    for name, rate in found["writes_per_s"].items():
        print(f"{name:20} {rate:12,.0f} writes/s in batches of {STEP}")
    for note in found["left_out"]:
        print(f"left out: {note}")
    print(
        f"\n{given.chunks} chunks, {given.changed:.0%} changed, {given.queries} queries of "
        f"{saved['distinct_questions_asked']} distinct questions"
    )
    for stage, row in saved["stages"].items():
        print(
            f"{stage:20} {row['texts']:6.0f} texts, {row['texts_sent']:6.0f} sent, hits {row['hit_rate']:.1%}"
            f" | {row['requests_without']:5.0f} requests without, {row['requests']:5.0f} with, "
            f"down {row['requests_saved']:.1%}"
        )


if __name__ == "__main__":
    main()
