from __future__ import annotations

from providers import RERANKERS
from providers.noop import load
from rag_core.reranking import reorder
from rag_core.types import Ranking


def test_every_score_is_one_and_the_fused_order_stands() -> None:
    spec = next(spec for spec in RERANKERS if spec.name == "noop")
    noop = load(spec)
    assert noop.rerank("q", ["a", "b", "c"]) == [1.0, 1.0, 1.0]
    assert noop.fingerprint == "noop"
    assert repr(noop) == "NoopReranker()"
    fused = Ranking.from_scores({"x": 3.0, "y": 2.0, "z": 1.0})
    assert reorder(fused, noop.rerank("q", ["a", "b", "c"])).ranking.doc_ids == fused.doc_ids
