"""The texts beside a result, and `bench report` on a folder that lacks them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.config import RunSpec
from harness.datasets import load_dataset
from harness.render.drilldown import read_texts
from harness.results import ResultDocument, load_result
from harness.runner import run
from harness.texts import EXCERPT, _cut, ensure_texts, report_again, write_texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("texts") / "out"
    run(RunSpec(data="mini", providers=("fake",), pipelines=("bm25", "hybrid")), out)
    return out


def test_a_run_keeps_the_texts_of_its_report(folder: Path) -> None:
    document = load_result(folder)
    texts = read_texts(document, folder)
    dataset = load_dataset("mini")
    assert set(texts["queries"]) == set(document.dataset["query_ids"])
    for query_id, grades in texts["grades"].items():
        assert grades == dataset.relevance[query_id]
        assert {doc_id for doc_id, grade in grades.items() if grade >= 1} <= set(texts["documents"])
    by_id = {found.doc_id: found for found in dataset.documents}
    for doc_id, (title, text) in texts["documents"].items():
        assert title == by_id[doc_id].title
        assert text.rstrip("…") in " ".join(by_id[doc_id].text.split())
        assert len(text) <= EXCERPT


def test_the_report_is_the_same_with_texts_made_again(folder: Path) -> None:
    report_again(load_result(folder), folder)
    first = (folder / "report.html").read_bytes()
    (folder / "runs" / "texts.json").unlink()
    printed = report_again(load_result(folder), folder)
    assert (folder / "report.html").read_bytes() == first
    assert str(folder / "report.html") in printed
    assert not [line for line in printed if line.startswith("no texts")]


def test_the_report_elsewhere_shows_what_stands_beside_the_result(folder: Path, tmp_path: Path) -> None:
    report_again(load_result(folder), folder)
    report_again(load_result(folder), folder, tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "report.html").read_bytes() == (folder / "report.html").read_bytes()


def test_other_data_of_that_name_gives_no_texts(folder: Path, tmp_path: Path) -> None:
    values = json.loads((folder / "result.json").read_text())
    values["dataset"]["hash"]["corpus"] = "0" * 64
    document = ResultDocument.from_dict(values)
    (tmp_path / "runs").mkdir()
    assert "no longer the data that was measured" in ensure_texts(document, tmp_path)
    document.dataset["name"] = "no-such-data"
    assert ensure_texts(document, tmp_path).startswith("no texts in the report: ")
    assert not (tmp_path / "runs" / "texts.json").exists()


def test_without_runs_no_data_set_is_looked_for(document: ResultDocument, tmp_path: Path) -> None:
    assert ensure_texts(document, tmp_path) == ""


def test_the_file_is_plain_ascii_whatever_the_texts_hold(folder: Path, tmp_path: Path) -> None:
    document, dataset = load_result(folder), load_dataset("mini")
    path = write_texts(dataset, document, tmp_path)
    path.read_bytes().decode("ascii")


def test_a_cut_text_ends_with_a_whole_word() -> None:
    assert _cut("short") == "short"
    assert _cut("word " * 100).endswith("word…")
    assert len(_cut("x" * 1000)) == EXCERPT
