from __future__ import annotations

import csv
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.formats import FORMATS
from harness.formats.judgements import read_judgements
from harness.formats.reading import DataError, csv_rows, json_rows, read_lines
from harness.formats.records import read_documents, read_queries
from harness.formats.trec import read_qrels, read_run, write_run
from rag_core.types import Document, Qrel, Query, Ranking, Run

BOM = b"\xef\xbb\xbf"


@pytest.fixture
def put(tmp_path):
    """Write bytes or text under a name in a fresh folder."""
    number = itertools.count()

    def write(name, text):
        path = tmp_path / str(next(number)) / name
        path.parent.mkdir()
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def error_of(call, *args):
    with pytest.raises(DataError) as caught:
        call(*args)
    error = caught.value
    assert str(error).startswith(f"{error.file}")
    assert "accepted" in str(error) or "cannot be read" in str(error) or "not JSON" in str(error)
    return error


def triples(qrels):
    return [(q.query_id, q.doc_id, q.relevance) for q in qrels]


# O05


@pytest.mark.parametrize("bom", [BOM, b""], ids=["bom", "plain"])
def test_o05_queries_csv_with_bom_crlf_and_a_quoted_header(put, bom):
    path = put("queries.csv", bom + b'"id",query\r\n1,plain\r\n2,"one, two ""three"""\r\n')
    assert read_queries(path, []) == (Query("1", "plain"), Query("2", 'one, two "three"'))


@pytest.mark.parametrize("bom", [BOM, b""], ids=["bom", "plain"])
def test_o05_qrels_with_bom_and_without_header(put, bom):
    path = put("qrels.tsv", bom + b"1\td1\t1\r\n2\td2\t0\r\n")
    assert triples(read_judgements(path, [])) == [("1", "d1", 1), ("2", "d2", 0)]


def test_a_bom_inside_joined_files_is_no_part_of_an_id(put):
    path = put("qrels.tsv", BOM + b"1\td1\t1\n" + BOM + b"2\td2\t1\n")
    assert [q.query_id for q in read_judgements(path, [])] == ["1", "2"]


# O06

PLAIN = [("q1", "d1", 1), ("q1", "d2", 0), ("q2", "d1", 2)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td1\t2\n", PLAIN),
        ("q1\td1\t1\nq1\td2\t0\nq2\td1\t2\n", PLAIN),
        ("q1 0 d1 1\nq1\t0\td2\t0\nq2  0\td1 \t2\n", PLAIN),
        ('q1\t"abc\t1\nq1\tx"y\t0\nq2\t"abc\t2\n', [("q1", '"abc', 1), ("q1", 'x"y', 0), ("q2", '"abc', 2)]),
    ],
    ids=["header", "no header", "trec", "quotes"],
)
def test_o06_four_forms_give_exactly_three_judgements(put, text, expected):
    assert triples(read_judgements(put("qrels.tsv", text), [])) == expected


def test_o06_a_row_of_another_width_is_an_error_with_its_line(put):
    error = error_of(read_judgements, put("qrels.tsv", "q1\td1\t1\nq1\td2\nq2\td1\t2\n"), [])
    assert error.line == 2
    assert "2 columns in ['q1', 'd2'] where the file has 3" in str(error)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qrels.csv", 'query_id,doc_id,relevance\nq1,d1,1\nq1,"d2",0\nq2,d1,2\n'),
        ("qrels.csv", "q1;d1;1\nq1;d2;0\nq2;d1;2\n"),
        ("qrels.txt", "q1,d1,1\nq1,d2,0\nq2,d1,2\n"),
        ("qrels.txt", "q1 d1 1\nq1   d2 0\n\n q2 d1 2"),
        ("qrels.tsv", "grade\tdoc_id\tquery_id\n1\td1\tq1\n0\td2\tq1\n2\td1\tq2\n"),
        ("qrels.tsv", '"query-id"\t"corpus-id"\t"score"\nq1\td1\t1.0\nq1\td2\t0\nq2\td1\t+2\n'),
        ("qrels.txt", "query_id iter doc_id rel\nq1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\n"),
        ("qrels.tsv", "q1\tQ0\td1\t1\nq1\tQ0\td2\t0\nq2\tQ0\td1\t2\n"),
        ("qrels.txt", "# a comment\nq1 0 d1 1\nq1 0 d2 0\n# another one\nq2 0 d1 2\n"),
        ("qrels.txt", "q1 0\td1\t1\nq1 0\td2\t0\nq2 0\td1\t2\n"),
        ("qrels.tsv", "consulta\tdocumento\tnota\nq1\td1\t1\nq1\td2\t0\nq2\td1\t2\n"),
    ],
)
def test_judgements_in_every_layout(put, name, text):
    assert triples(read_judgements(put(name, text), [])) == PLAIN


