"""Do the statistics keep what they promise? Simulated, seeded; then their speed.

    python benchmarks/significance.py [--repetitions 2000] [--families 400] [--seed 0] [--no-speed]

Values look like nDCG@10 of one relevant document: many zeros and ones, few values between, and two systems
agree more often than not. Every share stands beside the interval that chance allows at this number of
repetitions (99.9 %, exact binomial) around what is promised; a share without one is shown for comparison.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from harness.power import queries_needed
from harness.significance import (
    PairedDifference,
    bootstrap_interval,
    holm,
    paired_difference,
    paired_differences,
    randomisation_p,
    regularised_beta,
)

Floats = NDArray[np.float64]
#: Share of queries by nDCG@10: no hit, ranks 10 to 2, rank 1.
VALUES = np.array([0.0, *(1 / np.log2(rank + 1) for rank in range(10, 1, -1)), 1.0])
SHARES = np.array([0.25, 0.02, 0.02, 0.02, 0.03, 0.03, 0.04, 0.06, 0.07, 0.11, 0.35])
EDGES = np.array([NormalDist().inv_cdf(share) for share in np.cumsum(SHARES)[:-1]])
#: Correlation of two systems' latent scores on a query.
ALIKE = 0.7
SYSTEMS, CHUNK = 20, 100
SIZES = (30, 200, 1000)
#: From this many queries on the interval is promised to hold what it says.
ENOUGH = 200
Maker = Callable[[np.random.Generator, int, int, float], Floats]


def drawn(generator: np.random.Generator, n: int, k: int, shift: float = 0.0) -> Floats:
    """Values (n, k) of k systems on n queries; the first is better by ``shift`` latent deviations."""
    common, own = generator.normal(size=(n, 1)), generator.normal(size=(n, k))
    latent = np.sqrt(ALIKE) * common + np.sqrt(1 - ALIKE) * own
    latent[:, 0] += shift
    return VALUES[np.searchsorted(EDGES, latent)]


def reshaped(generator: np.random.Generator, n: int, k: int = 2, shift: float = 0.0) -> Floats:
    """Two systems of equal mean: the second has only zeros and ones."""
    values = drawn(generator, n, k, shift)
    values[:, 1] = generator.random(n) < values[:, 1]
    return values


def true_difference(shift: float) -> float:
    """The first system's mean minus another's, exactly."""
    normal = NormalDist()
    below = [0.0, *(normal.cdf(edge - shift) for edge in EDGES), 1.0]
    return float(VALUES @ np.diff(below) - VALUES @ SHARES)


def true_sd(shift: float) -> float:
    """Standard deviation of the difference, from 400,000 queries."""
    values = drawn(np.random.default_rng(99), 400_000, 2, shift)
    return float((values[:, 0] - values[:, 1]).std())


def shift_for(difference: float) -> float:
    """The latent shift that moves the mean by ``difference``."""
    low, high = -4.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if true_difference(middle) < difference else (low, middle)
    return (low + high) / 2


def quantile(probability: float, n: int, share: float) -> int:
    """Smallest count that at most a binomial (n, share) count stays at with ``probability``."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        # P(X <= middle) = I_{1-share}(n - middle, middle + 1)
        if regularised_beta(1 - share, n - middle, middle + 1) < probability:
            low = middle + 1
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Share:
    """How often something happened, and what chance allows around the promise."""

    what: str
    count: int
    n: int
    promised: float
    #: "at most" the promise, "about" it, or "" for a share without a promise.
    side: str = "at most"

    @property
    def kept(self) -> bool:
        if not self.side:
            return True
        low, high = self.bounds
        return (self.side == "at most" or self.count >= low) and self.count <= high

    @property
    def bounds(self) -> tuple[int, int]:
        return quantile(0.0005, self.n, self.promised), quantile(0.9995, self.n, self.promised)

    def line(self) -> str:
        shown = f"  {self.what:<54} {self.count / self.n:6.1%}"
        if not self.side:
            return shown
        low, high = (bound / self.n for bound in self.bounds)
        allowed = f"up to {high:.1%}" if self.side == "at most" else f"{low:.1%} to {high:.1%}"
        mark = "" if self.kept else "  NOT KEPT"
        return f"{shown}  {self.side} {self.promised:.0%} ({allowed}){mark}"


def compared(
    generator: np.random.Generator,
    n: int,
    repetitions: int,
    shift: float = 0.0,
    make: Maker = drawn,
    *,
    resamples: int = 2000,
    permutations: int = 1,
) -> list[PairedDifference]:
    """The paired difference of two columns, repeated; a hundred repetitions share what is resampled."""
    out: list[PairedDifference] = []
    for start in range(0, repetitions, CHUNK):
        size = min(CHUNK, repetitions - start)
        table = np.column_stack([make(generator, n, 2, shift) for _ in range(size)])
        pairs = [(2 * i, 2 * i + 1) for i in range(size)]
        out += paired_differences(table, pairs, seed=start, resamples=resamples, permutations=permutations)
    return out


def false_positives(repetitions: int, seed: int, sizes: Sequence[int] = SIZES) -> list[Share]:
    """Pairs without a difference that are called different at 0.05."""
    out = []
    for name, make in (("alike in every way", drawn), ("equal means, another shape", reshaped)):
        for n in sizes:
            generator = np.random.default_rng([seed, n])
            found = compared(generator, n, repetitions, make=make, resamples=100, permutations=2000)
            out.append(Share(f"{name}, n = {n}", sum(f.p_value <= 0.05 for f in found), repetitions, 0.05))
    return out


