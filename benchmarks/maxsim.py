"""``maxsim`` on MiniLM's packaged weights: integers beside the package's own graph, in turns in one process.

Run ``python benchmarks/maxsim.py``; ``--candidates 50 --rounds 7`` by default, candidates are 80 to 120 words
of BERT's vocabulary. CPU is the processor time of all threads, medians are shown. Agreement is the cosine of
the token vectors of :data:`providers._sentences.SENTENCES` to those of the original fp32 weights, where torch
and a package that ships them are installed, else to the package's graph. Read the ratio, not the times.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from pathlib import Path
from time import process_time

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from providers import RERANKERS
from providers._bert import VOCABULARY
from providers._common import installed
from providers._models import packaged_minilm
from providers._sentences import SENTENCES
from providers.maxsim import PACKAGED, ROWS, MaxSim, load

SPEC = next(spec for spec in RERANKERS if (spec.name, spec.target) == ("maxsim", "cpu"))


def texts(n: int) -> list[str]:
    choose = random.Random(1)
    words = [w for w in VOCABULARY.read_text(encoding="utf-8").split() if w.isalpha() and len(w) > 3]
    return [" ".join(choose.choices(words, k=choose.randrange(80, 121))) for _ in range(n)]


def tokens(reranker: MaxSim) -> np.ndarray:
    """The token vectors of the sentences, each of length 1."""
    return np.concatenate([each.vectors for each in reranker._tokens(list(SENTENCES))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    contenders = {engine: load(SPEC, engine=engine, cache_mb=0) for engine in (PACKAGED, ROWS)}
    query, *candidates = texts(options.candidates + 1)
    query = " ".join(query.split()[:8])
    seconds: dict[str, list[float]] = {engine: [] for engine in contenders}
    for round_ in range(options.rounds + 1):
        for engine, reranker in contenders.items():
            started = process_time()
            reranker.rerank(query, candidates)
            if round_:  # the first one loads
                seconds[engine].append(process_time() - started)
    # torch comes last: its threads would stand in the processor time of the others
    folder = packaged_minilm() if installed("torch") else None
    exact = tokens(
        load(SPEC, path=str(folder), engine="torch", dtype="fp32") if folder else contenders[PACKAGED]
    )
    whole = statistics.median(seconds[PACKAGED])
    reference = "the original weights in fp32" if folder else PACKAGED
    print(f"{options.candidates} candidates, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print(f"cosine to {reference}")
    print(f"{'engine':<10}{'CPU':>10}{'ratio':>8}{'cosine, mean':>15}{'least':>10}")
    for engine, reranker in contenders.items():
        near = (tokens(reranker) * exact).sum(axis=1)
        cpu = statistics.median(seconds[engine])
        print(f"{engine:<10}{cpu * 1e3:>7.3g} ms{cpu / whole:>8.2f}{near.mean():>15.5f}{near.min():>10.5f}")


if __name__ == "__main__":
    main()
