"""Whether two ways to run one model agree: the same vectors, or at least the same results.

A figure of speed is believed only beside its agreement with the reference, the fp32 vectors of the same
model. What is asked depends on the number format and stands in :data:`RULES`: floats must give the same
vectors; quantised weights need not, but must find the same documents. Sources: Spearman, "The proof and
measurement of association between two things", Am. J. Psychol. 15 (1904), ties with average ranks as in
Kendall, "Rank Correlation Methods" (1948); the interval of a difference as in
:mod:`harness.significance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.significance import paired_difference
from rag_core.errors import InvalidArgumentError

__all__ = [
    "DIFFERS",
    "EQUIVALENT",
    "RULES",
    "SAME",
    "Agreement",
    "RerankAgreement",
    "Rule",
    "agree",
    "cosines",
    "rank_correlation",
    "rerank_agreement",
    "rule_of",
    "same_space",
    "top_overlap",
]

Floats = NDArray[np.float64]
Matrix = NDArray[Any]
Values = Sequence[float | None]

#: Verdicts. What differs is marked wherever it is shown and never recommended.
SAME, EQUIVALENT, DIFFERS = "same", "equivalent", "differs"
DEPTH = 10
#: Mean share of the reference's first ten documents that a quantised variant must also find.
LEAST_OVERLAP = 0.8
#: The lower end of the paired nDCG@10 interval may lie this far below 0, no further.
LEAST_DIFFERENCE = -0.02
#: Vectors of unrelated models stand at right angles, within a few hundredths; quantised ones of the same
#: model keep 0.9 and more.
SAME_SPACE = 0.8
#: Scores closer than this are one score: the rounding of two engines must not order duplicates.
SCORE_DECIMALS = 6
#: Numbers held at once while searching: 32 MB of float64.
BLOCK = 4_000_000


@dataclass(frozen=True, slots=True)
class Rule:
    """What one number format must reach.

    Attributes:
        least_cosine: to the reference, of every text, for the verdict ``same``.
        least_correlation: the same of a reranker: Spearman's, of every query's scores.
        same_vectors: whether less than that is ``differs`` at once; else results decide.
    """

    least_cosine: float
    least_correlation: float
    same_vectors: bool


#: By the dtype of a fingerprint. Others (int8, q8, int4, q4, stored, …) are :data:`QUANTISED`.
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "fp32": Rule(0.9999, 0.99, True),
        "fp16": Rule(0.999, 0.95, True),
        "bf16": Rule(0.999, 0.95, True),
    }
)
QUANTISED = Rule(0.9999, 0.99, False)


def rule_of(dtype: str) -> Rule:
    """The rule of a number format; an unknown one is held to results, as quantised ones are."""
    return RULES.get(dtype, QUANTISED)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a variant's vectors and results are from the reference's.

    Attributes:
        min_cosine, p1_cosine: the least and the 1st percentile over all texts, documents and queries.
        overlap_at_10: mean over queries of the share of the reference's first ten documents found.
        difference: mean, low and high end of the paired nDCG@10 difference, variant minus reference;
            None where no query has both values.
        n_texts, n_queries: texts compared; queries searched for the overlap.
        verdict: ``same``, ``equivalent`` or ``differs``.
        reason: what was missed, with the value seen and the one accepted; empty unless ``differs``.
    """

    min_cosine: float
    p1_cosine: float
    overlap_at_10: float
    difference: tuple[float, float, float] | None
    n_texts: int
    n_queries: int
    verdict: str
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The fields, ``difference`` as ``{"mean", "low", "high"}`` or None."""
        return _as_dict(self)


@dataclass(frozen=True, slots=True)
class RerankAgreement:
    """How far a reranker's scores and results are from the reference's.

    Attributes:
        min_correlation, mean_correlation: Spearman's rank correlation of the raw scores, over queries.
        top_10_equal: share of queries whose first ten candidates are the same in the same order.
        overlap_at_10: mean share of the reference's first ten candidates among the first ten.
        difference: as in :class:`Agreement`.
        n_queries: queries with at least one candidate.
        verdict: ``same``, ``equivalent`` or ``differs``.
        reason: as in :class:`Agreement`.
    """

    min_correlation: float
    mean_correlation: float
    top_10_equal: float
    overlap_at_10: float
    difference: tuple[float, float, float] | None
    n_queries: int
    verdict: str
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The fields, ``difference`` as ``{"mean", "low", "high"}`` or None."""
        return _as_dict(self)


def _as_dict(found: Agreement | RerankAgreement) -> dict[str, Any]:
    gap = found.difference
    return {**asdict(found), "difference": gap and dict(zip(("mean", "low", "high"), gap))}


