"""The stage that lost a document, from hand-made lists."""

from __future__ import annotations

import pytest

from harness.attribution import FATES, as_table, attribute, totals
from harness.metrics import evaluate

TOP, POOL = 2, 4
DOCUMENTS = set("abcdefghijk")
VECTOR = list("abcdefgh")
BM25 = list("ijakcbfg")
FUSED = list("acibjdkf")
RERANKED = list("ciabjdkf")


def fate(doc_id: str, *, reranked: bool = True, **changes):
    values = {
        "stages": {"vector": {"q": VECTOR}, "bm25": {"q": BM25}, "fusion": {"q": FUSED}},
        "final": {"q": RERANKED if reranked else FUSED},
        "relevance": {"q": {doc_id: 2}},
        "pool": POOL,
        "top": TOP,
        "present": DOCUMENTS,
    } | changes
    [one] = attribute(
        values.pop("stages"),
        values.pop("final"),
        values.pop("relevance"),
        **values,
    )
    return one


@pytest.mark.parametrize(
    ("doc_id", "expected"),
    [
        ("c", "found"),
        ("a", "reranker"),  # second leg third, fused first, reranked third
        ("b", "fusion"),  # second of the vectors, fourth of the fused
        ("j", "fusion"),
        ("d", "low"),  # fourth of the vectors: in the pool
        ("k", "low"),
        ("f", "no_pool"),  # sixth and seventh
        ("e", "no_pool"),
        ("zz", "absent"),
    ],
)
def test_the_last_stage_that_had_it_is_named(doc_id: str, expected: str) -> None:
    assert fate(doc_id).fate == expected


def test_ranks_of_every_stage_stand_beside_it() -> None:
    one = fate("a")
    assert (one.query_id, one.grade) == ("q", 2)
    assert one.ranks == {"vector": 1, "bm25": 3, "fusion": 1, "final": 3}
    assert fate("e").ranks == {"vector": 5, "bm25": None, "fusion": None, "final": None}


def test_lifted_is_what_no_leg_had_among_its_first() -> None:
    assert fate("c").lifted  # third of the vectors, fifth of BM25
    assert not fate("i").lifted
    assert not fate("d").lifted


def test_a_single_leg_has_neither_fusion_nor_reranker() -> None:
    alone = {"stages": {"vector": {"q": VECTOR}}, "final": {"q": VECTOR}}
    found = {doc_id: fate(doc_id, **alone).fate for doc_id in "abcdei"}
    assert found == {"a": "found", "b": "found", "c": "low", "d": "low", "e": "no_pool", "i": "no_pool"}


def test_a_failed_query_and_one_that_is_missing() -> None:
    assert fate("c", failed={"q"}).fate == "failed"
    assert fate("c", final={}).fate == "failed"
    assert fate("zz", failed={"q"}).fate == "absent"  # no answer could have held it
    assert fate("c", final={"q": []}).fate == "reranker"  # an empty answer is an answer


def test_without_legs_the_fused_list_stands_for_them() -> None:
    assert fate("a", stages={"fusion": {"q": FUSED}}).fate == "reranker"
    assert fate("b", stages={"fusion": {"q": FUSED}}).fate == "low"
    assert fate("d", stages={"fusion": {"q": FUSED}}).fate == "no_pool"


def test_totals_add_up_and_agree_with_recall() -> None:
    relevance = {"q": dict.fromkeys(DOCUMENTS, 1) | {"zz": 1, "no": 0}, "r": {"a": 1}, "none": {"a": 0}}
    stages = {"vector": {"q": VECTOR, "r": VECTOR}, "bm25": {"q": BM25, "r": []}}
    final = {"q": VECTOR, "r": VECTOR}
    fates = attribute(stages, final, relevance, pool=POOL, present=DOCUMENTS, top=TOP)
    made = totals(fates, pool=POOL, top=TOP)
    assert made["relevant"] == sum(made["fates"].values()) == 13
    assert list(made["fates"]) == list(FATES)
    assert made["fates"]["found"] == 3
    recall = evaluate(final, relevance, ["recall@2"])["recall@2"]
    assert recall.tolist() == [2 / 12, 1.0]
    assert (made["top"], made["pool"], made["fates"]["absent"]) == (TOP, POOL, 1)


def test_the_file_has_a_line_for_each_document() -> None:
    relevance = {"q": {"b": 1, "zz": 2}, "a b\tc": {"a": 1}}
    stages = {"vector": {"q": VECTOR}, "bm25": {"q": BM25}, "fusion": {"q": FUSED}}
    lines = as_table(
        attribute(stages, {"q": FUSED}, relevance, pool=POOL, present=DOCUMENTS, top=TOP)
    ).splitlines()
    assert lines == [
        "query-id\tcorpus-id\tgrade\tfate\tvector\tbm25\tfusion\tfinal",
        "a b c\ta\t1\tfailed\t-\t-\t-\t-",
        "q\tb\t1\tfusion\t2\t6\t4\t4",
        "q\tzz\t2\tabsent\t-\t-\t-\t-",
    ]
    assert as_table([]) == "query-id\tcorpus-id\tgrade\tfate\tfinal\n"


def test_a_threshold_loses_what_the_reranked_list_had_among_its_first() -> None:
    stages = {"vector": {"q": VECTOR}, "bm25": {"q": BM25}, "fusion": {"q": FUSED}, "rerank": {"q": RERANKED}}
    kept = {"stages": stages, "final": {"q": ["c"]}}
    found = {doc_id: fate(doc_id, **kept).fate for doc_id in "ciabf"}
    assert found == {"c": "found", "i": "threshold", "a": "reranker", "b": "fusion", "f": "no_pool"}
    # what moves up because others were dropped is found
    assert fate("a", stages=stages, final={"q": ["c", "a"]}).fate == "found"


def test_a_cut_document_that_the_vectors_missed_is_told_apart() -> None:
    cut = {"a": (512, 900), "d": (512, 600), "zz": (512, 700)}
    assert fate("d", cut=cut).read == (512, 600)
    assert fate("a", cut=cut).read is None  # the vectors had it first
    assert fate("b", cut=cut).read is None
    assert fate("d", cut=cut, final={}).read is None  # its query failed
    assert fate("d", cut=cut, stages={"bm25": {"q": BM25}}, final={"q": BM25}).read is None


def test_the_file_and_the_totals_tell_of_cut_documents() -> None:
    fates = attribute(
        {"vector": {"q": VECTOR}},
        {"q": VECTOR},
        {"q": {"a": 1, "d": 1}},
        pool=POOL,
        present=DOCUMENTS,
        top=TOP,
        cut={"a": (4, 9), "d": (4, 6)},
    )
    assert totals(fates, pool=POOL, top=TOP)["cut"] == 1
    assert as_table(fates).splitlines() == [
        "query-id\tcorpus-id\tgrade\tfate\tvector\tfinal\tnote",
        "q\ta\t1\tfound\t1\t1\t-",
        "q\td\t1\tlow\t4\t4\tcut at 4 of 6 tokens",
    ]
