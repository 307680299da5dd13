"""The page: what is on it, that nothing on it is taken for markup, its size, the same bytes each time."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from copy import deepcopy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.render import html
from harness.render.html import model, render
from harness.results import CellKey, ResultDocument
from harness.rows import make_rows
from harness.summary import verdict

from .conftest import make_document
from .report_folder import HOSTILE, make_folder, make_hostile


class Page(HTMLParser):
    """Elements by name, ids, and the text of the two scripts and the style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag in self.raw:
            self.raw[tag].append("")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]][-1] += data
        else:
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [value or "" for _, found, value in self.attributes if found == name]


@pytest.fixture
def page(document: ResultDocument, tmp_path: Path) -> str:
    make_folder(document, tmp_path)
    return render(document, tmp_path)


def model_of(page: str) -> dict[str, Any]:
    return json.loads(Page(page).raw["script"][0])  # type: ignore[no-any-return]


def test_it_says_what_the_verdict_says(document: ResultDocument, page: str) -> None:
    text = "".join(Page(page).text)
    for sentence in verdict(document).sentences:
        assert sentence in text
    for fact in ("civic, 121 documents", "40", "2026-11-30 05:59:30 UTC", "Some CPU, 2 CPUs"):
        assert fact in text


def test_every_system_has_a_row_and_a_failure_its_reason(document: ResultDocument, page: str) -> None:
    body = page[page.index('<table id="systems">') :]
    body = body[: body.index("</table>")]
    assert body.count("<tr id=") == len(document.cells)
    for row in make_rows(document):
        assert f"<bdi>{row.label}</bdi>" in body
    assert body.count("the weights are upside down") == 2
    assert body.index("e5-small · hybrid") < body.index("bm25") < body.index("upside down")


def test_all_sections_of_the_markdown_report_are_there(page: str) -> None:
    for title in ("Cold start and throughput", "by language of the query", "What was run", "Data set"):
        assert title in page
    for place in ("speed", "metrics", "strata", "queries", "gaps", "method"):
        assert f'<section id="{place}"' in page
        assert f'href="#{place}"' in page


def test_it_loads_and_sends_nothing(page: str) -> None:
    found = Page(page)
    links = [value for value in (*found.values("href"), *found.values("src")) if not value.startswith("#")]
    assert links == ["data:,"]
    assert not {"img", "iframe", "object", "embed", "base"} & set(found.names)
    for forbidden in ("fetch(", "XMLHttpRequest", "import(", "sendBeacon", "WebSocket", "innerHTML", "eval("):
        assert forbidden not in found.raw["script"][1]
    assert not re.search(r"@import|url\(", found.raw["style"][0])


def test_the_policy_allows_its_own_script_and_style_alone(page: str) -> None:
    found = Page(page)
    (policy,) = [value for value in found.values("content") if "default-src" in value]
    for kind, text in (("style", found.raw["style"][0]), ("script", found.raw["script"][1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "style" not in [name for _, name, _ in found.attributes]
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]


def test_hostile_texts_stay_texts(document: ResultDocument, tmp_path: Path) -> None:
    make_folder(document, tmp_path)
    plain = Page(render(document, tmp_path))
    make_hostile(document, tmp_path)
    made = render(document, tmp_path)
    made.encode("utf-8")
    hostile = Page(made)
    assert hostile.names.count("script") == plain.names.count("script") == 2
    assert "img" not in hostile.names
    assert not [name for _, name, _ in hostile.attributes if name.startswith("on")]
    texts = {query[1] for query in json.loads(hostile.raw["script"][0])["drill"]["queries"]}
    assert texts == set(HOSTILE)


def test_the_same_document_gives_the_same_bytes(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(document, tmp_path)
    first = render(document, tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert render(ResultDocument.from_dict(document.as_dict()), tmp_path) == first
    (path,) = html.write(document, tmp_path / "out", tmp_path)
    assert path.read_text(encoding="utf-8") == first


def test_the_front_is_what_nothing_beats_in_both(document: ResultDocument) -> None:
    rows = make_rows(document)
    made = model(document, rows, verdict(document))
    front = {row["label"] for row in made["rows"] if row["front"][made["main"]]}
    points = [(row["p95"], row["means"][0], row["label"]) for row in made["rows"] if row["p95"]]
    beaten = {
        label for x, y, label in points if any(a <= x and b >= y and (a, b) != (x, y) for a, b, _ in points)
    }
    assert front == {label for *_, label in points} - beaten
    assert made["rows"][made["winner"]]["winner"]
    assert [row["p95"] for row in made["rows"]][-2:] == [None, None]


def test_a_result_without_a_judged_cell_still_has_a_page(document: ResultDocument, tmp_path: Path) -> None:
    document.cells = [cell for cell in document.cells if cell.status != "ok"]
    made = render(document, tmp_path)
    assert "Not measured: no cell has a value" in made
    assert '<section id="queries" hidden>' in made
    assert model_of(made)["drill"] == {}


def test_what_is_not_to_be_recommended_is_marked(marked: ResultDocument, tmp_path: Path) -> None:
    marked.parity[1]["reason"] = "overlap <0.31>"
    made = render(marked, tmp_path)
    assert made.count("not recommended</span>") == 2
    assert "overlap &lt;0.31&gt;" in made
    assert '<section id="agreement"><h2>' in made


def test_commands_are_shown_where_the_result_has_them(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "The command that makes each row again" not in render(document, tmp_path)
    rows = make_rows(document)

    class Cell:
        command = "bench run --provider 'a<b'"

    shown = html._commands([replace(rows[0], cell=Cell())])  # type: ignore[arg-type]
    assert "<code>bench run --provider &#39;a&lt;b&#39;</code>" in shown


def test_twenty_systems_with_a_thousand_queries_are_below_3_mb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = make_document(1000)
    first = document.cells[0]
    document.cells = []
    for number in range(20):
        cell = deepcopy(first)
        cell.key = CellKey("civic", f"model-{number}", "cpu", "fp32", "flat", "vector", "-")
        document.cells.append(cell)
    document.baseline = document.cells[1].key.cell_id
    query_ids = document.dataset["query_ids"]
    # each list of its own documents: the least that interning can save
    monkeypatch.setattr(
        "harness.render.drilldown._tops",
        lambda row, folder: {
            q: [
                f"document-{(int(row.cell.key.provider[6:]) * 977 + 31 * i + j) % 20000:05d}"
                for j in range(10)
            ]
            for i, q in enumerate(query_ids)
        },
    )
    texts = {
        "hash": document.dataset["hash"],
        "queries": {q: f"a question of some length about {q}, as people ask it" for q in query_ids},
        "grades": {q: {f"document-{i:05d}": 1} for i, q in enumerate(query_ids)},
        "documents": {f"document-{i:05d}": [f"Title {i}", "ação " * 70] for i in range(20000)},
    }
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "texts.json").write_text(json.dumps(texts))
    made = render(document, tmp_path)
    assert 1_000_000 < len(made.encode()) < 3_000_000
    drill = model_of(made)["drill"]
    assert len(drill["queries"]) == 1000
    assert len(drill["systems"]) == 20