def test_ids_keep_their_form(put):
    path = put("qrels.tsv", "007\tmy doc\t1\n7\t#1\t-1\n1e3\td,1\t3\n")
    assert triples(read_judgements(path, [])) == [("007", "my doc", 1), ("7", "#1", -1), ("1e3", "d,1", 3)]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("q1\td1\tyes\n", 1, "neither a judgement nor a header"),
        ("q1\td1\t0.5\nq1\td2\t1\n", 1, "neither a judgement nor a header"),
        ("q1\td1\t1\nq1\td2\t0.5\n", 2, "grade '0.5' is not a whole number"),
        ("q1\td1\t1\nq2\td1\t\n", 2, "grade '' is not a whole number"),
        ("q1\td1\t1\n\td1\t1\n", 2, "one is blank"),
        ("q1\t \t1\n", 1, "one is blank"),
    ],
)
def test_judgements_that_cannot_be_read_are_named(put, text, line, words):
    error = error_of(read_judgements, put("qrels.tsv", text), [])
    assert error.line == line
    assert words in str(error)


def test_a_file_without_judgements_holds_none(put):
    assert read_judgements(put("qrels.tsv", "\n"), []) == ()
    assert read_judgements(put("qrels.tsv", "query-id\tcorpus-id\tscore\n"), []) == ()


def test_o03_equal_repetition_is_harmless_and_counted(put):
    notes: list[str] = []
    assert triples(read_judgements(put("qrels.tsv", "q\tid1\t1\nq\tid1\t1\n"), notes)) == [("q", "id1", 1)]
    assert notes == ["qrels.tsv: 1 judgements repeated with an equal grade, counted once"]


@pytest.mark.parametrize("read", [lambda p: read_judgements(p, []), read_qrels], ids=["judgements", "trec"])
def test_o03_another_grade_for_a_pair_names_both_lines(put, read):
    error = error_of(read, put("qrels.tsv", "q 0 id1 1\nq 0 x 1\nq 0 id1 2\n"))
    assert error.line == 3
    assert "query 'q' and document 'id1' have grade 2 here and 1 on line 1" in str(error)


# Documents and queries


def test_json_ids_become_strings_as_written(put):
    path = put(
        "corpus.jsonl", '{"_id": 7, "text": "a"}\n\n{"_id": "007", "text": "b"}\n{"id": "x", "text": 1984}\n'
    )
    assert read_documents(path, []) == (Document("7", "a"), Document("007", "b"), Document("x", "1984"))


def test_other_fields_become_metadata(put):
    path = put("queries.jsonl", '{"_id": "q", "question": "why?", "lang": "en", "metadata": {"kind": "k"}}')
    assert read_queries(path, []) == (Query("q", "why?", {"lang": "en", "kind": "k"}),)


def test_line_separators_of_unicode_stay_inside_a_text(put):
    path = put("corpus.jsonl", '{"_id": "a", "text": "x\u2028y\x85z"}\r\n{"_id": "b", "metadata": null}')
    assert read_documents(path, []) == (Document("a", "x\u2028y\x85z"), Document("b", ""))


