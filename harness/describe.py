"""What a data set is made of, in figures: what `bench data describe` prints."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.datasets import Dataset
from harness.formats.languages import language_shares
from harness.neardup import RUN_WORDS, THRESHOLD, near_duplicates
from harness.overlap import query_overlap
from rag_core.analysis import Analyser

__all__ = ["describe", "description_lines", "near_duplicate_figures", "near_duplicate_record"]

PERCENTILES = (5, 50, 90, 99)
#: Upper ends of the histogram's bins; the first holds 0 alone and the last 1 alone.
EDGES = (0.2, 0.4, 0.6, 0.8)
EXAMPLES = 5
BAR = 22
#: Documents up to which a run looks for near-duplicates: about a tenth of a millisecond each.
MOST_DOCUMENTS = 50_000


def describe(dataset: Dataset) -> dict[str, Any]:
    """Figures of ``dataset`` as plain JSON values.

    Keys: ``name``, ``path``, ``description``, ``licence``, ``hash``; ``counts``; ``lengths`` in words
    and characters (documents with their title); ``languages`` (stated, and told from the
    texts as shares); ``grades``; ``relevant_per_query`` and ``judged_per_query``;
    ``labels``, how far the judgements reach;
    ``overlap`` (see :mod:`harness.overlap`); ``near_duplicates`` (see :mod:`harness.neardup`);
    ``notes`` of the reader.
    """
    documents = [document.indexed_text for document in dataset.documents if not document.is_empty]
    queries = [query.text for query in dataset.queries]
    relevance = dataset.relevance
    n_relevant = {q: sum(g >= 1 for g in grades.values()) for q, grades in relevance.items()}
    with_relevant = [count for count in n_relevant.values() if count]
    counts = {
        "documents": len(dataset.documents),
        "documents_empty": len(dataset.empty_documents),
        "queries": len(queries),
        "queries_judged": len(relevance),
        "queries_with_relevant": len(with_relevant),
        "judgements": len(dataset.qrels),
        "relevant": sum(qrel.relevance >= 1 for qrel in dataset.qrels),
    }
    if dataset.scope:
        counts["scopes"] = len({d.metadata.get(dataset.scope) for d in dataset.documents})
    return {
        "name": dataset.name,
        "path": dataset.path,
        "description": dataset.description,
        "licence": dataset.licence,
        "hash": dataset.hash,
        "scope": dataset.scope,
        "counts": counts,
        "lengths": {"documents": _lengths(documents), "queries": _lengths(queries)},
        "languages": {
            "stated": list(dataset.languages),
            "documents": language_shares(documents),
            "queries": language_shares(queries),
        },
        "grades": {str(g): n for g, n in sorted(Counter(q.relevance for q in dataset.qrels).items())},
        "relevant_per_query": _spread(with_relevant),
        "judged_per_query": _spread([len(grades) for grades in relevance.values()]),
        "labels": _labels(dataset),
        "overlap": _overlap(dataset),
        "near_duplicates": near_duplicate_figures(dataset),
        "notes": list(dataset.notes),
    }


def _labels(dataset: Dataset) -> dict[str, int]:
    """How many queries are judged without an answer, and which documents have a judgement at all."""
    relevance = dataset.relevance
    without = [query_id for query_id, grades in relevance.items() if max(grades.values()) < 1]
    known = {document.doc_id for document in dataset.documents}
    judged = {doc_id for grades in relevance.values() for doc_id in grades} & known
    relevant = {d for grades in relevance.values() for d, grade in grades.items() if grade >= 1} & known
    return {
        "queries_unjudged": len(dataset.queries) - len(relevance),
        "queries_judged_without_answer": len(without),
        "judgements_not_relevant": sum(
            grade < 1 for grades in relevance.values() for grade in grades.values()
        ),
        "documents_judged": len(judged),
        "documents_relevant": len(relevant),
    }


def _lengths(texts: Sequence[str]) -> dict[str, dict[str, float]]:
    return {
        "words": _spread([len(text.split()) for text in texts]),
        "characters": _spread([*map(len, texts)]),
    }


def _spread(values: Sequence[int]) -> dict[str, float]:
    """Mean, least, percentiles and most; empty where there is no value."""
    if not values:
        return {}
    named = zip((f"p{p}" for p in PERCENTILES), np.percentile(values, PERCENTILES).tolist())
    return {"mean": float(np.mean(values)), "min": min(values), **dict(named), "max": max(values)}


def _overlap(dataset: Dataset) -> dict[str, Any]:
    analyser = Analyser.for_languages((*dataset.languages, *dataset.query_languages))
    overlaps = query_overlap(dataset, analyser).values()
    found = [(o.share, o.idf_share) for o in overlaps if o.share is not None and o.idf_share is not None]
    shares, weighted = [share for share, _ in found], [share for _, share in found]
    return {
        "analyser": analyser.name,
        "queries": len(found),
        "without_content_words": len(overlaps) - len(found),
        "mean": float(np.mean(shares)) if shares else None,
        "mean_idf": float(np.mean(weighted)) if weighted else None,
        "histogram": [
            {"share": name, "queries": plain, "queries_idf": idf}
            for name, plain, idf in zip(BINS, _histogram(shares), _histogram(weighted))
        ],
    }


BINS = ("none", *(f"up to {edge:.0%}" for edge in EDGES), "below all", "all")


def _histogram(shares: Sequence[float]) -> list[int]:
    """Queries in each of :data:`BINS`."""
    counts = [0] * len(BINS)
    for share in shares:
        inner = 1 + int(np.searchsorted(EDGES, share - 1e-12))
        counts[0 if share == 0 else len(BINS) - 1 if share > 1 - 1e-12 else inner] += 1
    return counts


def near_duplicate_figures(dataset: Dataset) -> dict[str, Any]:
    """Nearly equal documents, and relevant ones whose double is not judged relevant for the same query."""
    pairs = near_duplicates([document.indexed_text for document in dataset.documents])
    doubles: defaultdict[str, dict[str, float]] = defaultdict(dict)
    met = 0
    for (i, j), alike in pairs.items():
        a, b = dataset.documents[i], dataset.documents[j]
        if dataset.scope and a.metadata.get(dataset.scope) != b.metadata.get(dataset.scope):
            continue  # these never meet in one search
        met += 1
        doubles[a.doc_id][b.doc_id] = doubles[b.doc_id][a.doc_id] = alike
    unjudged = []
    for query_id, grades in dataset.relevance.items():
        relevant = {doc_id for doc_id, grade in grades.items() if grade >= 1}
        unjudged += [
            (query_id, doc_id, other, round(alike, 3))
            for doc_id in sorted(relevant)
            for other, alike in sorted(doubles.get(doc_id, {}).items())
            if other not in relevant
        ]
    judged = {doc_id for g in dataset.relevance.values() for doc_id, grade in g.items() if grade >= 1}
    return {
        "measure": f"Jaccard index of runs of {RUN_WORDS} words, from {THRESHOLD}",
        "pairs": met,
        "documents": len(doubles),
        "relevant_documents": len(judged & set(doubles)),
        "relevant_without_their_double": len(unjudged),
        "queries_concerned": len({query_id for query_id, *_ in unjudged}),
        "examples": [
            {"query": query_id, "relevant": doc_id, "double": other, "alike": alike}
            for query_id, doc_id, other, alike in unjudged[:EXAMPLES]
        ],
    }


def near_duplicate_record(dataset: Dataset) -> dict[str, int] | None:
    """The counts alone, for a result; None of a data set so large that counting would hold up its run."""
    if len(dataset.documents) > MOST_DOCUMENTS:
        return None
    return {name: count for name, count in near_duplicate_figures(dataset).items() if isinstance(count, int)}


def description_lines(facts: dict[str, Any], width: int = 80) -> list[str]:
    """``facts`` for people, in at most ``width`` columns."""
    counts = facts["counts"]
    lines = [facts["name"] + (f": {facts['description']}" if facts["description"] else "")]
    if facts["licence"]:
        lines.append(f"licence {facts['licence']}")
    lines += ["", "sizes"]
    lines += [f"  {name.replace('_', ' '):<24} {count:>10,}" for name, count in counts.items()]
    if facts["scope"]:
        lines.append(f"  each query searches within its metadata {facts['scope']!r}")
    rows = [
        ("documents, words", facts["lengths"]["documents"]["words"]),
        ("documents, characters", facts["lengths"]["documents"]["characters"]),
        ("queries, words", facts["lengths"]["queries"]["words"]),
        ("queries, characters", facts["lengths"]["queries"]["characters"]),
        ("relevant per query", facts["relevant_per_query"]),
        ("judged per query", facts["judged_per_query"]),
    ]
    heads = ("mean", "min", *(f"p{p}" for p in PERCENTILES), "max")
    lines += ["", f"{'lengths and judgements':<24}" + "".join(f"{head:>8}" for head in heads)]
    for name, spread in rows:
        if spread:
            lines.append(
                f"  {name:<22}" + "".join(f"{spread[head]:>8.{int(head == 'mean')}f}" for head in heads)
            )
    grades = ", ".join(f"{grade}: {count:,}" for grade, count in facts["grades"].items())
    lines += ["", f"grades                  {grades or 'none'}"]
    lines += _label_lines(facts["labels"], counts["documents"])
    languages = facts["languages"]
    lines.append(f"languages, stated       {', '.join(languages['stated']) or 'none'}")
    for part in ("documents", "queries"):
        told = ", ".join(f"{name or 'unknown'} {share:.1%}" for name, share in languages[part].items())
        lines.append(f"  told of {part:<13} {told}")
    lines += ["", *_overlap_lines(facts["overlap"]), "", *_double_lines(facts["near_duplicates"])]
    lines += ["", *(f"note: {note}" for note in facts["notes"])] if facts["notes"] else []
    return [piece for line in lines for piece in _folded(line, width)]


def _label_lines(found: dict[str, int], documents: int) -> list[str]:
    share = found["documents_judged"] / documents if documents else 0.0
    lines = [
        f"judged documents        {found['documents_judged']:,} ({share:.1%}), relevant to some query "
        f"{found['documents_relevant']:,}",
        f"queries without answer  {found['queries_judged_without_answer']:,} judged so, "
        f"{found['queries_unjudged']:,} without a judgement",
    ]
    if not found["judgements_not_relevant"]:
        lines.append("  only relevant documents are judged: an unjudged answer may be right or wrong")
    return lines


def _overlap_lines(overlap: dict[str, Any]) -> list[str]:
    if not overlap["queries"]:
        return ["words shared with a relevant document: no query has any to compare"]
    lines = [
        f"words shared with any relevant document, {overlap['queries']:,} queries",
        f"  mean share {overlap['mean']:.3f}, weighted by idf {overlap['mean_idf']:.3f}",
        f"  {'share':<10} {'queries':>7} {'':<{BAR}} {'by idf':>7}",
    ]
    most = max(max(row["queries"], row["queries_idf"]) for row in overlap["histogram"])
    for row in overlap["histogram"]:
        plain, idf = ("#" * round(BAR * row[key] / most) for key in ("queries", "queries_idf"))
        lines.append(
            f"  {row['share']:<10} {row['queries']:>7} {plain:<{BAR}} {row['queries_idf']:>7} {idf}".rstrip()
        )
    if overlap["without_content_words"]:
        lines.append(f"  without content words: {overlap['without_content_words']} queries")
    return lines


def _double_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"near-duplicates ({found['measure']})",
        f"  {found['documents']:,} documents in {found['pairs']:,} pairs; "
        f"{found['relevant_documents']:,} of them relevant to a query",
        f"  relevant documents whose double is not judged relevant: "
        f"{found['relevant_without_their_double']:,}, of {found['queries_concerned']:,} queries",
    ]
    lines += [f"    {e['query']}: {e['relevant']} = {e['double']} ({e['alike']})" for e in found["examples"]]
    return lines


def _folded(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=margin, break_on_hyphens=False)
