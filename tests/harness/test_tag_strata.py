"""Parts by a tag: which tags divide, what is compared, what is only counted."""

from __future__ import annotations

import pytest

from harness.results import ResultDocument
from harness.rows import UNTAGGED, paired
from harness.tag_strata import compared_parts, scope_tag, tag_names, tag_split, tag_strata

METRIC = "ndcg@10"


def tagged(document: ResultDocument, **tags: list[object]) -> ResultDocument:
    ids = document.dataset["query_ids"]
    document.dataset["query_tags"] = {
        query_id: {name: values[i] for name, values in tags.items() if values[i] is not None}
        for i, query_id in enumerate(ids)
    }
    return document


def test_tags_that_divide_come_language_first(document: ResultDocument) -> None:
    halves = ["a"] * 20 + ["b"] * 20
    found = tagged(
        document,
        author=halves,
        kind=halves,
        lang=[1] * 20 + [2] * 20,
        answer=[f"{i}" for i in range(40)],  # a value of its own for each
        alone=["x"] * 40,
        short=["x"] * 21 + ["y"] * 19,
        unset=["x"] * 20 + [None] * 20,
    )
    assert tag_names(found) == ["lang", "kind", "author"]
    assert tag_names(found, least=19) == ["lang", "kind", "author", "short"]
    found.dataset["query_tags"] = {}
    assert tag_names(found) == []


def test_two_values_that_hold_few_of_all_queries_divide_nothing(document: ResultDocument) -> None:
    values: list[object] = [*"aabb", *(f"{i}" for i in range(36))]
    assert tag_names(tagged(document, answer=values), least=2) == []
    assert tag_names(tagged(document, answer=values[:4] * 5 + values[:20]), least=2) == ["answer"]


def test_untagged_queries_stand_last(document: ResultDocument) -> None:
    split = tag_split(tagged(document, flag=[None] * 10 + [True] * 25 + [False] * 5), "flag")
    assert (split.kind, split.tag) == ("tag", "flag")
    assert [(part.name, part.n) for part in split.parts] == [("False", 5), ("True", 25), (UNTAGGED, 10)]
    assert [part.name for part in tag_split(document, "flag", 10).parts] == ["True", UNTAGGED]
    assert tag_split(document, "nothing").parts == ()


def test_large_parts_are_compared_together_and_small_ones_have_means(document: ResultDocument) -> None:
    found = tag_strata(
        tagged(document, lang=["en"] * 20 + ["es"] * 5 + ["pt"] * 15), "lang", METRIC, least=15
    )
    assert [part.name for part in found.parts] == ["en", "es", "pt"]
    assert [part.name for part in compared_parts(found)] == ["en", "pt"]
    values = {c.key.cell_id: c.metrics[METRIC].per_query for c in document.cells if c.status == "ok"}
    words = found.reference
    assert words is not None
    others = [cell_id for cell_id in values if cell_id != words]
    expected = paired(
        [
            (values[cell_id][side], values[words][side])
            for side in (slice(20), slice(25, 40))
            for cell_id in others
        ]
    )
    assert [part.versus[c] for part in compared_parts(found) for c in others] == expected
    small = found.parts[1]
    assert dict(small.versus) == {}
    assert small.means[words] == pytest.approx(sum(values[words][20:25]) / 5)


def test_no_part_is_large_enough(document: ResultDocument) -> None:
    found = tag_strata(document, "lang", METRIC)
    assert [part.n for part in found.parts] == [14, 13, 13]
    assert compared_parts(found) == []
    assert all(part.means for part in found.parts)


def test_the_scope_is_told_apart(document: ResultDocument) -> None:
    assert scope_tag(document) == ""
    document.spec["scope"] = "conversation"
    assert scope_tag(document) == "conversation"
