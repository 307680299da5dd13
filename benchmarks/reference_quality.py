"""NDCG@10 of our BM25 on the reference data sets, beside figures measured with bm25s.

    python benchmarks/reference_quality.py                  # every set found
    python benchmarks/reference_quality.py xquad-es-en --variants

Settings: title and text indexed; k1 1.2, b 0.75; 100 documents a query; linear gain (trec_eval's code,
through pytrec_eval); queries without a relevant document left out. ``language`` is the analyser of the
set's languages, ``raw`` neither stems nor drops words. The reference's raw column was made with words of
two or more characters only, which ``raw 2+`` repeats. Where documents name a ``scope``, the column
``within`` searches the query's scope alone.

The data lie in the folder ``shared/datasets`` beside the checkout, or in $RAG_SHARED/datasets.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytrec_eval

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.types import Document, Query, Ranking

ROOT = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "datasets"
DEPTH = 100
#: NDCG@10 of bm25s (lucene): with stemmer and stop words, raw.
REFERENCE: Mapping[str, tuple[float, float]] = {
    "adi-en": (0.490, 0.410),
    "covidfaq-en": (0.526, 0.459),
    "cranfield-en": (0.526, 0.494),
    "faquad-pt": (0.915, 0.891),
    "locomo-en": (0.469, 0.396),
    "locomo-en within": (0.501, 0.439),
    "xquad-es": (0.962, 0.946),
    "xquad-es-en": (0.525, 0.295),
}
_ONE_CHARACTER = re.compile(r"\b\w\b")


@dataclass(frozen=True, slots=True)
class Data:
    languages: tuple[str, ...]
    documents: list[Document]
    queries: list[Query]
    grades: dict[str, dict[str, int]]

    @classmethod
    def read(cls, folder: Path) -> Data:
        described = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
        documents = [
            Document(row["_id"], row["text"], row.get("title") or "", row.get("metadata") or {})
            for row in _rows(folder / "corpus.jsonl")
        ]
        queries = [
            Query(row["_id"], row["text"], row.get("metadata") or {})
            for row in _rows(folder / "queries.jsonl")
        ]
        grades: dict[str, dict[str, int]] = {}
        for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query_id, doc_id, grade = line.split("\t")
            grades.setdefault(query_id, {})[doc_id] = int(grade)
        # "es->en" is Spanish questions on English texts: the texts' language is taken in case of doubt
        languages = tuple(reversed(re.findall(r"[a-z]{2}", described["language"])))
        return cls(languages, documents, queries, grades)

    def without_single_characters(self) -> Data:
        def cut(text: str) -> str:
            return _ONE_CHARACTER.sub(" ", text)

        return replace(
            self,
            documents=[replace(d, text=cut(d.text), title=cut(d.title)) for d in self.documents],
            queries=[replace(q, text=cut(q.text)) for q in self.queries],
        )

    def text_only(self) -> Data:
        return replace(self, documents=[replace(d, title="") for d in self.documents])


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def ndcg(data: Data, rankings: Mapping[str, Ranking]) -> float:
    """Mean NDCG@10 over the queries that have a relevant document; an unanswered one counts 0."""
    # positions as scores: the referee keeps float32 scores and would see ties that are none
    run = {
        query_id: {doc_id: float(len(ranking) - i) for i, doc_id in enumerate(ranking.doc_ids)}
        for query_id, ranking in rankings.items()
    }
    values = pytrec_eval.RelevanceEvaluator(data.grades, {"ndcg_cut.10"}).evaluate(run)
    counted = [query_id for query_id, grades in data.grades.items() if any(g > 0 for g in grades.values())]
    return sum(values.get(query_id, {}).get("ndcg_cut_10", 0.0) for query_id in counted) / len(counted)


def measure(data: Data, analyser: Analyser, within: bool = False) -> float:
    index = BM25.build(data.documents, analyser)
    if not within:
        return ndcg(data, index.search(data.queries, DEPTH).rankings)
    rankings: dict[str, Ranking] = {}
    for query in data.queries:
        rankings |= index.search([query], DEPTH, {"scope": query.metadata["scope"]}).rankings
    return ndcg(data, rankings)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="data sets; all that are there by default")
    parser.add_argument("--variants", action="store_true", help="also text without title, other languages")
    options = parser.parse_args(argv)
    names = options.names or sorted(p.parent.name for p in ROOT.glob("*/dataset.json"))
    if not names:
        parser.error(f"no data sets in {ROOT}; set RAG_SHARED to the folder that holds datasets/")
    print(f"{'data set':<18}{'language':>9}{'ref':>7}{'diff':>8}{'raw':>9}{'ref':>7}{'diff':>8}{'raw 2+':>9}")
    for name in names:
        data = Data.read(ROOT / name)
        for within in (False, True) if all("scope" in q.metadata for q in data.queries) else (False,):
            language = measure(data, Analyser.for_languages(data.languages), within)
            raw = measure(data, Analyser.raw(), within)
            longer = measure(data.without_single_characters(), Analyser.raw(), within)
            title = f"{name} within" if within else name
            line = f"{title:<18}"
            for value, known in zip((language, raw), REFERENCE.get(title, (None, None))):
                reference = f"{known:>7.3f}{value - known:>+8.3f}" if known is not None else f"{'':>15}"
                line += f"{value:>9.3f}{reference}"
            print(f"{line}{longer:>9.3f}", flush=True)
            if options.variants:
                bare = measure(data.text_only(), Analyser.for_languages(data.languages), within)
                print(f"    text without title {bare:.3f}")
                for languages in (("en",), ("es",), ("es", "en"), ("en", "es", "pt")):
                    value = measure(data, Analyser.for_languages(languages), within)
                    print(f"    analyser {','.join(languages):<11}{value:.3f}")


if __name__ == "__main__":
    main()