def families(repetitions: int, seed: int, n: int = 200) -> list[Share]:
    """Runs of 20 equal systems in which any is called different."""
    generator = np.random.default_rng([seed, 1])
    everyone = list(itertools.combinations(range(SYSTEMS), 2))
    baseline = best_only = all_together = 0
    for number in range(repetitions):
        values = drawn(generator, n, SYSTEMS)
        p_values = dict(zip(everyone, randomisation_p(values, everyone, number)))
        best = int(values.mean(axis=0).argmax())
        baseline += min(holm([p_values[0, j] for j in range(1, SYSTEMS)])) < 0.05
        own = [p_values[min(best, j), max(best, j)] for j in range(SYSTEMS) if j != best]
        best_only += min(holm(own)) < 0.05
        all_together += min(holm(list(p_values.values()))) < 0.05
    return [
        Share("19 against a baseline, corrected for 19", baseline, repetitions, 0.05),
        Share("19 against the best seen, corrected for all 190 pairs", all_together, repetitions, 0.05),
        Share("the same corrected for 19 only: not what is done", best_only, repetitions, 0.05, ""),
    ]


def coverage(repetitions: int, seed: int, sizes: Sequence[int] = SIZES) -> list[Share]:
    """Intervals that hold the true value. BCa is known to be somewhat narrow for few queries."""
    out = []
    for n in sizes:
        side = "about" if n >= ENOUGH else ""
        for name, shift in (("no difference", 0.0), ("a difference of 0.05", shift_for(0.05))):
            true = true_difference(shift)
            found = compared(np.random.default_rng([seed, n, 2]), n, repetitions, shift)
            hits = sum(f.low <= true <= f.high for f in found)
            out.append(Share(f"{name}, n = {n}", hits, repetitions, 0.95, side))
        generator, true = np.random.default_rng([seed, n, 3]), float(VALUES @ SHARES)
        few = min(repetitions, 500)
        each = [bootstrap_interval(drawn(generator, n, 1)[:, 0], seed=i) for i in range(few)]
        hits = sum(low <= true <= high for low, high in each)
        out.append(Share(f"a mean, n = {n} ({few} repetitions)", hits, few, 0.95, side))
    return out


def powers(repetitions: int, seed: int, planted: Sequence[float] = (0.15, 0.08, 0.05)) -> list[Share]:
    """Planted differences found with as many queries as the formula asks for, for 80 %."""
    out = []
    for difference in planted:
        shift = shift_for(difference)
        n = queries_needed(difference, true_sd(shift)) or 0
        generator = np.random.default_rng([seed, n, 4])
        found = compared(generator, n, repetitions, shift, resamples=100, permutations=2000)
        hits = sum(f.p_value <= 0.05 for f in found)
        out.append(Share(f"a difference of {difference}, n = {n}", hits, repetitions, 0.80, "about"))
    return out


def margins(repetitions: int, seed: int, sizes: Sequence[int] = SIZES, margin: float = 0.04) -> list[Share]:
    """What is called not worse by more than the margin, of systems that are so and of equal ones."""
    out = []
    for n in sizes:
        found = compared(np.random.default_rng([seed, n, 5]), n, repetitions, shift_for(-margin))
        said = sum(f.lower > -margin for f in found)
        out.append(Share(f"behind by exactly {margin}, n = {n}", said, repetitions, 0.05))
    enough = queries_needed(margin, true_sd(0.0), alpha=0.10) or 0
    found = compared(np.random.default_rng([seed, 6]), enough, repetitions)
    said = sum(f.lower > -margin for f in found)
    out.append(Share(f"equal, n = {enough}", said, repetitions, 0.80, "about"))
    return out


def speed(seed: int, n: int = 10_000) -> list[str]:
    """20 systems on 10,000 queries: together, and one call for each."""
    values = drawn(np.random.default_rng([seed, 7]), n, SYSTEMS, 0.1)
    against = [(j, 0) for j in range(1, SYSTEMS)]
    everyone = list(itertools.combinations(range(SYSTEMS), 2))
    together, alone, all_s = [], [], []
    for _ in range(3):  # interleaved: whatever else runs meets all three
        for taken, call in (
            (together, lambda: paired_differences(values, against)),
            (alone, lambda: paired_difference(values[:, 1], values[:, 0])),
            (all_s, lambda: paired_differences(values, everyone)),
        ):
            started = perf_counter()
            call()
            taken.append(perf_counter() - started)
    loop = len(against) * median(alone)
    return [
        f"  19 systems against a baseline, together        {median(together):6.1f} s",
        f"  the same as 19 single calls (19 x one call)    {loop:6.1f} s  {loop / median(together):.0f} x",
        f"  all 190 pairs, together                        {median(all_s):6.1f} s",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--families", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-speed", action="store_true")
    given = parser.parse_args()
    kept = True
    for title, shares in (
        (
            "called different at p <= 0.05 where there is no difference",
            false_positives(given.repetitions, given.seed),
        ),
        (f"{SYSTEMS} equal systems, 200 queries: any called different", families(given.families, given.seed)),
        ("95 % intervals that hold the true value", coverage(given.repetitions, given.seed)),
        ("planted differences found (power)", powers(given.repetitions, given.seed)),
        ("called not worse by more than 0.04 (one-sided 95 %)", margins(given.repetitions, given.seed)),
    ):
        print(f"{title}, {max(share.n for share in shares)} repetitions")
        for share in shares:
            print(share.line())
        kept = kept and all(share.kept for share in shares)
    print("every promise is kept" if kept else "a promise is NOT KEPT")
    if not given.no_speed:
        print("10,000 queries x 20 systems, medians of 3")
        print("\n".join(speed(given.seed)))


if __name__ == "__main__":
    main()
