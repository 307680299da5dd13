"""A run that is exported and judged by trec_eval's code has the metrics that the harness reports for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.formats.trec import write_run
from harness.judge_command import judge_lines
from harness.judging import judge
from rag_core.types import Ranking, Run

pytrec_eval = pytest.importorskip("pytrec_eval")

MEASURES = {
    "map": "map",
    "recip_rank": "mrr",
    "ndcg_cut_10": "ndcg@10",
    "P_5": "precision@5",
    "recall_10": "recall@10",
    "success_1": "success@1",
}
ASKED = {"map", "recip_rank", "ndcg_cut.10", "P.5", "recall.10", "success.1"}
NAMES = [f"{letter}{number}" for letter in ("a", "B", "é", "z", "中", "_", "9") for number in range(12)]


def tied(generator: np.random.Generator, size: int) -> list[float]:
    """Scores of one kind: few values, far closer than single precision, beyond its range, or infinite."""
    kind = generator.integers(4)
    values = generator.integers(0, 4, size).astype(float)
    if kind == 1:
        values = 0.5 + values * 1e-12
    elif kind == 2:
        values = 10.0 ** (300 + values)
    elif kind == 3:
        values[values == 0] = np.inf
    return values.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_exported_runs_are_judged_alike(seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    rankings: dict[str, Ranking] = {}
    relevance: dict[str, dict[str, int]] = {}
    for number in range(120):
        judged = generator.choice(NAMES, 12, replace=False).tolist()
        relevance[f"q{number}"] = dict(zip(judged, generator.integers(0, 4, 12).tolist()))
        relevance[f"q{number}"][judged[0]] = 2
        found = generator.choice(NAMES, int(generator.integers(1, 60)), replace=False).tolist()
        rankings[f"q{number}"] = Ranking.from_scores(dict(zip(found, tied(generator, len(found)))))
    run = Run("made", rankings)
    path, qrels = tmp_path / "x.run", tmp_path / "qrels.txt"
    write_run(run, path)
    qrels.write_text(
        "".join(f"{q} 0 {d} {g}\n" for q, grades in relevance.items() for d, g in grades.items()),
        encoding="utf-8",
    )

    with path.open(encoding="utf-8") as stream:
        read = pytrec_eval.parse_run(stream)
    for query_id, scores in read.items():
        single = np.array(list(scores.values()), np.float32)
        assert (np.diff(single) < 0).all(), query_id
        assert tuple(scores) == rankings[query_id].doc_ids
    theirs = pytrec_eval.RelevanceEvaluator(relevance, ASKED).evaluate(read)

    ours = judge(run, relevance, MEASURES.values())
    (line,) = judge_lines(qrels, [path], list(MEASURES.values()), per_query=True)
    again = json.loads(line)["per_query"]
    assert len(ours.query_ids) == 120
    for row, query_id in enumerate(ours.query_ids):
        for measure, metric in MEASURES.items():
            expected = pytest.approx(theirs[query_id][measure], abs=1e-12)
            assert ours.values[metric][row] == expected, (query_id, metric)
            assert again[query_id][metric] == expected, (query_id, metric)
