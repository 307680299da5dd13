"""What the page knows of single queries: packed values and lists, texts that fit, no end of a script."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.render import drilldown as module
from harness.render.drilldown import ALPHABET, as_json, drilldown, packed, read_texts
from harness.results import ResultDocument
from harness.rows import make_rows

from .report_folder import HOSTILE, make_folder


def unpacked(text: str, width: int) -> list[int | None]:
    out: list[int | None] = []
    for at in range(0, len(text), width):
        number = 0
        for digit in text[at : at + width]:
            number = -1 if digit == "~" else number * 64 + ALPHABET.index(digit)
        out.append(None if number < 0 else number)
    return out


@pytest.mark.parametrize("width", [2, 3])
def test_packing_and_its_inverse(width: int) -> None:
    numbers = [0, 1, 63, 64, 1000, None, 64**width - 1]
    assert unpacked(packed(numbers, width), width) == numbers
    assert len(packed(numbers, width)) == width * len(numbers)


@pytest.mark.parametrize("text", HOSTILE)
def test_json_may_stand_in_a_script_element(text: str) -> None:
    made = as_json({text: [text]})
    assert json.loads(made) == {text: [text]}
    assert not re.search("[<>&\u2028\u2029\u202e]", made)
    made.encode("utf-8")


def test_values_lists_grades_and_texts(document: ResultDocument, tmp_path: Path) -> None:
    make_folder(document, tmp_path)
    rows = make_rows(document)
    found = drilldown(document, rows, tmp_path)
    assert len(found["queries"]) == len(document.dataset["query_ids"])
    assert [system["row"] for system in found["systems"]] == [i for i, row in enumerate(rows) if row.ok]
    assert found["notes"] == []
    first = found["systems"][0]
    values = rows[0].cell.metrics["ndcg@10"].per_query
    assert unpacked(first["values"][0], 2) == [round(1000 * (value or 0)) for value in values]
    query_id, text, tags, judged = found["queries"][1]
    assert (query_id, text, tags) == ("q01", "text of q01", "keyword · es")
    assert [(found["documents"][number][0], grade) for number, grade in judged] == [
        ("q01-best", 2),
        ("q01-other", 1),
    ]
    top = unpacked(first["tops"], 3)[10:20]
    assert [found["documents"][number][0] for number in top if number is not None] == [
        "q01-best",
        *(f"noise {j}" for j in range(4)),
    ]
    assert found["documents"][judged[0][0]] == ["q01-best", "Title of q01", "All about q01."]


def test_without_texts_and_runs_it_says_so(document: ResultDocument, tmp_path: Path) -> None:
    found = drilldown(document, make_rows(document), tmp_path)
    assert found["notes"] == [
        "The texts of queries and documents are not in this file.",
        "The lists of documents were not kept with this result.",
    ]
    assert found["documents"] == []
    assert found["queries"][0][1] == ""


def test_texts_may_be_left_out_and_grades_stay(document: ResultDocument, tmp_path: Path) -> None:
    make_folder(document, tmp_path)
    found = drilldown(document, make_rows(document), tmp_path, texts=False)
    assert "All about" not in as_json(found)
    assert "text of" not in as_json(found)
    assert found["queries"][1][3][0][1] == 2
    assert found["notes"] == ["The texts of queries and documents are not in this file."]


def test_texts_of_other_data_are_not_shown(document: ResultDocument, tmp_path: Path) -> None:
    make_folder(document, tmp_path)
    assert read_texts(document, tmp_path)
    document.dataset["hash"] = {**document.dataset["hash"], "qrels": "0" * 64}
    assert read_texts(document, tmp_path) == {}
    (tmp_path / "runs" / "texts.json").write_text("{")
    assert read_texts(document, tmp_path) == {}


def test_nothing_judged_gives_nothing(document: ResultDocument, tmp_path: Path) -> None:
    document.cells = [cell for cell in document.cells if cell.status != "ok"]
    assert drilldown(document, make_rows(document), tmp_path) == {}


def test_texts_of_irrelevant_documents_are_cut_first(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(document, tmp_path, noise_text="word " * 60)
    whole = drilldown(document, make_rows(document), tmp_path)
    monkeypatch.setattr(module, "LISTS_SHARE", 1.0)
    monkeypatch.setattr(module, "LONGEST_QUERY", 40)
    monkeypatch.setattr(module, "BUDGET_BYTES", len(as_json(whole)) - 200)
    cut = drilldown(document, make_rows(document), tmp_path)
    texts = {row[0]: row[2:] for row in cut["documents"]}
    assert texts["q01-best"] == ["All about q01."]
    assert len(texts["noise 0"][0]) < 300
    assert "cut to keep this file small" in cut["notes"][0]


def test_where_queries_do_not_fit_the_most_different_stay(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET_BYTES", 8_000)
    for cell in document.cells:
        for found in cell.metrics.values():
            found.per_query = [0.5] * len(found.per_query)
    document.cells[0].metrics["ndcg@10"].per_query[7] = 1.0
    found = drilldown(document, make_rows(document), tmp_path)
    assert 1 <= len(found["queries"]) < 40
    assert "q07" in [query[0] for query in found["queries"]]
    assert re.search(r"Of 40 queries the \d+ that the systems differ on most", " ".join(found["notes"]))


def test_ids_that_are_too_long_leave_fewer_queries(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(document, tmp_path)
    texts = json.loads((tmp_path / "runs" / "texts.json").read_text())
    texts["grades"] = {q: {f"{q}-{'x' * 900}": 1} for q in document.dataset["query_ids"]}
    (tmp_path / "runs" / "texts.json").write_text(json.dumps(texts))
    monkeypatch.setattr(module, "BUDGET_BYTES", 34_000)
    found = drilldown(document, make_rows(document), tmp_path)
    assert len(found["queries"]) == 20
    assert len(as_json(found)) <= 34_000
