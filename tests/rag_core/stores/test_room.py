"""Room is asked for before a write, and a writer that did not finish is remembered."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rag_core.errors import StoreError
from rag_core.stores.room import MARGIN_BYTES, MARK, Room, reserve


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes asked for; there is room for a million."""
    sizes: list[int] = []

    def allocate(descriptor: int, offset: int, size: int) -> None:
        sizes.append(size)
        if size > 1_000_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", allocate, raising=False)
    return sizes


def test_a_write_leaves_nothing_behind(tmp_path: Path, asked: list[int]) -> None:
    with Room(tmp_path).writing(5_000):
        assert (tmp_path / MARK).stat().st_size == 0
    assert asked == [5_000 + MARGIN_BYTES]
    assert not list(tmp_path.iterdir())


def test_too_little_room_is_told_before_anything_is_written(tmp_path: Path, asked: list[int]) -> None:
    with (
        pytest.raises(StoreError, match=r"disk is full.* 1,131,072 bytes are needed; nothing was written"),
        Room(tmp_path).writing(1_000_000),
    ):
        pytest.fail("it was begun")


def test_a_log_is_opened_only_with_room_to_repair_it(tmp_path: Path, asked: list[int]) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "1").write_bytes(bytes(900_000))
    room = Room(tmp_path)
    with room.opening(log):
        pass
    assert asked == []  # the last writer finished
    with pytest.raises(RuntimeError), room.writing(0):
        raise RuntimeError
    with pytest.raises(StoreError, match="nothing was written"), room.opening(log):
        pytest.fail("it was opened")
    (log / "1").write_bytes(bytes(800_000))
    with room.opening(log):
        pass
    with room.opening(log):
        pass
    assert [size - MARGIN_BYTES for size in asked] == [0, 900_000, 800_000]


def test_where_a_system_cannot_reserve_the_free_room_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    reserve(tmp_path / MARK, 0)
    with pytest.raises(StoreError, match="disk is full"):
        reserve(tmp_path / MARK, 1 << 60)


def test_a_folder_that_refuses_is_told(tmp_path: Path, asked: Any) -> None:
    with pytest.raises(StoreError, match="No such file"):
        reserve(tmp_path / "gone" / MARK, 0)
