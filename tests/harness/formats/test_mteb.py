from __future__ import annotations

import json

import pytest

from harness.datasets import load_dataset
from harness.formats import recognise
from harness.formats.reading import DataError
from rag_core.errors import MissingExtraError

CORPUS = [{"_id": "d1", "title": "T", "text": "one"}, {"_id": "d2", "title": "", "text": "two"}]
QUERIES = [{"_id": "q1", "text": "which"}, {"_id": "q2", "text": "what"}]
QRELS = [
    {"query-id": "q1", "corpus-id": "d1", "score": 1},
    {"query-id": "q2", "corpus-id": "d2", "score": 2.0},
]


def put(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs pip install 'rag-core-bench[parquet]'")
        import pyarrow.parquet as parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def folder(tmp_path, suffix, qrels="qrels"):
    for name, rows in (("corpus/corpus", CORPUS), ("queries/queries", QUERIES), (f"{qrels}/test", QRELS)):
        for piece, row in enumerate(rows):
            put(tmp_path / "set" / f"{name}-0000{piece}-of-00002{suffix}", [row])
    return tmp_path / "set"


@pytest.mark.parametrize("qrels", ["qrels", "data", "default"])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_parts_in_pieces(tmp_path, suffix, qrels):
    path = folder(tmp_path, suffix, qrels)
    assert recognise(path).name == "mteb"
    data = load_dataset(path)
    assert [(d.doc_id, d.title, d.text) for d in data.documents] == [("d1", "T", "one"), ("d2", "", "two")]
    assert [q.query_id for q in data.queries] == ["q1", "q2"]
    assert data.relevance == {"q1": {"d1": 1}, "q2": {"d2": 2}}


def test_json_lines_beside_judgements_as_json_lines(tmp_path):
    put(tmp_path / "corpus.jsonl", CORPUS)
    put(tmp_path / "queries.jsonl", QUERIES)
    put(tmp_path / "qrels/test.jsonl", QRELS)
    put(tmp_path / "qrels/train.jsonl", QRELS[:1])
    data = load_dataset(tmp_path)
    assert data.relevance == {"q1": {"d1": 1}, "q2": {"d2": 2}}
    assert "judgements read of split test; not read: train" in data.notes
    (tmp_path / "dataset.toml").write_text('split = "train"\n')
    assert load_dataset(tmp_path).relevance == {"q1": {"d1": 1}}
    (tmp_path / "dataset.toml").write_text('split = "dev"\n')
    with pytest.raises(DataError, match=r"split 'dev' among \['test', 'train'\]"):
        load_dataset(tmp_path)


def test_an_id_in_two_pieces_and_a_pair_with_two_grades(tmp_path):
    path = folder(tmp_path, ".jsonl")
    put(path / "qrels/test-00002.jsonl", [{**QRELS[0], "score": 0}])
    with pytest.raises(DataError, match="have grade 0 here and 1 before"):
        load_dataset(path)
    put(path / "corpus/corpus-00002.jsonl", CORPUS[:1])
    with pytest.raises(DataError, match=r"'d1' stands already in corpus-00000-of-00002\.jsonl"):
        load_dataset(path)


def test_a_judgement_without_a_document_names_its_line(tmp_path):
    path = folder(tmp_path, ".jsonl")
    put(path / "qrels/test-00002.jsonl", [QRELS[0], {"query-id": "q1", "score": 1}])
    with pytest.raises(DataError, match=r"test-00002\.jsonl:2: no corpus-id among"):
        load_dataset(path)


def test_a_missing_part_is_named(tmp_path):
    put(tmp_path / "en-corpus/x.jsonl", CORPUS)
    with pytest.raises(DataError, match=r"found \['en-corpus'\]; accepted: corpus, queries and qrels"):
        load_dataset(f"mteb:{tmp_path}")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = folder(tmp_path, ".jsonl")
    (path / "corpus/more.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pyarrow.*rag-core-bench\[parquet\]"):
        load_dataset(path)


def test_a_file_that_is_not_parquet_is_named(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pip install 'rag-core-bench[parquet]'")
    path = folder(tmp_path, ".jsonl")
    (path / "corpus/more.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"more\.parquet: cannot be read as Parquet"):
        load_dataset(path)
