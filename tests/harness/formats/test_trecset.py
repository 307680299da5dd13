from __future__ import annotations

import pytest

from harness.datasets import load_dataset
from harness.formats import recognise, trecset
from harness.formats.reading import DataError

CLASSIC = """<top>

<num> Number: 301
<title> Foreign &amp; Minor Germany

<desc> Description:
Information is
<narr> Narrative:
Relevant if so.
</top>

<top>
<num> Number: 302 </num>
<title> </title>
<desc> Description: Is the disease of poliomyelitis under control? </desc>
</top>
"""
XML = (
    '<topics><topic number="1" type="x"><query>first one</query><description>d</description></topic></topics>'
)
TEXT = """<DOC>
<DOCNO> FT-1 </DOCNO>
<HEADLINE>News of &lt;the&gt; day</HEADLINE>
<TEXT><P>First part.</P>
Second part.</TEXT>
<BYLINE>by nobody</BYLINE>
</DOC>
<DOC><DOCNO>FT-2</DOCNO> bare words <TEXTURE>kept</TEXTURE></DOC>
"""


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def ids(items, attribute):
    return [getattr(item, attribute) for item in items]


def test_classic_topics_and_trec_text(tmp_path):
    folder = write(
        tmp_path / "old", topics_txt=CLASSIC, qrels_txt="301 0 FT-1 2\n302 0 FT-2 -1\n", docs_trec=TEXT
    )
    assert recognise(folder).name == "trec"
    data = load_dataset(folder)
    assert [(q.query_id, q.text) for q in data.queries] == [
        ("301", "Foreign & Minor Germany"),
        ("302", "Is the disease of poliomyelitis under control?"),
    ]
    assert [(d.doc_id, d.title, d.text) for d in data.documents] == [
        ("FT-1", "News of <the> day", "First part. Second part."),
        ("FT-2", "", "bare words kept"),
    ]
    assert data.relevance == {"301": {"FT-1": 2}, "302": {"FT-2": -1}}


@pytest.mark.parametrize(
    ("name", "topics"),
    [("topics_tsv", "1\tfirst one\n"), ("topics_txt", "1\tfirst one\n"), ("topics_xml", XML)],
)
@pytest.mark.parametrize("qrels", ["1 0 d1 1\n", "1\td1\t1\n", "# made by hand\n1 0 d1 1\n"])
def test_the_other_layouts(tmp_path, name, topics, qrels):
    corpus = '{"id": "d1", "contents": "words"}\n'
    data = load_dataset(write(tmp_path / "s", **{name: topics}, qrels_txt=qrels, corpus_jsonl=corpus))
    assert [(q.query_id, q.text) for q in data.queries] == [("1", "first one")]
    assert data.relevance == {"1": {"d1": 1}}
    assert data.documents[0].text == "words"


def test_a_corpus_of_several_files(tmp_path):
    folder = write(tmp_path / "s", topics_tsv="1\tx\n", qrels_txt="1 0 b 1\n")
    write(folder, docs__1_txt="<DOC><DOCNO>a</DOCNO>x</DOC>", docs__2_txt="<DOC><DOCNO>b</DOCNO>y</DOC>")
    assert ids(load_dataset(folder).documents, "doc_id") == ["a", "b"]
    write(folder, docs__3_txt="<DOC><DOCNO>a</DOCNO>z</DOC>")
    with pytest.raises(DataError, match=r"'a' stands already in 1\.txt"):
        load_dataset(folder)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"topics_txt": "\n<top>\n<title> no number\n</top>"}, r"topics.txt:2: topic with number ''"),
        ({"topics_txt": "1 blanks only\n"}, r"topics.txt:1: .*accepted: <top>"),
        ({"docs_trec": "<DOC>\n<DOCNO>a</DOCNO></DOC>\n<DOC>x</DOC>"}, r"docs.trec:3: 'x' has no DOCNO"),
        ({"docs_trec": "plain words"}, r"docs.trec:1: no <DOC>"),
        ({"docs_trec": "<DOC><DOCNO>a</DOCNO></DOC><DOC><DOCNO>a</DOCNO></DOC>"}, "'a' stands already"),
        ({"qrels_txt": "1 0 a one\n"}, r"qrels.txt:1: grade 'one'"),
    ],
)
def test_faults_are_named_with_file_and_line(tmp_path, files, says):
    sound = {"topics_txt": CLASSIC, "qrels_txt": "1 0 a 1\n", "docs_trec": TEXT}
    with pytest.raises(DataError, match=says):
        trecset.load(write(tmp_path / "s", **{**sound, **files}))


def test_a_missing_part_is_named(tmp_path):
    with pytest.raises(DataError, match=r"found topics.tsv; accepted: topics\*, qrels"):
        load_dataset(f"trec:{write(tmp_path / 's', topics_tsv=CLASSIC)}")
