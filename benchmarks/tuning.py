"""How `bench tune` chooses: by simulation where the truth is known, and on the open sets where it is not.

    python benchmarks/tuning.py                 # 300 simulated sets of each kind, about three minutes
    python benchmarks/tuning.py --seeds 1000

Simulated values of the settings that are really tried (lists of 100), 40 and 180 queries. *Equal*: every
setting is worth the same; ``families`` gives the settings of a method a common part of their noise, as real
ones have, ``single`` gives each its own, ``zero-one`` has values of 0 and 1 of which most do not change.
*Better*: all settings of ``adaptive`` are better by the figure given. Printed are how often the default is
kept, the mean of the estimated gain with its standard error, and the mean of the true gain of what is chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.nested import nested_choice
from harness.tune_grid import grid

Floats = NDArray[np.float64]
SETTINGS, WIDTHS = grid(100)
METHOD = np.unique([setting.method for setting in SETTINGS], return_inverse=True)[1]
IS_BETTER = np.array([setting.method == "adaptive" for setting in SETTINGS])


def families(random: np.random.Generator, n: int) -> Floats:
    common = random.normal(0, 0.15, (n, METHOD.max() + 1))[:, METHOD]
    return random.uniform(0, 1, (n, 1)) + common + random.normal(0, 0.05, (n, len(SETTINGS)))


def single(random: np.random.Generator, n: int) -> Floats:
    return random.uniform(0, 1, (n, 1)) + random.normal(0, 0.15, (n, len(SETTINGS)))


def zero_one(random: np.random.Generator, n: int) -> Floats:
    changes = random.random((n, 1)) < 0.3
    flips = (random.random((n, METHOD.max() + 1)) < 0.5)[:, METHOD]
    return np.where(changes, flips, random.random((n, 1)) < 0.7).astype(np.float64)


KINDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "families": families, "single": single, "zero-one": zero_one,
}  # fmt: skip


def simulate(kind: str, n: int, effect: float, seeds: int) -> str:
    kept, gains, truth, right = 0, [], [], 0
    for seed in range(seeds):
        values = KINDS[kind](np.random.default_rng(10_000 + seed), n) + effect * IS_BETTER
        choice = nested_choice(values, WIDTHS, seed)
        kept += not choice.sure or choice.column == 0
        right += bool(IS_BETTER[choice.column])
        gains.append(choice.gain.mean)
        truth.append(effect * IS_BETTER[choice.column])
    error = np.std(gains, ddof=1) / np.sqrt(seeds)
    return (
        f"{kind:<10}{n:>6}{effect:>9.2f}{kept / seeds:>15.1%}{np.mean(gains):>+12.4f} ± {error:.4f}"
        f"{np.mean(truth):>+10.4f}{right / seeds:>10.1%}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=300, help="simulated sets of each kind")
    seeds = parser.parse_args(argv).seeds
    head = f"{'kind':<10}{'n':>6}{'better':>9}{'default kept':>15}{'estimated gain':>21}{'true':>10}"
    print(head + f"{'found':>10}")
    for effect, kinds in ((0.0, tuple(KINDS)), (0.03, ("families",)), (0.06, ("families",))):
        for kind in kinds:
            for n in (40, 180):
                print(simulate(kind, n, effect, seeds), flush=True)


if __name__ == "__main__":
    main()
