from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from providers._cache import cache_folder, write_whole


def test_the_folder_is_the_chosen_one_else_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAG_CACHE_DIR", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "rag-core"
    monkeypatch.setenv("RAG_CACHE_DIR", "  ")
    assert cache_folder() == tmp_path / ".cache" / "rag-core"
    monkeypatch.setenv("RAG_CACHE_DIR", "~/mine")
    assert cache_folder() == tmp_path / "mine"


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def _write_often(path: Path, letter: bytes) -> None:
    for _ in range(20):
        write_whole(path, letter * 100_000)


def test_processes_that_write_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"c" * 100_000)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(path, letter)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen = path.read_bytes()
        assert len(seen) == 100_000
        assert len(set(seen)) == 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert os.listdir(tmp_path) == ["file"]
