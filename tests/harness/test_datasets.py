from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import DataError, Dataset, list_datasets, load_dataset, load_tables, table_paths
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.types import Document, Qrel, Query

SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


CORPUS = lines(
    {"_id": "d1", "text": "one"}, {"_id": "d2", "title": "Two", "text": "two", "metadata": {"lang": "en"}}
)
QUERIES = lines({"_id": "q1", "text": "first?"}, {"_id": "q2", "text": "second?"})
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n"


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "set/corpus.jsonl", CORPUS)
    write(tmp_path / "set/queries.jsonl", QUERIES)
    write(tmp_path / "set/qrels/test.tsv", QRELS)
    return tmp_path / "set"


def test_beir_folder(folder):
    data = load_dataset(folder)
    assert data.name == "set"
    assert data.documents == (Document("d1", "one"), Document("d2", "two", "Two", {"lang": "en"}))
    assert data.queries == (Query("q1", "first?"), Query("q2", "second?"))
    assert data.qrels == (Qrel("q1", "d1", 1), Qrel("q2", "d2", 2))
    assert data.relevance == {"q1": {"d1": 1}, "q2": {"d2": 2}}
    assert (data.languages, data.licence, data.headline, data.scope, data.notes) == ((), "", (), "", ())
    assert data.path == str(folder)


def test_o07_missing_and_null_titles_and_an_empty_document(folder):
    corpus = (
        '{"_id":"d1","text":"x"}\n{"_id":"d2","title":null,"text":""}\n{"_id":"d3","title":"only a title"}\n'
    )
    write(folder / "corpus.jsonl", corpus)
    data = load_dataset(folder)
    assert [d.title for d in data.documents] == ["", "", "only a title"]
    assert [d.doc_id for d in data.empty_documents] == ["d2"]
    assert data.documents[2].indexed_text == "only a title"
    assert "d2" in {d.doc_id for d in data.documents}
    assert "empty documents, known ids that are never hits: 1" in data.notes


def test_dataset_toml_describes_the_set(folder):
    write(
        folder / "dataset.toml",
        'name = "mine"\ndescription = "a set"\nlicence = "CC0-1.0"\nlanguages = ["en", "es"]\n'
        'headline = ["q2"]\nscope = "lang"\n',
    )
    data = load_dataset(folder)
    assert (data.name, data.description, data.licence) == ("mine", "a set", "CC0-1.0")
    assert (data.languages, data.headline, data.scope) == (("en", "es"), ("q2",), "lang")


@pytest.mark.parametrize(
    ("language", "languages", "query_languages"), [("es->en", ("en", "es"), ("es",)), ("pt", ("pt",), ())]
)
def test_dataset_json_of_other_sets_is_understood(folder, language, languages, query_languages):
    write(
        folder / "dataset.json",
        json.dumps({"language": language, "license": "MIT", "kind": "a kind", "docs": 2}),
    )
    data = load_dataset(folder)
    assert (data.languages, data.query_languages) == (languages, query_languages)
    assert (data.licence, data.description) == ("MIT", "a kind")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("dataset.toml", "name = ", "not TOML"),
        ("dataset.json", "{", "not JSON"),
        ("dataset.json", "[1]", "not an object"),
        ("dataset.toml", "languages = 'en'", "languages is 'en'; accepted: a list of strings"),
        ("dataset.toml", "headline = [1]", "headline is"),
        ("dataset.toml", "name = 1", "name is 1; accepted: a string"),
        ("dataset.toml", "hashes = 'x'", "hashes is 'x'"),
    ],
)
def test_a_description_that_cannot_be_read_is_named(folder, name, text, words):
    write(folder / name, text)
    with pytest.raises(DataError, match=words) as caught:
        load_dataset(folder)
    assert caught.value.file == folder / name


def test_scope_is_taken_from_records_that_all_have_one_unless_told_otherwise(folder):
    write(folder / "corpus.jsonl", lines({"_id": "d1", "text": "x", "metadata": {"scope": "a"}}))
    write(folder / "queries.jsonl", lines({"_id": "q1", "text": "x", "metadata": {"scope": "a"}}))
    write(folder / "qrels/test.tsv", "q1\td1\t1\n")
    data = load_dataset(folder)
    assert data.scope == "scope"
    assert any("searches within its metadata 'scope'" in note for note in data.notes)
    write(folder / "dataset.toml", 'scope = ""')
    assert load_dataset(folder).scope == ""


