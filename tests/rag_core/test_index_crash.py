"""kill -9 at any moment, a full disk, two writers: the index stays whole and the next run ends the same.

``RAG_KILLS`` sets how many random moments are tried (20 where it is not set).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rag_core.index_write as index_write
from rag_core import Document, get_embedder
from rag_core.errors import StoreError
from rag_core.index import Index

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("RAG_KILLS", "20"))
BATCH = 10
FORK = multiprocessing.get_context("fork")
BEFORE = [Document(f"d{i:03d}", f"text number {i}", f"Title {i % 7}", {"n": i}) for i in range(60)]
#: A third is as before, a third has another text, some only other metadata; ten are new, twenty are gone.
AFTER = [
    *BEFORE[:15],
    *(Document(d.doc_id, d.text + " changed", d.title, d.metadata) for d in BEFORE[15:30]),
    *(Document(d.doc_id, d.text, d.title, {"n": -1}) for d in BEFORE[30:40]),
    *(Document(f"n{i}", f"new text {i}") for i in range(30)),
    Document("blank", " "),
]


class Slow:
    """The fake embedder, slow enough that a kill falls into it now and then, with a diary of its texts."""

    def __init__(self, diary: Path | None = None, wait_s: float = 0.0) -> None:
        self._inner = get_embedder("fake")
        self._diary, self._wait_s = diary, wait_s
        for name in (
            "name",
            "model",
            "target",
            "is_local",
            "dim",
            "max_tokens",
            "fingerprint",
            "count_tokens",
        ):
            setattr(self, name, getattr(self._inner, name))

    def is_available(self) -> bool:
        return True

    def embed(self, texts: Sequence[str], *, role: str = "document") -> Any:
        time.sleep(self._wait_s)
        found = self._inner.embed(texts, role=role)
        if self._diary is not None:
            with self._diary.open("a") as stream:
                stream.write(json.dumps(list(texts)) + "\n")
        return found


def run(work: Callable[[], object], kill_after_s: float | None = None) -> int:
    """``work`` in a process of its own, killed after a time; returns how it ended."""
    process = FORK.Process(target=work)
    process.start()
    if kill_after_s is not None:
        process.join(kill_after_s)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode


def create_and_fill(path: Path, diary: Path) -> None:
    index = Index.open(path, Slow(diary)) if Index.is_index(path) else Index.create(path, Slow(diary))
    index.ingest(BEFORE, batch=BATCH)


def bring_up_to_date(path: Path, diary: Path) -> None:
    Index.open(path, Slow(diary)).ingest(AFTER, batch=BATCH, prune=True)


def check_legs_agree(index: Index) -> None:
    """ids with words = ids with vector = ids with text, looked up in the files of both legs."""
    words = {hit.doc_id for hit in index.bm25.top("text number title new", 1000)}
    query = np.ones(index.identity.dim, np.float32)
    vectors = set(index.store.search(query, 1000).doc_ids)
    texts = {doc_id for doc_id, document in index.documents.items() if not document.is_empty}
    assert words == vectors == texts
    assert index.store.count() == len(texts)


def texts_asked(diary: Path) -> list[str]:
    return (
        [text for line in diary.read_text().splitlines() for text in json.loads(line)]
        if diary.exists()
        else []
    )


@pytest.fixture(scope="module", autouse=True)
def _no_flushing() -> Iterator[None]:
    """A killed process loses nothing that it has handed to the system; flushing guards against power cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of ``BEFORE``."""
    path = tmp_path_factory.mktemp("built") / "i"
    create_and_fill(path, path.parent / "diary")
    return path


@pytest.fixture(scope="module")
def undisturbed(built: Path) -> str:
    """The digest after ``AFTER``, nothing having gone wrong."""
    path = built.parent / "undisturbed"
    shutil.copytree(built, path)
    bring_up_to_date(path, built.parent / "diary2")
    return Index.open(path).digest()


def test_o34_killed_while_it_is_made(tmp_path: Path, built: Path) -> None:
    """O34: always reopens, at most the batch in flight is embedded twice, the end is that of a quiet run."""
    rng, wanted = random.Random(34), Index.open(built).digest()
    started = time.perf_counter()
    run(lambda: create_and_fill(tmp_path / "quiet", tmp_path / "quiet-diary"))
    quiet_s = time.perf_counter() - started
    for round_ in range(KILLS // 2):
        path, diary = tmp_path / f"i{round_}", tmp_path / f"diary{round_}"
        run(lambda: create_and_fill(path, diary), rng.uniform(0, 1.1 * quiet_s))  # noqa: B023
        if Index.is_index(path):
            check_legs_agree(Index.open(path))
        assert run(lambda: create_and_fill(path, diary)) == 0  # noqa: B023
        index = Index.open(path)
        check_legs_agree(index)
        assert index.digest() == wanted
        asked = texts_asked(diary)
        assert len(asked) - len(set(asked)) <= BATCH
        assert not list(path.glob("pending-*"))


def test_o32_o34_killed_while_it_is_changed(tmp_path: Path, built: Path, undisturbed: str) -> None:
    """O32, O34: readers see the old version or the new one, never a mixture."""
    rng, old = random.Random(32), Index.open(built).digest()
    quiet = tmp_path / "quiet"
    shutil.copytree(built, quiet)
    started = time.perf_counter()
    run(lambda: bring_up_to_date(quiet, tmp_path / "quiet-diary"))
    quiet_s = time.perf_counter() - started
    seen = set()
    for round_ in range(KILLS - KILLS // 2):
        path, diary = tmp_path / f"i{round_}", tmp_path / f"diary{round_}"
        shutil.copytree(built, path)
        run(lambda: bring_up_to_date(path, diary), rng.uniform(0, 1.1 * quiet_s))  # noqa: B023
        index = Index.open(path, get_embedder("fake"))
        check_legs_agree(index)
        seen.add(index.digest())
        assert run(lambda: bring_up_to_date(path, diary)) == 0  # noqa: B023
        assert index.refresh() or index.digest() == undisturbed
        check_legs_agree(index)
        assert index.digest() == undisturbed
        asked = texts_asked(diary)
        assert len(asked) - len(set(asked)) <= BATCH
    assert seen <= {old, undisturbed}


def die_at(step: int, work: Callable[[], object]) -> None:
    """Run ``work`` and die at the ``step``-th time that something is flushed, renamed or removed."""
    left = step

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in ("fsync", "replace", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    shutil.rmtree = counted(shutil.rmtree)  # type: ignore[assignment]
    work()


def test_o34_killed_at_every_step_of_a_commit(tmp_path: Path, built: Path, undisturbed: str) -> None:
    """Not only at random: before each flush, rename and removal there is; every eighth of them by default."""
    old, step, ended = Index.open(built).digest(), 0, -1
    stride = 1 if KILLS >= 100 else 8
    seen = []
    while ended != 0:
        step += stride
        path = tmp_path / f"i{step}"
        shutil.copytree(built, path)
        ended = run(lambda: die_at(step, lambda: bring_up_to_date(path, tmp_path / "d")))  # noqa: B023
        index = Index.open(path, get_embedder("fake"))
        check_legs_agree(index)
        seen.append(index.digest())
        index.ingest(AFTER, batch=BATCH, prune=True)
        check_legs_agree(index)
        assert index.digest() == undisturbed
        stored = Index.open(path).store.store
        assert {row.rpartition("\x1f")[0] for row in stored.ids} == {  # type: ignore[attr-defined]
            doc_id for doc_id, document in index.documents.items() if not document.is_empty
        }
        assert not (path / index_write.INTENT).exists()
        shutil.rmtree(path)
    assert step > 20
    assert seen == sorted(
        seen, key=[old, undisturbed].index
    )  # the old one up to the rename, then the new one


def test_o34_killed_at_every_step_of_a_creation(tmp_path: Path) -> None:
    """The same call makes the index, whatever the killed one has left."""
    step, ended = 0, -1
    while ended != 0:
        step += 1
        path = tmp_path / f"i{step}"
        ended = run(lambda: die_at(step, lambda: Index.create(path, get_embedder("fake"))))  # noqa: B023
        if not Index.is_index(path):
            Index.create(path, get_embedder("fake"))
        index = Index.open(path, get_embedder("fake"))
        assert len(index) == 0
        assert not list(path.glob(".*"))
    assert step > 10


def fill_under_limit(path: Path, limit_bytes: int, told: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    index = Index.open(path, get_embedder("fake"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        index.ingest(AFTER, batch=BATCH, prune=True)
    except StoreError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        told.write_text(str(error))


def test_o34_a_full_disk(tmp_path: Path, built: Path, undisturbed: str) -> None:
    """Wherever the disk is full, the error says so, the old version answers, and a later run goes on."""
    old = Index.open(built).digest()
    n_full = 0
    for limit_bytes in (0, 300, 1_000, 3_000, 6_000, 9_000, 12_000, 20_000, 25_000, 1 << 20):
        path, told = tmp_path / f"i{limit_bytes}", tmp_path / f"told{limit_bytes}"
        shutil.copytree(built, path)
        assert run(lambda: fill_under_limit(path, limit_bytes, told)) == 0  # noqa: B023
        index = Index.open(path, get_embedder("fake"))
        check_legs_agree(index)
        if told.exists():
            n_full += 1
            assert "disk is full" in told.read_text()
            assert "the version before it stands" in told.read_text()
            assert index.digest() == old
            assert len(list((path / "generations").iterdir())) == len(list((path / "texts").iterdir())) == 1
        assert not list(path.rglob("*.tmp"))
        index.ingest(AFTER, batch=BATCH, prune=True)
        assert index.digest() == undisturbed
    assert 3 < n_full < 10


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """The second one is told which process is at work; readers are not held up."""
    path = tmp_path / "i"
    Index.create(path, get_embedder("fake")).close()
    ready, go = FORK.Event(), FORK.Event()

    def documents() -> Any:
        yield BEFORE[0]
        ready.set()
        go.wait(30)

    writer = FORK.Process(target=lambda: Index.open(path, get_embedder("fake")).ingest(documents()))
    writer.start()
    assert ready.wait(30)
    second = Index.open(path, get_embedder("fake"))
    with pytest.raises(StoreError, match=f"being written by process {writer.pid}; one writer at a time"):
        second.ingest(BEFORE)
    with pytest.raises(StoreError, match=f"process {writer.pid}"):
        second.delete(["d000"])
    assert len(Index.open(path).hybrid_search("text")) == 0
    go.set()
    writer.join()
    assert second.ingest(BEFORE).added == len(BEFORE) - 1
