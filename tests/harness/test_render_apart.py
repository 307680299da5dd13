"""Plots drawn by a process of their own: the same files, and the usual way where it cannot."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.render import apart, write_report
from harness.render.apart import Drawing, is_worth_it
from harness.results import ResultDocument
from harness.rows import clean, make_rows


def test_the_same_files_as_without(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    usual = write_report(document, tmp_path / "usual")
    monkeypatch.setattr("harness.render.is_worth_it", lambda document: True)
    apart_too = write_report(document, tmp_path / "apart")
    assert [path.name for path in apart_too] == [path.name for path in usual]
    assert apart_too.notes == []
    for a, b in zip(usual, apart_too):
        assert a.read_bytes() == b.read_bytes()


def test_a_process_that_fails_is_made_up_for(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("harness.render.is_worth_it", lambda document: True)
    monkeypatch.setenv("PYTHONHOME", str(tmp_path / "nowhere"))  # a Python that cannot start
    written = write_report(document, tmp_path / "out")
    assert "quality.svg" in [path.name for path in written]
    assert "](quality.svg)" in (tmp_path / "out" / "report.md").read_text()


def test_nothing_is_left_running(document: ResultDocument, tmp_path: Path) -> None:
    tidy = clean(document)
    drawing = Drawing(tidy, make_rows(tidy), tmp_path)
    drawing.stop()
    assert drawing._process.returncode is not None
    drawing.stop()
    drawing = Drawing(tidy, make_rows(tidy), tmp_path)
    drawing._process.kill()
    drawing._process.wait()
    assert drawing.paths() is None


def test_worth_it_for_a_large_result_with_a_second_cpu(
    factory: Callable[..., ResultDocument], monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = factory(1000), factory(40)
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    monkeypatch.setattr(apart, "find_spec", lambda name: importlib.machinery.ModuleSpec(name, None))
    monkeypatch.setattr(apart, "usable_cpus", lambda: 2)
    assert is_worth_it(large)
    assert not is_worth_it(small)
    monkeypatch.setattr(apart, "usable_cpus", lambda: 1)
    assert not is_worth_it(large)
    monkeypatch.setattr(apart, "usable_cpus", lambda: 2)
    monkeypatch.setattr(apart, "find_spec", lambda name: None)
    assert not is_worth_it(large)