def test_half_characters_are_replaced_in_texts_and_refused_in_ids(put):
    notes: list[str] = []
    path = put("corpus.jsonl", '{"_id": "a", "text": "x\\ud83d"}\n{"_id": "b", "title": "\\ud83d\\ude00"}\n')
    assert read_documents(path, notes) == (Document("a", "x\ufffd"), Document("b", "", "\U0001f600"))
    assert notes == ["corpus.jsonl: unpaired surrogates replaced by U+FFFD in 1 records"]
    with pytest.raises(DataError, match="half a character"):
        read_documents(put("corpus.jsonl", '{"_id": "a\\ud83d", "text": "x"}'), [])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"_id": "a"}\n{"_id": b}\n', 2, "column 9: not JSON"),
        ('{"_id": "a"}\n["b"]\n', 2, "['b'] is not an object"),
        ('{"_id": "a", "text": NaN}', 1, "NaN is not a JSON value"),
        ('{"text": "x"}', 1, "no id among the fields ['text']"),
        ('{"_id": " "}', 1, "the id is blank"),
        ('{"_id": 1.5}', 1, "_id is 1.5"),
        ('{"_id": true}', 1, "_id is True"),
        ('{"_id": null}', 1, "_id is None"),
        ('{"_id": "a", "text": ["x"]}', 1, "text is ['x']"),
        ('{"_id": "a", "title": false}', 1, "title is False"),
        ('{"_id": "a", "metadata": "x"}', 1, "metadata is 'x'"),
        ('{"_id": "a"}\n\n{"_id": "b"}\n{"_id": "a"}', 4, "document id 'a' stands already on line 1"),
    ],
)
def test_json_lines_that_cannot_be_read_are_named(put, text, line, words):
    error = error_of(read_documents, put("corpus.jsonl", text), [])
    assert error.line == line
    assert words in str(error)


def test_bytes_that_are_not_utf8_are_named_by_line_and_byte(put):
    path = put("corpus.jsonl", b'{"_id": "a"}\n{"_id": "b\xe9"}\n')
    error = error_of(read_documents, path, [])
    assert error.line == 2
    assert "byte 11 of the line (0xe9) is not UTF-8" in str(error)


def test_utf16_says_how_to_convert(put):
    assert "iconv" in str(error_of(read_lines, put("q.csv", "id,query".encode("utf-16"))))


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    assert "No such file" in str(error_of(read_lines, tmp_path / "none.tsv"))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("corpus.tsv", "d1\tx\nd2\ty\n", [("d1", "", "x"), ("d2", "", "y")]),
        ("corpus.tsv", 'd1\tT\t"x\nd2\t\ty"\n', [("d1", "T", '"x'), ("d2", "", 'y"')]),
        ("corpus.tsv", "text\tdoc_id\nx\td1\n", [("d1", "", "x")]),
        ("corpus.tsv", '"id"\t"title"\n007\tT\n', [("007", "T", "")]),
        (
            "corpus.csv",
            'id,text\nd1,"two\nlines, ""q"""\nd2,y\n',
            [("d1", "", 'two\nlines, "q"'), ("d2", "", "y")],
        ),
        ("corpus.csv", "id;texto;título\nd1;x;T\n", [("d1", "T", "x")]),
        ("corpus.csv", "id and,text\nd2,y\n", [("id and", "", "text"), ("d2", "", "y")]),
        ("corpus.csv", "\n", []),
    ],
)
def test_tables_with_and_without_header(put, name, text, expected):
    assert [(d.doc_id, d.title, d.text) for d in read_documents(put(name, text), [])] == expected


def test_other_columns_become_metadata_where_filled(put):
    path = put("queries.csv", "id,query,lang,kind\n1,x,en,\n2,y,es,k\n")
    assert [q.metadata for q in read_queries(path, [])] == [{"lang": "en"}, {"lang": "es", "kind": "k"}]


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("c.csv", 'id,text\nd1,x\nd2,"never closed\nd3,y\n', 3, "this record is not CSV"),
        ("c.csv", 'id,text\nd1,"x"y\n', 2, "this record is not CSV"),
        (
            "c.csv",
            'id,text\nd1,"a\nb"\nd2,x,y\n',
            4,
            "3 columns in ['d2', 'x', 'y']; accepted: 2, as on line 1",
        ),
        ("c.tsv", "d1\tx\nd1\ty\n", 2, "document id 'd1' stands already on line 1"),
        ("c.tsv", "just one\n", 1, "1 columns and no header"),
        ("c.tsv", "a\tb\tc\td\n", 1, "4 columns and no header"),
        ("c.tsv", "\tx\n", 1, "the id is blank"),
    ],
)
def test_tables_that_cannot_be_read_are_named(put, name, text, line, words):
    error = error_of(read_documents, put(name, text), [])
    assert error.line == line
    assert words in str(error)


