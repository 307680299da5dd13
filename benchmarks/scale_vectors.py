"""Vectors for benchmarks at size: a seeded mixture that looks like text embeddings, or a file of real ones.

    python benchmarks/scale_vectors.py                     # describe the mixture
    python benchmarks/scale_vectors.py --vectors FILE.npy  # and real vectors beside it

A row is the sum of four normal parts, brought to length 1: a mean that all rows share (text embeddings lie
in a cone), the centre of one of 4,000 topics, the centre of one of 8 sub-topics of that, and what is the
row's own. Topics are drawn by 1 / rank, so that a few are crowded and most are small, and each has a spread
of its own. All parts have the same long-tailed spectrum, variance of direction i in proportion to
(i + 3) ** -1.2, turned by one random rotation, so that no cut of the columns into sub-vectors meets it by
luck. Rows are made in blocks of their own seeds: the first n rows are the same whatever follows, and queries
come from a block that no size reaches.

The shares were set by the figures printed here, so that they lie near those of MiniLM's vectors of 5,000
passages from four public sets; how a store ranks was not looked at. Mixture / MiniLM: mean cosine of two rows
0.319 / 0.320, to the nearest 0.837 / 0.817, to the tenth 0.641 / 0.742, participation ratio 35 / 24, variance
of the first ten 0.449 / 0.384, intrinsic dimension 20 / 18: on the whole a little harder than the text.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rag_core.errors import InvalidArgumentError
from rag_core.protocols import Vectors

TOPICS, SUBTOPICS, BLOCK = 4000, 8, 1 << 14
DECAY, HEAD = 1.2, 3
#: Standard deviation of each part, as a share of a row's own.
MEAN, TOPIC, SUBTOPIC, SPREAD = 1.4, 1.6, 1.2, 0.3
#: Blocks of queries have numbers that rows do not reach.
QUERY_BLOCK = 1 << 40
DESCRIBED = 5000


class Mixture:
    """Rows of length 1 and ``width`` columns; the same seed gives the same rows."""

    def __init__(self, width: int, seed: int = 0) -> None:
        self.width, self.seed = width, seed
        rng = np.random.default_rng([seed, 1])
        scale = np.sqrt((np.arange(width) + HEAD) ** -DECAY)
        turn, _ = np.linalg.qr(rng.standard_normal((width, width)))
        self._basis = np.asarray(scale[:, None] * turn.T, np.float32)

        def centres(n: int, share: float) -> Vectors:
            return share * rng.standard_normal((n, width), np.float32) @ self._basis

        self._mean = centres(1, MEAN)
        self._topics, self._subtopics = centres(TOPICS, TOPIC), centres(TOPICS * SUBTOPICS, SUBTOPIC)
        self._spread = np.exp(SPREAD * rng.standard_normal(TOPICS)).astype(np.float32)
        share = 1 / np.arange(1, TOPICS + 1)
        self._reach = np.cumsum(share / share.sum())

    def block(self, number: int, size: int = BLOCK) -> Vectors:
        """The rows of one block, float32 ``(size, width)``."""
        rng = np.random.default_rng([self.seed, 2, number])
        topic = np.minimum(np.searchsorted(self._reach, rng.random(size)), TOPICS - 1)
        subtopic = topic * SUBTOPICS + rng.integers(0, SUBTOPICS, size)
        rows = rng.standard_normal((size, self.width), np.float32) @ self._basis
        rows *= self._spread[topic, None]
        rows += self._mean + self._topics[topic] + self._subtopics[subtopic]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def rows(self, n: int) -> Iterator[Vectors]:
        """The first ``n`` rows, block by block."""
        for start in range(0, n, BLOCK):
            yield self.block(start // BLOCK)[: n - start]

    def queries(self, n: int) -> Vectors:
        """``n`` vectors from the same mixture that are no rows of it."""
        return self.block(QUERY_BLOCK, n)


def write_rows(path: Path, mixture: Mixture, n: int) -> None:
    """``n`` rows as a .npy file, whole or not at all; a file that is there and long enough is kept."""
    if path.exists() and np.load(path, mmap_mode="r").shape[0] >= n:
        return
    unfinished = path.with_name(path.name + ".tmp.npy")
    made = np.lib.format.open_memmap(unfinished, "w+", np.float32, (n, mixture.width))  # type: ignore[no-untyped-call]
    start = 0
    for rows in mixture.rows(n):
        made[start : start + len(rows)] = rows
        start += len(rows)
    made.flush()
    unfinished.replace(path)


def read_rows(path: Path) -> Vectors:
    """A .npy file of real vectors, mapped.

    Raises:
        InvalidArgumentError: not a file of float32 ``(n, width)``.
    """
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{path}: {error}; accepted: a .npy file of float32 (n, width)") from error
    if rows.ndim != 2 or rows.dtype != np.float32:
        raise InvalidArgumentError(f"{path}: {rows.dtype} {rows.shape}; accepted: float32 (n, width)")
    return np.asarray(rows)


def describe(rows: Vectors) -> dict[str, float]:
    """Figures by which vectors are told to look alike; they depend on how many rows there are.

    The intrinsic dimension is Levina and Bickel's estimate from the 10 nearest rows ("Maximum likelihood
    estimation of intrinsic dimension", 2004), the median over rows; the participation ratio is
    (sum of eigenvalues)² / sum of their squares, of the covariance.
    """
    unit = np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float64)
    unit = np.unique(unit, axis=0)
    values = np.linalg.eigvalsh(np.cov(unit.T))[::-1]
    cosines = unit[:2000] @ unit.T
    own = np.arange(len(cosines))
    mean = (cosines.sum() - len(cosines)) / (cosines.size - len(cosines))
    cosines[own, own] = -2
    near = np.sort(-np.partition(-cosines, 10, axis=1)[:, :10], axis=1)[:, ::-1]
    distance = np.sqrt(np.maximum(2 - 2 * near, 1e-12))
    dimension = 1 / np.maximum(np.log(distance[:, -1:] / distance[:, :-1]).mean(axis=1), 1e-9)
    return {
        "mean cosine of two rows": float(mean),
        "cosine to the nearest row, median": float(np.median(near[:, 0])),
        "cosine to the tenth, median": float(np.median(near[:, -1])),
        "participation ratio": float(values.sum() ** 2 / (values**2).sum()),
        "variance of the first 10": float(values[:10].sum() / values.sum()),
        "intrinsic dimension, median": float(np.median(dimension)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vectors", type=Path, help="real ones, .npy of float32 (n, width)")
    parser.add_argument("--width", type=int, default=384)
    options = parser.parse_args()
    real = read_rows(options.vectors)[:DESCRIBED] if options.vectors else None
    n = DESCRIBED if real is None else len(real)
    width = options.width if real is None else real.shape[1]
    columns = {"mixture": describe(np.concatenate(list(Mixture(width).rows(n))))}
    if real is not None:
        columns["file"] = describe(real)
    print(f"{n} rows of {width}\n{'':<36}" + "".join(f"{name:>10}" for name in columns))
    for figure in columns["mixture"]:
        print(f"{figure:<36}" + "".join(f"{found[figure]:>10.3g}" for found in columns.values()))


if __name__ == "__main__":
    main()
