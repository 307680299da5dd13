"""Reading a folder of results: in the order of their dates, nothing swallowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.history import read_history
from harness.results import ResultDocument, ResultError

Factory = Callable[..., ResultDocument]


def write(folder: Path, factory: Factory, created: str, name: str = "civic") -> Path:
    document = factory(4)
    document.created, document.name = created, name
    document.write(folder / "result.json")
    return folder / "result.json"


def test_runs_come_in_the_order_of_their_dates_not_of_their_folders(factory: Factory, tmp_path: Path) -> None:
    write(tmp_path / "a", factory, "2026-11-03T03:17:00Z")
    write(tmp_path / "b" / "services", factory, "2026-11-01T23:59:00-05:00", "mini")  # 04:59 UTC next day
    write(tmp_path / "c", factory, "2026-11-02T03:17:00Z")
    write(tmp_path / ".work" / "d", factory, "2026-11-09T03:17:00Z")
    found = read_history(tmp_path)
    assert [(night.where, night.document.name) for night in found.nights] == [
        ("c", "civic"),
        ("b/services", "mini"),
        ("a", "civic"),
    ]
    assert found.names == ["civic", "mini"]
    assert [night.date for night in found.of("civic")] == ["2026-11-02", "2026-11-03"]
    assert found.unreadable == ()


def test_what_cannot_be_read_is_named_with_its_reason(factory: Factory, tmp_path: Path) -> None:
    write(tmp_path / "good", factory, "2026-11-03T03:17:00Z")
    write(tmp_path / "undated", factory, "yesterday")
    write(tmp_path / "zoneless", factory, "2026-11-03T03:17:00")
    file = write(tmp_path / "old", factory, "2026-11-03T03:17:00Z")
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"schema_version": 99}))
    file = write(tmp_path / "odd", factory, "2026-11-03T03:17:00Z")
    file.write_text(json.dumps(values | {"cells": [7]}))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "result.json").write_text('{"schema_version": 1, ')
    found = read_history(tmp_path)
    assert [night.where for night in found.nights] == ["good"]
    reasons = {Path(name).parent.name: reason for name, reason in found.unreadable}
    assert sorted(reasons) == ["odd", "old", "torn", "undated", "zoneless"]
    assert "not a JSON document" in reasons["torn"]
    assert reasons["old"] == "schema_version is 99; accepted: 1"
    assert reasons["undated"].startswith("created is 'yesterday'; accepted: a date")
    assert "with its zone" in reasons["zoneless"]
    assert "not a result document" in reasons["odd"]


def test_a_folder_without_results_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such folder; make results with: bench run"):
        read_history(tmp_path / "none")
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(ResultError, match=r"1 unreadable: .*schema_version is None"):
        read_history(tmp_path)
