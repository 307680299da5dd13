"""One segment: its checksum, its single writer, its whole records."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.protocols import Vectors
from rag_core.segments import ENTRY, KEYS, ROWS, Segment, SegmentWriter, checksums

DIM = 5


def key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def vectors(numbers: list[int], dim: int = DIM) -> Vectors:
    return np.random.default_rng(numbers).standard_normal((len(numbers), dim), dtype=np.float32)


@given(st.integers(1, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_one_or_two_flipped_bits_change_the_checksum(dim: int, data: st.DataObject) -> None:
    record = np.zeros(1, ENTRY)
    record["key"] = np.frombuffer(key(1), "<u8")
    record["written_at"] = 1.7e9
    row = vectors([1], dim)
    right = checksums(record["key"], record["written_at"], row)
    raw = bytearray(record.tobytes()[:40] + row.tobytes())
    for bit in data.draw(st.lists(st.integers(0, 8 * len(raw) - 1), min_size=1, max_size=2, unique=True)):
        raw[bit // 8] ^= 1 << bit % 8
    keys = np.frombuffer(raw[:32], "<u8").reshape(1, 4)
    changed = checksums(keys, np.frombuffer(raw[32:40], "<f8"), np.frombuffer(raw[40:], "<f4").reshape(1, -1))
    assert changed[0] != right[0]


def test_flipped_signs_change_the_checksum() -> None:
    """The top bits of words are where sums of products are weakest: all sets of signs of eight floats."""
    rows = np.ones((256, 8), np.float32)
    rows[np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) == 1] *= -1
    sums = checksums(np.zeros((256, 4), np.uint64), np.zeros(256), rows)
    assert len(set(sums.tolist())) == 256


def test_checksums_follow_their_definition() -> None:
    """Worked out with Python's whole numbers: the same on every machine, whatever the batch."""
    numbers = list(range(100))
    keys = np.frombuffer(b"".join(map(key, numbers)), "<u8").reshape(-1, 4)
    times = np.arange(len(numbers), dtype=np.float64)
    rows = vectors(numbers)
    sums = checksums(keys, times, rows)
    n_words = DIM + 10
    stream = hashlib.shake_256(b"rag_core vector log").digest(8 * n_words)
    factors = [int.from_bytes(stream[i : i + 8], "little") | 1 for i in range(0, 8 * n_words, 8)]
    for number in numbers:
        raw = key(number) + times[number : number + 1].tobytes() + rows[number].tobytes()
        words = [int.from_bytes(raw[i : i + 4], "little") for i in range(0, 4 * n_words, 4)]
        assert int(sums[number]) == sum(map(int.__mul__, words, factors)) % 2**64


def test_a_segment_has_one_writer(tmp_path: Path) -> None:
    first = SegmentWriter.create(tmp_path, DIM)
    assert SegmentWriter.adopt(tmp_path, first.name, DIM) is None
    first.close()
    second = SegmentWriter.adopt(tmp_path, first.name, DIM)
    assert second is not None
    second.close()
    assert SegmentWriter.adopt(tmp_path, "nothing", DIM) is None


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New segments are made, old ones are left alone."""
    fcntl = pytest.importorskip("fcntl", reason="needs a system with flock")

    def refuse(file: int, how: int) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    writer = SegmentWriter.create(tmp_path, DIM)
    writer.close()
    assert SegmentWriter.adopt(tmp_path, writer.name, DIM) is None


def test_a_segment_without_rows_has_no_records(tmp_path: Path) -> None:
    (tmp_path / f"name{KEYS}").write_bytes(bytes(96))
    segment = Segment(tmp_path, "name", DIM)
    assert segment.grow(96) == 0
    (tmp_path / f"name{ROWS}").write_bytes(bytes(4 * DIM))
    assert segment.grow(96) == 1
    (tmp_path / f"name{ROWS}").unlink()
    assert segment.mapped() is None