def cosines(reference: ArrayLike, other: ArrayLike) -> Floats:
    """Cosine of each row of ``reference`` with the same row of ``other``: (n, d) and (n, d) give (n,).

    Two rows of zeros (a blank text) agree: 1. A row of zeros against another, or one that is not finite,
    gives 0.

    Raises:
        InvalidArgumentError: the shapes differ or are not two-dimensional.
    """
    a, b = _matrix(reference), _matrix(other)
    if a.shape != b.shape:
        raise InvalidArgumentError(f"vectors of shape {a.shape} and {b.shape}; accepted: equal shapes")
    step = max(1, BLOCK // max(1, a.shape[1]))
    blocks = [_cosines(a[i : i + step], b[i : i + step]) for i in range(0, len(a), step)]
    return np.concatenate(blocks) if blocks else np.zeros(0)


def _cosines(a: Matrix, b: Matrix) -> Floats:
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.einsum("ij,ij->i", a, b) / (lengths[0] * lengths[1])
    found[~np.isfinite(found)] = 0.0
    found[(lengths[0] == 0) & (lengths[1] == 0)] = 1.0
    return np.asarray(np.clip(found, -1.0, 1.0), np.float64)


def same_space(reference: ArrayLike, other: ArrayLike) -> bool:
    """Whether both embed one model's space: equal width and a median cosine of at least 0.8."""
    a, b = _matrix(reference), _matrix(other)
    return a.shape == b.shape and len(a) > 0 and float(np.median(cosines(a, b))) >= SAME_SPACE


def top_overlap(
    ref_docs: ArrayLike, ref_queries: ArrayLike, docs: ArrayLike, queries: ArrayLike, k: int = DEPTH
) -> float:
    """Mean over queries of ``|first k ∩ first k of the reference| / k``, by dot product, in [0, 1].

    Documents and queries are rows, the same ones in both; the widths of the two sides may differ. With
    fewer than ``k`` documents, all of them count. Of equal scores (to six decimals) the earlier row is
    first, so that duplicates are ordered alike whatever the rounding.

    Raises:
        InvalidArgumentError: no documents or queries, other numbers of rows, or ``k`` below 1.
    """
    sides = [(_matrix(ref_docs), _matrix(ref_queries)), (_matrix(docs), _matrix(queries))]
    (n_docs, n_queries), other = ((len(d), len(q)) for d, q in sides)
    if (n_docs, n_queries) != other or not n_docs or not n_queries or k < 1:
        raise InvalidArgumentError(
            f"{n_docs} documents and {n_queries} queries against {other[0]} and {other[1]}, k = {k}; "
            "accepted: equal numbers, at least one of each"
        )
    k = min(k, n_docs)
    first, second = (_tops(d, q, k) for d, q in sides)
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(first, second)]))