def test_queries_without_judgement_stay_and_foreign_judgements_are_left_out(folder):
    write(folder / "qrels/test.tsv", "q1\td1\t1\nnobody\td1\t1\nq1\tnowhere\t1\n")
    data = load_dataset(folder)
    assert len(data.queries) == 2
    assert len(data.qrels) == 3
    assert data.relevance == {"q1": {"d1": 1, "nowhere": 1}}
    assert "queries without a judgement: 1" in data.notes
    assert "judgements of queries that are not in the set, left out: 1" in data.notes


def test_the_split_test_is_read_and_others_are_named(folder):
    write(folder / "qrels/train.tsv", "q1\td2\t1\n")
    data = load_dataset(folder)
    assert len(data.qrels) == 2
    assert "judgements read from test.tsv; not read: train.tsv" in data.notes
    write(folder / "dataset.toml", 'split = "train"')
    assert load_dataset(folder).qrels == (Qrel("q1", "d2", 1),)
    write(folder / "dataset.toml", 'split = "gold"')
    with pytest.raises(DataError, match=r"split 'gold' among \['test', 'train'\]"):
        load_dataset(folder)


def test_a_single_judgement_file_of_any_name_is_read(folder):
    (folder / "qrels/test.tsv").rename(folder / "qrels/gold.tsv")
    assert len(load_dataset(folder).qrels) == 2


def test_missing_judgements_are_an_error_that_says_what_is_accepted(folder):
    (folder / "qrels/test.tsv").unlink()
    with pytest.raises(DataError, match=r"accepted: qrels/test.tsv, qrels.tsv or qrels.csv"):
        load_dataset(folder)


def test_tables_in_a_folder_give_the_same_set(folder, tmp_path):
    csv = tmp_path / "csv"
    write(csv / "corpus.csv", "_id,title,text,lang\nd1,,one,\nd2,Two,two,en\n")
    write(csv / "queries.tsv", "q1\tfirst?\nq2\tsecond?\n")
    write(csv / "qrels.csv", "q1,d1,1\nq2,d2,2\n")
    data = load_dataset(csv)
    assert data.hashes == load_dataset(folder).hashes
    assert data.hash == load_dataset(folder).hash


def test_three_files_anywhere(folder, tmp_path):
    corpus = write(tmp_path / "a/docs.csv", "_id,title,text,lang\nd1,,one,\nd2,Two,two,en\n")
    queries = write(tmp_path / "b/asked.jsonl", QUERIES)
    qrels = write(tmp_path / "c/judged.txt", "q1 0 d1 1\nq2 0 d2 2\n")
    data = load_tables(corpus, queries, qrels)
    assert data.name == "a"
    assert data.hash == load_dataset(folder).hash
    again = load_dataset(table_paths(corpus, queries, qrels))
    assert again == data
    assert again.path == data.path
    write(tmp_path / "a/dataset.toml", 'name = "described"')
    assert load_tables(corpus, queries, qrels).name == "described"


def test_hashes_follow_content_not_files(folder):
    before = load_dataset(folder)
    for file in ("corpus.jsonl", "queries.jsonl"):
        path = folder / file
        turned = path.read_text().splitlines()[::-1]
        write(path, "\ufeff" + "\r\n".join(turned) + "\r\n")
    write(folder / "qrels/test.tsv", "\ufeffq2 0 d2\t2\r\nq1 0 d1\t1\r\n")
    after = load_dataset(folder)
    assert after.hash == before.hash
    assert (after.corpus_hash, after.queries_hash, after.qrels_hash) == tuple(before.hashes.values())


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("corpus.jsonl", "one", "One", "corpus"),
        ("corpus.jsonl", '"lang": "en"', '"lang": "es"', "corpus"),
        ("queries.jsonl", "first", "last", "queries"),
        ("qrels/test.tsv", "d2\t2", "d2\t1", "qrels"),
    ],
)
def test_hashes_change_with_content(folder, file, old, new, changed):
    before = load_dataset(folder)
    text = (folder / file).read_text()
    assert old in text
    write(folder / file, text.replace(old, new))
    after = load_dataset(folder)
    assert {part for part in before.hashes if before.hashes[part] != after.hashes[part]} == {changed}
    assert after.hash != before.hash


