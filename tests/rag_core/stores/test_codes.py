"""A look through bytes before exact scores: the same answer, where numba is and where it is not."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rag_core.errors import StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.stores import codes, create_store, kernels, open_store, parallel
from rag_core.stores.flat import MANIFEST, FlatStore

DIM = 48


def identity(dim: int = DIM) -> Fingerprint:
    return Fingerprint("fake", "m", "1", dim, "fp32", "mean")


def rows_near_each_other(n: int, seed: int = 0, dim: int = DIM) -> np.ndarray:
    """Cosines of about 0.9 with one another, as several models' vectors have."""
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((n, dim)) / np.sqrt(dim) + 3 * np.eye(dim)[0]
    return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), np.float32)


def loops() -> kernels.Kernels:
    """What numba compiles, in numpy: the same sums of the same whole numbers."""

    def scan(held: Any, scales: Any, query: Any, out: Any, start: int, stop: int) -> None:
        out[start:stop] = (held[start:stop].astype(np.int32) @ query.astype(np.int32)) * scales[start:stop]

    def scan_rows(held: Any, scales: Any, query: Any, rows: Any, out: Any, start: int, stop: int) -> None:
        part = rows[start:stop]
        out[start:stop] = (held[part].astype(np.int32) @ query.astype(np.int32)) * scales[part]

    return kernels.Kernels(scan, scan_rows)


@pytest.fixture(params=["numpy", "numba"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numba":
        pytest.importorskip("numba", reason="the extra fast is not installed")
    else:
        monkeypatch.setattr(codes, "int8_kernels", loops)


def filled(path: Path, scan: str, rows: np.ndarray) -> FlatStore:
    store = create_store(f"flat?scan={scan}", path, identity(rows.shape[1]))
    assert isinstance(store, FlatStore)
    store.upsert([f"d{n:05}" for n in range(len(rows))], rows, [{"part": n % 20} for n in range(len(rows))])
    return store


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("where", [None, {"part": 3}])
def test_it_finds_what_the_exact_scan_finds(tmp_path: Path, where: dict[str, int] | None) -> None:
    """Every id and every bit of every score, of the best 50 of 6,000 rows that lie close together."""
    rows = rows_near_each_other(6000)
    exact, coded = filled(tmp_path / "e", "exact", rows), filled(tmp_path / "c", "int8", rows)
    for query in rows_near_each_other(20, seed=1):
        assert coded.search(query, 50, where) == exact.search(query, 50, where)
    assert coded.search(rows[9], 1).doc_ids == ("d00009",)
    assert len(coded.search(rows[9], 9000)) == 6000


@pytest.mark.usefixtures("compiled")
def test_equal_rows_beyond_the_pool_follow_the_tie_rule(tmp_path: Path) -> None:
    rows = np.repeat(rows_near_each_other(1), 500, axis=0)
    found = filled(tmp_path, "int8", rows).search(rows[0], 3)
    assert found.doc_ids == ("d00499", "d00498", "d00497")


def test_the_pool_grows_where_rows_lie_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "int8_kernels", loops)
    query = rows_near_each_other(1, seed=4)[0]
    sizes = []
    for scale in (1.0, 0.02):
        rows = rows_near_each_other(4000) * np.float32(scale) + np.eye(DIM, dtype=np.float32)[0] * (1 - scale)
        rows = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)
        found = codes.near_by_codes(codes.Codes(*codes.coded(rows)), query, 50)
        assert found is not None
        exact = np.argsort(-(rows.astype(np.float64) @ query))[:50]
        assert set(exact.tolist()) <= set(found.tolist())
        sizes.append(len(found))
    assert codes.POOL <= sizes[0] < sizes[1]


def test_codes_tell_how_much_they_lose() -> None:
    rows = rows_near_each_other(100)
    held, scales, spread = codes.coded(rows)
    lost = np.linalg.norm(rows - held * scales[:, None], axis=1)
    assert spread == pytest.approx(lost.max(), rel=1e-5)
    assert np.abs(held).max(axis=1).tolist() == [127] * 100


@pytest.mark.usefixtures("compiled")
def test_it_survives_writes_and_reopening(tmp_path: Path) -> None:
    rows = rows_near_each_other(400)
    store = filled(tmp_path / "s", "int8", rows)
    store.delete([f"d{n:05}" for n in range(0, 400, 2)])
    store.upsert(["d00001", "new"], rows[:2])
    store.close()
    again = open_store("flat", tmp_path / "s", identity())
    assert isinstance(again, FlatStore)
    assert again.scan == "int8"
    assert again.search(rows[0], 2).doc_ids[0] == "d00001"
    assert again.search(rows[1], 2).doc_ids[0] == "new"
    assert {path.name.split("-")[0] for path in (tmp_path / "s").iterdir()} == {
        "codes", "manifest.json", "rows", "vectors"
    }  # fmt: skip


