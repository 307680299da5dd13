"""The index over every store: the same answers, and the same end after kill -9.

``RAG_KILLS`` sets how many random moments are tried per store (2 where it is not set: a process of these
databases takes seconds to start).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core import Document, get_embedder
from rag_core.index import Index

KILLS = int(os.environ.get("RAG_KILLS", "2"))
PACKAGES = {
    "lancedb": "lancedb",
    "lancedb?index=hnsw_sq": "lancedb",
    "chroma": "chromadb",
    "surrealdb": "surrealdb",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "store",
        [
            pytest.param(name, marks=pytest.mark.skipif(find_spec(needed) is None, reason=f"needs {needed}"))
            for name, needed in PACKAGES.items()
        ],
    ),
]


def corpus(store: str) -> tuple[list[Document], list[Document]]:
    """Documents, and what becomes of them: a third stays, a third changes, a third goes, as many come."""
    part = 200 if "hnsw" in store else 20  # LanceDB builds an index of 256 rows at least
    documents = [Document(f"d{i:03d}", f"text number {i}", "", {"n": i % 3}) for i in range(3 * part)]
    changed = [
        *documents[:part],
        *(Document(d.doc_id, d.text + " changed", "", d.metadata) for d in documents[part : 2 * part]),
        *(Document(f"n{i}", f"new text {i}") for i in range(part)),
    ]
    return documents, changed


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_index_stores import corpus
from rag_core import get_embedder
from rag_core.index import Index
path, embedder = Path(sys.argv[1]), get_embedder("fake")
print("ready", flush=True)
if Index.is_index(path):
    index = Index.open(path, embedder)
else:
    index = Index.create(path, embedder, store=sys.argv[2])
documents, changed = corpus(sys.argv[2])
index.ingest(documents, batch=len(documents) // 6)
index.ingest(changed, batch=len(documents) // 6, prune=True)
index.delete(["n3", "d001"])
index.close()
"""


def start(path: Path, store: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), store, str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(path: Path, store: str) -> float:
    """Run the writer to its end; returns the seconds it wrote."""
    process = start(path, store)
    assert process.stdout is not None
    process.stdout.readline()
    started = time.perf_counter()
    assert process.wait() == 0
    process.stdout.close()
    return time.perf_counter() - started


def check_legs_agree(index: Index) -> None:
    query = np.ones(index.identity.dim, np.float32)
    vectors = set(index.store.search(query, 1000).doc_ids)
    assert vectors == set(index.documents) == set(index.bm25.top("text number new", 1000).doc_ids)


def test_the_answers_are_those_of_flat(tmp_path: Path, store: str) -> None:
    found: dict[str, Any] = {}
    documents, changed = corpus(store)
    for name in ("flat", store):
        index = Index.build(tmp_path / name, documents, get_embedder("fake"), store=name)
        index.ingest(changed, prune=True)
        index.delete(["n3"])
        check_legs_agree(index)
        results = [
            index.hybrid_search(q, 20, where=w) for q in ("text 7", "changed") for w in (None, {"n": 1})
        ]
        found[name] = index.digest(), [[(h.document.doc_id, h.ranks) for h in result] for result in results]
        assert not index.is_partial
        index.close()
    assert found[store] == found["flat"]


def test_rebuild_into_it(tmp_path: Path, store: str, scripted: Callable[..., Any]) -> None:
    documents, changed = corpus(store)
    index = Index.build(tmp_path / "i", documents, get_embedder("fake"))
    index.rebuild(scripted("b"), store=store)
    assert index.store_name == store
    check_legs_agree(index)
    index.ingest(changed, prune=True)
    check_legs_agree(index)
    index.close()


def test_o34_killed_at_random(tmp_path: Path, store: str) -> None:
    """O34."""
    rng = random.Random(34)
    quiet_s = finish(tmp_path / "quiet", store)
    quiet = Index.open(tmp_path / "quiet", get_embedder("fake"))
    wanted = quiet.digest()
    quiet.close()
    for round_ in range(KILLS):
        path = tmp_path / f"i{round_}"
        process = start(path, store)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0, 1.1 * quiet_s))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if Index.is_index(path):  # else it died while making it, and the same command makes it
            index = Index.open(path, get_embedder("fake"))
            check_legs_agree(index)
            index.close()
        finish(path, store)
        index = Index.open(path, get_embedder("fake"))
        check_legs_agree(index)
        assert index.digest() == wanted
        index.close()