def test_a_csv_field_may_be_longer_than_the_csv_modules_own_limit(put):
    before = csv.field_size_limit(131072)
    try:
        assert len(csv_rows(put("c.csv", "id," + "x" * 200_000))[0][1][1]) == 200_000
    finally:
        csv.field_size_limit(before)


names = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=6).filter(
    lambda s: s == s.strip() and not s.startswith("\ufeff")
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.tuples(names, names), st.integers(-2, 9), min_size=1))
def test_any_judgements_survive_a_tab_separated_file(tmp_path_factory, grades):
    path = tmp_path_factory.mktemp("t") / "qrels.tsv"
    path.write_text(
        "".join(f"{q}\t{d}\t{g}\n" for (q, d), g in grades.items()), encoding="utf-8", newline="\n"
    )
    assert triples(read_judgements(path, [])) == [(q, d, g) for (q, d), g in grades.items()]


# TREC


def test_trec_run_ignores_the_rank_column_and_breaks_ties_by_the_rule(put):
    path = put("x.run", "q Q0 a 1 0.5 tag\nq Q0 b 9 0.5 tag more junk\n\n# note\nq\tQ0\tc 2 7e-1 tag\n")
    run = read_run(path)
    assert run.name == "tag"
    assert run.rankings["q"].doc_ids == ("c", "b", "a")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("q Q0 a 1 0.5\n", 1, "5 columns"),
        ("q Q0 a 1 high tag\n", 1, "score 'high' is not a number"),
        ("q Q0 a 1 nan tag\n", 1, "score 'nan' is not a number"),
        (
            "q Q0 a 1 2 t\nr Q0 a 1 2 t\nq Q0 a 2 1 t\n",
            3,
            "document 'a' of query 'q' stands already on line 1",
        ),
    ],
)
def test_trec_runs_that_cannot_be_read_are_named(put, text, line, words):
    error = error_of(read_run, put("x.run", text))
    assert error.line == line
    assert words in str(error)


def test_trec_qrels(put):
    path = put("q.txt", "# c\n1 0 CR#9 -1\n1\t0  b 2\n")
    assert read_qrels(path) == (Qrel("1", "CR#9", -1), Qrel("1", "b", 2))
    assert error_of(read_qrels, put("q.txt", "1 0 b\n")).line == 1


def test_a_written_run_reads_back_in_the_same_order_with_falling_scores(tmp_path):
    rankings = {
        "plain": Ranking.from_scores({"a": 0.75, "b": 0.25, "c": -3.0}),
        "ties": Ranking.from_scores({"a": 0.5, "b": 0.5, "c": 0.5}),
        "close": Ranking.from_scores({"a": 1.0, "z": 1.0 - 1e-12}),
        "endless": Ranking.from_scores({"a": float("inf"), "b": 1.0}),
        "huge": Ranking.from_scores({"a": 1e300, "b": 1e299}),
        "none": Ranking.from_scores({}),
    }
    path = tmp_path / "new/x.run"
    write_run(Run("n", rankings), path, "e5/cpu hybrid")
    run = read_run(path)
    assert run.name == "e5/cpu%20hybrid"
    assert {q: r.doc_ids for q, r in run.rankings.items()} == {
        q: r.doc_ids for q, r in rankings.items() if len(r)
    }
    assert all(run.strictly_decreasing(query_id) for query_id in run.rankings)
    assert run.rankings["plain"].scores == (0.75, 0.25, -3.0)
    assert run.rankings["close"].scores == (2.0, 1.0)
    assert run.rankings["endless"].scores == (2.0, 1.0)
    assert run.rankings["huge"].scores == (2.0, 1.0)


def test_blanks_and_comment_signs_in_ids_are_escaped(tmp_path):
    write_run(Run("", {"#1 a": Ranking.from_scores({"my\u3000doc": 1.0})}), tmp_path / "x.run")
    assert (tmp_path / "x.run").read_text() == "%231%20a Q0 my%E3%80%80doc 1 1.0 run\n"


def test_formats_are_described_for_people():
    assert [form.name for form in FORMATS] == ["mteb", "beir", "tables", "trec", "locomo", "squad"]
    assert all("corpus" in form.recognises or "JSON" in form.recognises for form in FORMATS)


def test_json_rows_number_the_lines_of_the_file(put):
    assert [number for number, _ in json_rows(put("x.jsonl", "\n{}\n\n{}\n"))] == [2, 4]