def test_damaged_codes_are_reported(tmp_path: Path) -> None:
    store = filled(tmp_path, "int8", rows_near_each_other(30))
    file = tmp_path / json.loads((tmp_path / MANIFEST).read_text())["files"]["codes"]
    with file.open("wb") as stream:
        codes.write_codes(stream, store._vectors[:7])
    with pytest.raises(StoreError, match="does not hold the codes of 30 rows"):
        FlatStore.open(tmp_path)
    file.unlink()
    with pytest.raises(StoreError, match="is damaged"):
        FlatStore.open(tmp_path)


def test_without_numba_the_exact_scan_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *args: Any) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    kernels.int8_kernels.cache_clear()
    monkeypatch.setattr(kernels, "importlib", SimpleNamespace(import_module=refuse))
    try:
        assert kernels.int8_kernels() is None
        rows = rows_near_each_other(300)
        coded, exact = filled(tmp_path / "c", "int8", rows), filled(tmp_path / "e", "exact", rows)
        assert coded.search(rows[5], 9) == exact.search(rows[5], 9)
    finally:
        kernels.int8_kernels.cache_clear()


def test_the_loops_are_those_that_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for numba that compiles nothing, and has nowhere to keep what it compiled."""

    class Kind:
        def __getitem__(self, key: Any) -> Any:
            return self

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self

    class Numba:
        int8 = int16 = int64 = float32 = void = Kind()
        types = type("types", (), {"Array": Kind()})

        @staticmethod
        def njit(signature: Any, nogil: bool, cache: bool = False) -> Any:
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return lambda loop: loop

    kernels.int8_kernels.cache_clear()
    monkeypatch.setattr(kernels, "importlib", SimpleNamespace(import_module=lambda name: Numba))
    try:
        own, reference = kernels.int8_kernels(), loops()
        assert own is not None
        held, scales, _ = codes.coded(rows_near_each_other(9))
        query, rows = np.arange(-20, DIM - 20, dtype=np.int16), np.array([7, 2, 2])
        for name, extra, n in (("scan", (), 9), ("scan_rows", (rows,), 3)):
            found, wanted = np.zeros(n, np.float32), np.zeros(n, np.float32)
            getattr(own, name)(held, scales, query, *extra, found, 1, n)
            getattr(reference, name)(held, scales, query, *extra, wanted, 1, n)
            assert found.tolist() == pytest.approx(wanted.tolist(), rel=1e-6)
            assert found[0] == 0
    finally:
        kernels.int8_kernels.cache_clear()


def test_whether_there_are_loops_is_told_without_compiling() -> None:
    kernels.int8_kernels.cache_clear()
    told = kernels.has_int8_kernels()
    assert kernels.int8_kernels.cache_info().currsize == 0
    assert told == (kernels.int8_kernels() is not None)


def test_rows_that_are_too_wide_for_the_sums_are_scanned_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "int8_kernels", loops)
    rows = rows_near_each_other(3, dim=codes.WIDEST + 1)
    assert codes.near_by_codes(codes.Codes(*codes.coded(rows)), rows[0], 1) is None
    assert codes.WIDEST * codes.LARGEST * codes.LARGEST_OF_QUERY < 2**31


def test_every_part_is_worked_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_processors", lambda: 4)
    caller, helped = threading.get_ident(), threading.Event()
    parts = []

    def work(start: int, stop: int) -> None:
        parts.append((start, stop))
        if threading.get_ident() != caller:
            helped.set()
        assert helped.wait(timeout=30)

    parallel.in_parts(95, 10, work)
    assert set(parts) == {(start, min(95, start + 10)) for start in range(0, 95, 10)}


def test_a_helper_without_a_processor_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller does its part again, and so meets what went wrong there."""
    monkeypatch.setattr(parallel, "_processors", lambda: 2)
    caller, begun, goes_on = threading.get_ident(), threading.Event(), threading.Event()
    parts = []

    def work(start: int, stop: int) -> None:
        if threading.get_ident() == caller:
            assert begun.wait(timeout=30)
            parts.append(start)
        else:
            begun.set()
            goes_on.wait(timeout=30)

    try:
        parallel.in_parts(50, 10, work)
        assert sorted(parts) == [0, 10, 20, 30, 40]
    finally:
        goes_on.set()


def test_an_error_in_a_part_is_raised_and_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_processors", lambda: 1)
    begun = []

    def work(start: int, stop: int) -> None:
        begun.append(start)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        parallel.in_parts(50, 10, work)
    assert begun == [0]
    parallel.in_parts(0, 10, work)
    assert begun == [0]


def test_threads_are_as_many_as_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_THREADS", "1")
    parallel._processors.cache_clear()
    try:
        assert parallel._processors() == 1
    finally:
        parallel._processors.cache_clear()
