"""Which stage lost each relevant document: told from the ranked ids of every stage alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.metrics import Grades, evaluated_queries

__all__ = ["FATES", "LEGS", "TOP", "Fate", "as_table", "attribute", "totals"]

#: A relevant document counts as found among so many.
TOP = 10
#: Stages that search; the others order what these give them.
LEGS = ("vector", "bm25")
#: Fate → what it means, in the order in which they are told apart.
FATES: Mapping[str, str] = {
    "found": "among the first in the end",
    "absent": "judged relevant, but not in the data set, or empty",
    "failed": "its query failed",
    "no_pool": "in the pool of no leg",
    "threshold": "among the first of the reranked list, its score below the threshold",
    "reranker": "among the first of the fused list, pushed out by the reranker",
    "fusion": "among the first of a leg, lost in fusion",
    "low": "in a pool, among the first of no leg",
}

Lists = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Fate:
    """One relevant document of one query.

    Attributes:
        query_id, doc_id, grade: the judgement.
        fate: a key of :data:`FATES`.
        ranks: stage → rank from 1 on; None where the stage's list lacks it.
        lifted: found although no leg had it among its first.
        read: tokens that the embedder read and tokens of the whole text, where the vector leg missed the
            document and the text was cut; whether the answer stood in what was cut is not known.
    """

    query_id: str
    doc_id: str
    grade: int
    fate: str
    ranks: Mapping[str, int | None] = field(default_factory=dict)
    lifted: bool = False
    read: tuple[int, int] | None = None


def attribute(
    stages: Mapping[str, Lists],
    final: Lists,
    relevance: Grades,
    *,
    pool: int,
    present: Container[str],
    failed: Container[str] = (),
    top: int = TOP,
    cut: Mapping[str, tuple[int, int]] | None = None,
) -> list[Fate]:
    """The fate of every relevant document of the judged queries, by query and document id.

    A document is lost by the last stage before which it stood among the first ``top``: a reranked
    document that the fused list had there is the reranker's loss, whatever a leg made of it.

    Args:
        stages: ``vector``, ``bm25``, ``fusion``, those that ran; stage → query id → ids, best first.
            Where there is no leg, ``fusion`` stands for one. With a score threshold also ``rerank``, the
            reranked list before it.
        final: query id → ids as they were judged.
        relevance: query id → document id → grade; relevant from 1 on.
        pool: how many of each leg's ids go on to the fusion.
        present: ids of the documents that can be found.
        failed: queries without an answer; so are those that ``final`` lacks.
        top: see :data:`TOP`.
        cut: document id → tokens read by the embedder, tokens of the whole text; those that were cut.
    """
    legs = [name for name in LEGS if name in stages] or ["fusion"]
    made = []
    for query_id in evaluated_queries(relevance):
        grades = relevance[query_id]
        places = {
            name: {doc_id: rank for rank, doc_id in enumerate(lists.get(query_id, ()), 1)}
            for name, lists in {**stages, "final": final}.items()
        }
        is_failed = query_id in failed or query_id not in final
        for doc_id in sorted(doc_id for doc_id, grade in grades.items() if grade >= 1):
            ranks = {name: found.get(doc_id) for name, found in places.items()}
            if doc_id not in present:
                fate = "absent"
            elif is_failed:
                fate = "failed"
            else:
                fate = _fate(ranks, legs, pool, top)
            lifted = fate == "found" and not any(_within(ranks[leg], top) for leg in legs)
            missed = "vector" in ranks and not _within(ranks["vector"], top) and fate != "failed"
            read = (cut or {}).get(doc_id) if missed else None
            made.append(Fate(query_id, doc_id, grades[doc_id], fate, ranks, lifted, read))
    return made


def _within(rank: int | None, most: int) -> bool:
    return rank is not None and rank <= most


def _fate(ranks: Mapping[str, int | None], legs: Sequence[str], pool: int, top: int) -> str:
    if _within(ranks["final"], top):
        return "found"
    if not any(_within(ranks[leg], pool) for leg in legs):
        return "no_pool"
    if _within(ranks.get("rerank"), top):
        return "threshold"
    if _within(ranks.get("fusion"), top):
        return "reranker"
    if any(_within(ranks[leg], top) for leg in legs):
        return "fusion"
    return "low"


def totals(fates: Sequence[Fate], *, pool: int, top: int = TOP) -> dict[str, Any]:
    """What a result keeps: ``top``, ``pool``, ``relevant``, ``fates`` (every key of :data:`FATES`),
    ``lifted`` (of those found), ``cut`` (missed by the vector leg, and read only in part by the embedder).
    """
    counted = Counter(one.fate for one in fates)
    return {
        "top": top,
        "pool": pool,
        "relevant": len(fates),
        "fates": {name: counted[name] for name in FATES},
        "lifted": sum(one.lifted for one in fates),
        "cut": sum(one.read is not None for one in fates),
    }


def as_table(fates: Sequence[Fate]) -> str:
    """Tab-separated text: query, document, grade, fate, the rank in each stage's list; ``-`` for none.

    Where a document was cut and the vector leg missed it, a last column says so. Blanks inside ids
    that would break a line or column become spaces.
    """
    stages = list(fates[0].ranks) if fates else ["final"]
    notes = ["note"] if any(one.read for one in fates) else []
    lines = ["\t".join(("query-id", "corpus-id", "grade", "fate", *stages, *notes))]
    for one in fates:
        ranks = ("-" if one.ranks[name] is None else str(one.ranks[name]) for name in stages)
        note = f"cut at {one.read[0]} of {one.read[1]} tokens" if one.read else "-"
        own = (_plain(one.query_id), _plain(one.doc_id), str(one.grade), one.fate)
        lines.append("\t".join((*own, *ranks, *[note for _ in notes])))
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return " ".join(text.split()) if any(c in text for c in "\t\r\n") else text