def test_hashes_written_in_the_description_are_compared(folder):
    digest = load_dataset(folder).corpus_hash
    write(folder / "dataset.toml", f'[hashes]\ncorpus = "{digest[:16]}"\nqueries = "0000"\nother = "x"\n')
    notes = load_dataset(folder).notes
    assert len(notes) == 1
    assert notes[0].startswith("queries has changed since dataset.toml was written")


def test_unknown_name_says_where_it_looked_and_what_is_near():
    with pytest.raises(
        UnknownNameError, match=r"no data set 'minni': looked in .*fixtures.*did you mean 'mini'"
    ):
        load_dataset("minni")


def test_a_folder_that_is_no_data_set_says_what_is_recognised(tmp_path):
    write(tmp_path / "x/readme.txt", "")
    with pytest.raises(
        DataError, match=r"found readme.txt; accepted: .*corpus.jsonl, .*\(beir\); corpus.csv.*\(squad\)"
    ):
        load_dataset(tmp_path / "x")
    with pytest.raises(DataError, match="found a file"):
        load_dataset(tmp_path / "x/readme.txt")


def test_a_shipped_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "mini").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_dataset("mini").name == "mini"
    with pytest.raises(DataError, match="an empty folder"):
        load_dataset("./mini")


def test_shipped_sets_are_listed_with_their_counts():
    found = {info.name: info for info in list_datasets()}
    mini = found["mini"]
    assert (mini.n_documents, mini.n_queries, mini.licence, mini.languages) == (
        12,
        8,
        "CC0-1.0",
        ("en", "es", "pt"),
    )
    assert mini.n_judgements == len(load_dataset("mini").qrels)
    assert mini.description


def test_an_installed_package_looks_inside_itself_only(tmp_path, monkeypatch, folder):
    """In an installed package no pyproject.toml stands above: that folder belongs to somebody else."""
    monkeypatch.setattr(datasets, "__file__", str(tmp_path / "site/harness/datasets.py"))
    assert datasets.fixture_folders() == [tmp_path / "site/harness/fixtures"]
    folder.rename(tmp_path / "packed")
    (tmp_path / "site/harness/fixtures").mkdir(parents=True)
    (tmp_path / "packed").rename(tmp_path / "site/harness/fixtures/small")
    assert [info.name for info in list_datasets()] == ["small"]
    assert load_dataset("small").documents[0].doc_id == "d1"


def test_data_error_survives_a_process_boundary():
    error = DataError("f.tsv", 3, "bad")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.file, again.line) == ("f.tsv:3: bad", Path("f.tsv"), 3)
    assert isinstance(again, InvalidArgumentError)
    assert str(DataError("f.tsv", None, "bad")) == "f.tsv: bad"


def test_a_data_set_can_be_made_by_hand():
    data = Dataset("d", (Document("a", ""),), (Query("q", "x"),), (Qrel("q", "a", -1),))
    assert data.relevance == {"q": {"a": -1}}
    assert data.empty_documents == data.documents
    assert set(data.hashes) == {"corpus", "queries", "qrels"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the reference data beside the checkout")
@pytest.mark.parametrize(
    "name", ["adi-en", "covidfaq-en", "cranfield-en", "faquad-pt", "locomo-en", "xquad-es-en"]
)
def test_real_sets_have_the_counts_they_state(name):
    folder = SHARED / "datasets" / name
    stated = json.loads((folder / "dataset.json").read_text())
    data = load_dataset(folder)
    assert (len(data.documents), len(data.queries), len(data.qrels)) == (
        stated["docs"],
        stated["queries"],
        stated["judgments"],
    )
    assert sum(qrel.relevance >= 1 for qrel in data.qrels) == stated["positive"]
    assert data.scope == ("scope" if name == "locomo-en" else "")
