"""Fusion whose weights are worked out anew for every query, from what an index knows when it answers.

**Evidence of a list.** A lexical list: ``coverage * s1 / ln(N + 1)``. BM25 scores are sums of log odds, and
it takes ln N of them to single out one of N documents, so that the best score ``s1`` over ln N says how far
the words that were found could do that; ``coverage``, the share of the query's idf mass that one of the best
three documents holds, says how much of the question these words are. A question in another language than the
corpus, or in other words than the answer, has little of both. Any other list:
``peak² / (2 * SPREAD * ln n)``, ``peak`` being the best of its n scores in standard deviations above their
mean, and sqrt(2 ln n) what the best of n normal deviates reaches by itself.

**Weights.** In proportion to evidence squared. Evidence is a signal measured in its own noise, so that 1 over
its square is the variance of what a leg says, and estimates are combined by the inverse of their variances.

**Scores.** ``sum over legs of weight * exp(z) / (sum of exp(z) over all candidates)``, z as made by
:func:`~rag_core.fusion.legs.standardise`: each leg spreads its weight over the documents that any leg lists.
One that it does not list has the z of its last one (of a score of 0 where the list is whole). A leg that
singles out one document therefore counts more where it does so, and a leg that cannot tell its candidates
apart moves little.

Nothing is trained at the user's site. The one constant was chosen by leaving out one data set at a time, see
``benchmarks/fusion.py``. Sources: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009, for
BM25 as log odds; Cronen-Townsend, Zhou and Croft, "Predicting query performance", SIGIR 2002, and Shtok and
others, "Predicting query performance by query-drift estimation", TOIS 2012, for the shape of a list as a sign
of its worth; Cochran, "Problems arising in the analysis of a series of similar experiments", 1937, for
inverse variances; Genest and Zidek, "Combining probability distributions", 1986, for the weighted sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rag_core.fusion.legs import Fused, Leg, checked_weights, combine, standardise

__all__ = ["SPREAD", "adaptive"]

#: Squared, in units of what the best of n normal deviates reaches: the peak of a list that one may trust.
SPREAD = 2.0


def adaptive(
    legs: Sequence[Leg],
    weights: Sequence[float] | None = None,
    *,
    spread: float = SPREAD,
) -> Fused:
    """Fuse ``legs`` with weights worked out for this query; the formula stands at the top of this module.

    Works on the lists alone and deals with any number of them. An empty list counts nothing; where no list
    has evidence, all others count the same. The constant is meant for lists of
    :data:`~rag_core.fusion.READ` documents.

    Args:
        weights: one per leg, multiplied into those worked out; a leg of weight 0 adds no document.
        spread: the constant; for the benchmark that chooses it.

    Raises:
        InvalidArgumentError: bad ``weights``.
    """
    given = checked_weights(weights, len(legs), "adaptive")
    made = [standardise(leg) for leg in legs]
    evidence = [_evidence(leg, peak, spread) for leg, (_, _, peak) in zip(legs, made)]
    counted = [weight if len(leg.ranking) else 0.0 for weight, leg in zip(given, legs)]
    best = max((e for e, weight in zip(evidence, counted) if weight), default=0.0)
    # over the best, so that no square of a tiny number vanishes; without evidence all are alike
    raw = [w * ((e / best) ** 2 if best else 1.0) for w, e in zip(counted, evidence)]
    total = math.fsum(raw)
    shares = [value / total if total else 0.0 for value in raw]
    candidates = len({d for leg, weight in zip(legs, counted) if weight for d in leg.ranking.doc_ids})
    points: list[dict[str, float]] = []
    missing: list[float] = []
    for leg, weight, share, (values, floor, _) in zip(legs, counted, shares, made):
        if not weight:
            points.append({})
            missing.append(0.0)
            continue
        top = values[0]
        odds = [math.exp(value - top) for value in values]
        unlisted = math.exp(floor - top)
        factor = share / (math.fsum(odds) + unlisted * (candidates - len(odds)))
        points.append({d: factor * o for d, o in zip(leg.ranking.doc_ids, odds)})
        missing.append(factor * unlisted)
    reasons = [_reason(leg, peak, e) for leg, (_, _, peak), e in zip(legs, made, evidence)]
    return Fused(
        combine(points, missing),
        "adaptive",
        tuple(leg.name for leg in legs),
        tuple(shares),
        tuple(reasons),
        tuple(points),
        tuple(missing),
    )


def _evidence(leg: Leg, peak: float, spread: float) -> float:
    if not len(leg.ranking):
        return 0.0
    known = leg.evidence
    if known is not None:
        return max(0.0, known.coverage * leg.ranking.scores[0] / math.log(max(known.n_documents, 1) + 1))
    return peak * peak / (2 * spread * math.log(max(len(leg.ranking), 2)))


def _reason(leg: Leg, peak: float, evidence: float) -> str:
    if not len(leg.ranking):
        return "found nothing"
    known = leg.evidence
    if known is None:
        return f"its best stands {peak:.1f} deviations above its list: evidence {evidence:.2f}"
    reach = leg.ranking.scores[0] / math.log(max(known.n_documents, 1) + 1)
    return (
        f"one document holds {known.coverage:.0%} of the query's idf mass, and the best score is "
        f"{reach:.2f} of what tells {known.n_documents} documents apart: evidence {evidence:.2f}"
    )