def _tops(docs: Matrix, queries: Matrix, k: int) -> Iterator[NDArray[np.intp]]:
    step, width = max(1, BLOCK // len(docs)), max(1, BLOCK // max(1, docs.shape[1]))
    for start in range(0, len(queries), step):
        block = queries[start : start + step].astype(np.float64)
        parts = [block @ docs[i : i + width].astype(np.float64).T for i in range(0, len(docs), width)]
        for row in np.concatenate(parts, axis=1):
            yield _top(np.round(row, SCORE_DECIMALS), k)


def _top(scores: ArrayLike, k: int) -> NDArray[np.intp]:
    """Positions of the ``k`` highest, in order; of equal ones the earlier first, not-a-number last."""
    falling = -_ordered(scores)
    k = min(k, len(falling))
    last = np.partition(falling, k - 1)[k - 1]
    near = np.flatnonzero(falling <= last)
    return near[np.argsort(falling[near], kind="stable")][:k]


def _ordered(scores: ArrayLike) -> Floats:
    """``scores`` with -inf for not-a-number: last in every order."""
    found = np.asarray(scores, np.float64)
    return np.where(np.isnan(found), -np.inf, found)


def agree(
    dtype: str,
    reference: ArrayLike,
    vectors: ArrayLike,
    reference_queries: ArrayLike,
    queries: ArrayLike,
    *,
    reference_values: Values = (),
    values: Values = (),
    seed: int = 0,
) -> Agreement:
    """Judge a variant of number format ``dtype`` by :data:`RULES`.

    Args:
        dtype: number format of the variant, as its fingerprint names it.
        reference, vectors: document vectors, (n, d) each, row by row of the same documents.
        reference_queries, queries: query vectors, (m, d) each. A query whose row is all zeros on either
            side (blank, or the call failed) takes no part.
        reference_values, values: nDCG@10 of each judged query, in the same order; None where missing.
        seed: of the bootstrap.

    Raises:
        InvalidArgumentError: shapes differ, or there is no document or no answered query.
    """
    a, b = _matrix(reference_queries), _matrix(queries)
    if a.shape != b.shape:
        raise InvalidArgumentError(f"query vectors of shape {a.shape} and {b.shape}; accepted: equal shapes")
    answered = a.any(axis=1) & b.any(axis=1)
    a, b = a[answered], b[answered]
    overlap = top_overlap(reference, a, vectors, b)
    each = np.concatenate([cosines(reference, vectors), cosines(a, b)])
    least, rule = float(each.min()), rule_of(dtype)
    gap = _gap(reference_values, values, seed)
    missed = "" if least >= rule.least_cosine else f"cosine {least:.5f} to the reference"
    verdict, reason = _judge(dtype, missed, rule.least_cosine, rule.same_vectors, overlap, gap)
    return Agreement(least, float(np.quantile(each, 0.01)), overlap, gap, len(each), len(a), verdict, reason)


def _judge(
    dtype: str,
    missed: str,
    least: float,
    same_vectors: bool,
    overlap: float,
    gap: tuple[float, float, float] | None,
) -> tuple[str, str]:
    """The verdict, and why it is ``differs``; ``missed`` says what is too low to be the same, if anything."""
    if not missed:
        return SAME, ""
    if same_vectors:
        return DIFFERS, f"{missed} (at least {least} expected of {dtype})"
    reasons = []
    if overlap < LEAST_OVERLAP:
        reasons.append(f"top-10 overlap {overlap:.2f} (at least {LEAST_OVERLAP} expected)")
    if gap is not None and gap[1] < LEAST_DIFFERENCE:
        reasons.append(
            f"nDCG@10 may be lower by {-gap[1]:.3f} (95 % interval; at most {-LEAST_DIFFERENCE} accepted)"
        )
    return (DIFFERS, f"{missed}; {'; '.join(reasons)}") if reasons else (EQUIVALENT, "")


def _gap(reference: Values, values: Values, seed: int) -> tuple[float, float, float] | None:
    both = [(v, r) for r, v in zip(reference, values) if r is not None and v is not None]
    if not both:
        return None
    found = paired_difference([v for v, _ in both], [r for _, r in both], seed=seed, permutations=1)
    return found.mean, found.low, found.high


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation of two score lists of shape (n,), ties with their average rank.

    1 where both order nothing (all scores equal, or fewer than two), 0 where only one of them does.

    Raises:
        InvalidArgumentError: the lengths differ.
    """
    x, y = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    if len(x) != len(y):
        raise InvalidArgumentError(f"{len(x)} scores against {len(y)}; accepted: one pair per candidate")
    if len(x) < 2:
        return 1.0
    u, v = _ranks(x), _ranks(y)
    u, v = u - u.mean(), v - v.mean()
    scale = float(np.sqrt((u @ u) * (v @ v)))
    if scale == 0:
        return float(not u.any() and not v.any())
    return float(np.clip(u @ v / scale, -1.0, 1.0))


def _ranks(values: Floats) -> Floats:
    """Ranks from 1 on; equal values share the mean of theirs. Not-a-number ranks lowest."""
    _, places, counts = np.unique(_ordered(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[places], np.float64)


def rerank_agreement(
    reference_scores: Sequence[ArrayLike],
    scores: Sequence[ArrayLike],
    *,
    dtype: str = "fp32",
    reference_values: Values = (),
    values: Values = (),
    seed: int = 0,
) -> RerankAgreement:
    """Judge a variant of a reranker by :data:`RULES`, as :func:`agree` does an embedder.

    Args:
        reference_scores, scores: raw scores of each query's candidates, the same candidates in the same
            order on both sides. Queries without a candidate take no part.
        dtype, reference_values, values, seed: as in :func:`agree`.

    Raises:
        InvalidArgumentError: other numbers of queries or candidates, or no query with a candidate.
    """
    if len(reference_scores) != len(scores):
        raise InvalidArgumentError(
            f"scores of {len(reference_scores)} queries against {len(scores)}; accepted: equal numbers"
        )
    pairs = [
        (np.asarray(a), np.asarray(b)) for a, b in zip(reference_scores, scores) if np.size(a) or np.size(b)
    ]
    if not pairs:
        raise InvalidArgumentError("no query has a candidate; accepted: at least one scored pair")
    each = [rank_correlation(a, b) for a, b in pairs]
    tops = [(_top(a, DEPTH), _top(b, DEPTH)) for a, b in pairs]
    overlap = float(np.mean([len(np.intersect1d(a, b)) / len(a) for a, b in tops]))
    equal = float(np.mean([np.array_equal(a, b) for a, b in tops]))
    gap, least, rule = _gap(reference_values, values, seed), min(each), rule_of(dtype)
    missed = "" if least >= rule.least_correlation else f"rank correlation {least:.3f} to the reference"
    verdict, reason = _judge(dtype, missed, rule.least_correlation, rule.same_vectors, overlap, gap)
    return RerankAgreement(least, float(np.mean(each)), equal, overlap, gap, len(pairs), verdict, reason)


def _matrix(vectors: ArrayLike) -> Matrix:
    found = np.asarray(vectors)
    if found.ndim != 2:
        raise InvalidArgumentError(f"vectors of shape {found.shape}; accepted: one row per text")
    return found
