"""Hits and reports as text, and progress in a log."""

from __future__ import annotations

import json
import math
import sys

import pytest

from rag_core.app.showing import (
    hit_dict,
    progress,
    report_lines,
    result_dict,
    result_lines,
    stats_lines,
    wrapped,
)
from rag_core.index import Hit, SearchResult
from rag_core.index_report import IngestReport
from rag_core.progress import tell
from rag_core.types import Document


def a_hit(text: str = "The ferry leaves at nine.", title: str = "Ferry", **metadata: str) -> Hit:
    return Hit(Document("d1", text, title, metadata), 0.5, "bm25", {"bm25": 1}, {"bm25": math.nan})


def test_json_holds_no_nan() -> None:
    result = SearchResult((a_hit(),), ("w",), {"bm25": 0.1}, "why")
    found = json.loads(json.dumps(result_dict("q", result), allow_nan=False))
    assert found["hits"] == [hit_dict(a_hit())]
    assert found["hits"][0]["scores"] == {"bm25": None}
    assert (found["query"], found["warnings"], found["degraded"]) == ("q", ["w"], "why")


def test_a_hit_is_a_line_and_the_start_of_its_text() -> None:
    hit = a_hit("word " * 200, source="ferry.md", section="Times")
    lines = result_lines(SearchResult((hit,)))
    assert lines[0] == " 1  0.5000  bm25  Ferry · ferry.md · Times"
    assert len(lines) == 4
    assert lines[-1].endswith("word …")
    assert max(map(len, lines)) <= 80


def test_without_a_source_the_id_stands_for_it_and_nothing_stands_twice() -> None:
    assert result_lines(SearchResult((a_hit(),)))[0].endswith("Ferry · d1")
    assert result_lines(SearchResult((a_hit(title="ferry.md", source="ferry.md"),)))[0].endswith(
        "bm25  ferry.md"
    )
    assert result_lines(SearchResult(())) == ["nothing found"]


def test_a_document_cannot_move_the_cursor() -> None:
    hit = a_hit("one\x1b[2Jtwo\r\u202ethree", title="a\x07b", source="x\ny")
    assert not any(
        char in "\n".join(result_lines(SearchResult((hit,)))[i] for i in (0, 1))
        for char in "\x1b\r\u202e\x07"
    )


def test_long_words_are_not_broken() -> None:
    assert wrapped("run: " + "x" * 100) == ["run:", "x" * 100]


def test_a_report_says_what_was_done_and_what_was_not() -> None:
    plain = report_lines(IngestReport(added=3, unchanged=1200, embedded_texts=3, seconds=1.25))
    assert plain == ["chunks: 3 added, 0 updated, 0 removed, 1,200 unchanged; 3 embedded in 1.2 s"]
    skipped = {f"f{i}.bin": "not text" for i in range(7)}
    told = report_lines(IngestReport(failed={"d1": "refused"}, skipped=skipped, reused_vectors=2, oversize=1))
    assert "2 vectors were at hand and not made again" in told
    assert "file passed over: f0.bin: not text" in told
    assert "… and 2 more" in told
    assert any(line.startswith("chunk without a vector") for line in told)
    assert any(line.startswith("1 chunks are longer") for line in told)


def test_stats_are_a_name_and_a_value_a_line() -> None:
    lines = stats_lines(
        {"documents": 1234, "provider": ["a", "b"], "identity": {"dim": 64, "normalised": True}}
    )
    assert [line.split() for line in lines] == [
        ["documents", "1,234"],
        ["provider", "a,", "b"],
        ["identity.dim", "64"],
        ["identity.normalised", "True"],
    ]


def test_a_log_gets_a_line_a_tenth_and_hears_the_providers(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as shown:
        for done in range(1001):
            shown("embed", done, 1000)
        shown("read", 5, 0)
        tell("load", 1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[:2] == ["embed: 100 of 1,000", "embed: 200 of 1,000"]
    assert len(lines) == 11
    assert lines[-1] == "load: 1 of 2"
    tell("load", 2, 2)
    assert capsys.readouterr().err == ""


def test_a_log_gets_the_beginning_of_what_has_no_known_end(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as shown:
        shown("index vectors", 0, 0)
        shown("index vectors", 7, 0)
        shown("index words", 0, 5)
    assert capsys.readouterr().err == "index vectors …\n"


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    with progress() as shown:
        shown("load", 1, 2)
        shown("embed", 1, 0)
        shown("embed", 3, 5)
        shown("load", 2, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err
    assert "load" in err


def test_a_stage_that_starts_again_is_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as shown:
        for _ in range(2):
            for done in (1, 2):
                shown("embed", done, 2)
    assert capsys.readouterr().err.splitlines() == ["embed: 1 of 2", "embed: 2 of 2"] * 2
