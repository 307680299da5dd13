"""Our cross-encoders beside ``CrossEncoder.predict``: seconds for 50 candidates, and whether they agree.

Run ``python benchmarks/reranking.py [--model FOLDER]`` (or ``RAG_BENCH_RERANKER=FOLDER``), in an
environment with sentence-transformers. Without a folder a classifier of MiniLM-L6's shape with random
weights is made, whose scores mean nothing and whose times are the same. Contenders take turns for
``--rounds`` rounds, each in a fresh process (an OpenMP library reads its settings once), every query with
its own candidates of about 209 tokens; the median of all queries is shown. The peer is ``predict`` with its
default ``batch_size=32`` and with the best of ``PEER_SIZES``. Agreement is with the peer in fp32: the share
of queries with the same ten best, and Spearman's rho. Absolute times depend on the machine and its load;
read the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from providers import RERANKERS
from providers._bert import VOCABULARY, bert_tokenizer
from rag_core.devices import usable_cpus
from rag_core.registry import load_attribute

PEER_SIZES = (1, 8)
#: Words of a candidate; nearly all of them are one token of BERT's, and a pair has about 209.
WORDS_LOW, WORDS_HIGH = 60, 338
TOP = 10
Score = Callable[[str, list[str]], list[float]]
SPEC = next(spec for spec in RERANKERS if (spec.name, spec.target) == ("cross-encoder", "cpu"))


def ours(folder: str, **options: str) -> Score:
    reranker = load_attribute(SPEC.load)(SPEC, path=folder, **options)
    return lambda query, texts: list(reranker.rerank(query, texts))


def peer(folder: str, batch_size: int) -> Score:
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(usable_cpus())
    model = CrossEncoder(
        folder, device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float32}
    )  # fmt: skip
    same: Any = torch.nn.Identity()
    return lambda query, texts: [
        float(score)
        for score in model.predict(
            [(query, text) for text in texts], batch_size=batch_size, activation_fn=same,
            show_progress_bar=False,
        )
    ]  # fmt: skip


#: Contender -> what it needs beside the model's folder, and how it is made from it.
CONTENDERS: dict[str, tuple[str, Callable[[str], Score]]] = {
    "predict 32": ("", lambda folder: peer(folder, 32)),
    **{f"predict {n}": ("", lambda folder, n=n: peer(folder, n)) for n in PEER_SIZES},
    "torch fp32": ("", lambda folder: ours(folder, engine="torch", dtype="fp32")),
    "torch bf16": ("", lambda folder: ours(folder, engine="torch", dtype="bf16")),
    "onnx fp32": ("fp32", lambda folder: ours(folder, engine="onnxruntime", file="fp32.onnx")),
    "onnx int8": ("int8", lambda folder: ours(folder, engine="onnxruntime", file="int8.onnx")),
}


def jobs(n: int, candidates: int) -> list[tuple[str, list[str]]]:
    """Queries of eight words and their candidates; words of the first one turn up in some of them."""
    choose = random.Random(5)
    words = [w for w in VOCABULARY.read_text(encoding="utf-8").split() if w.isalpha() and 3 < len(w) < 8]
    made = []
    for _ in range(n):
        asked = choose.choices(words, k=8)
        texts = []
        for _ in range(candidates):
            text = choose.choices(words, k=choose.randrange(WORDS_LOW, WORDS_HIGH))
            for word in choose.sample(asked, choose.randrange(5)):
                text[choose.randrange(len(text))] = word
            texts.append(" ".join(text))
        made.append((" ".join(asked), texts))
    return made


def make_random(folder: Path) -> None:
    """A classifier of MiniLM-L6's shape with random weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=1
    )
    model = BertForSequenceClassification(config)
    with torch.no_grad():  # at their usual size all candidates would score alike
        for name, weights in model.named_parameters():
            if weights.dim() > 1 and "embeddings" not in name:
                weights.mul_(3)
    model.save_pretrained(folder)
    tokenizer = bert_tokenizer(SPEC)
    import tokenizers

    known = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=known
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "pad_token": "[PAD]",
        "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def export(folder: Path, into: Path) -> None:
    """The model as ``fp32.onnx`` and ``int8.onnx`` (weights and activations, scales chosen while it runs)."""
    import torch
    from onnxruntime.quantization import quantize_dynamic
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = torch.randint(5, 500, (2, 9))
    feed = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    torch.onnx.export(
        model, (feed,), str(into / "fp32.onnx"), input_names=list(feed), output_names=["logits"],
        dynamic_axes={name: {0: "rows", 1: "tokens"} for name in feed} | {"logits": {0: "rows"}},
        dynamo=False,
    )  # fmt: skip
    quantize_dynamic(into / "fp32.onnx", into / "int8.onnx")


def measure(contender: str, folder: str, n: int, candidates: int) -> dict[str, Any]:
    """Seconds and scores of each query; the first one is scored once before the clock starts."""
    score = CONTENDERS[contender][1](folder)
    work = jobs(n, candidates)
    score(work[0][0], work[0][1][:4])
    seconds, scores = [], []
    for query, texts in work:
        started = perf_counter()
        scores.append(score(query, texts))
        seconds.append(perf_counter() - started)
    return {"seconds": seconds, "scores": scores}


def rank_correlation(left: list[float], right: list[float]) -> float:
    """Spearman's rho; ties, which raw scores do not have, in input order."""
    ranks = [np.argsort(np.argsort(values)) for values in (left, right)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def top(scores: list[float]) -> set[int]:
    return set(np.argsort(scores)[::-1][:TOP].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default=os.environ.get("RAG_BENCH_RERANKER", ""))
    parser.add_argument("--queries", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="separated by commas")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        found = measure(options.one, options.model, options.queries, options.candidates)
        print(json.dumps(found))
        return
    names = ["predict 32", *(n for n in options.contenders.split(",") if n != "predict 32")]
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        parser.error(f"--contenders names {unknown[0]!r}; accepted: {', '.join(CONTENDERS)}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        if options.model:
            for file in Path(options.model).expanduser().resolve().iterdir():
                (folder / file.name).symlink_to(file)
        else:
            make_random(folder)
        if any(CONTENDERS[name][0] for name in names):
            export(folder, folder)
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name in names:
                command = [
                    sys.executable, __file__, "--one", name, "--model", str(folder),
                    "--queries", str(options.queries), "--candidates", str(options.candidates),
                ]  # fmt: skip
                environment = os.environ | {"OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "true"}
                done = subprocess.run(command, capture_output=True, text=True, env=environment)
                if done.returncode:
                    sys.exit(f"{name} failed:\n{done.stderr[-2000:]}")
                rounds[name].append(json.loads(done.stdout.splitlines()[-1]))
    report(options.model or "MiniLM-L6's shape, random weights", options.candidates, rounds)


def report(model: str, candidates: int, rounds: dict[str, list[dict[str, Any]]]) -> None:
    seconds = {
        name: statistics.median(s for each in found for s in each["seconds"])
        for name, found in rounds.items()
    }
    peers = {name: s for name, s in seconds.items() if name.startswith("predict")}
    best = min(peers, key=lambda name: peers[name])
    reference = rounds["predict 32"][0]["scores"]
    print(f"{Path(model).name}: {candidates} candidates a query, median of {len(reference)} queries and "
          f"{len(rounds[best])} rounds, {usable_cpus()} CPUs; best peer: {best}")  # fmt: skip
    for name, found in rounds.items():
        scores = found[0]["scores"]
        same = statistics.mean(top(a) == top(b) for a, b in zip(scores, reference))
        overlap = statistics.mean(len(top(a) & top(b)) / TOP for a, b in zip(scores, reference))
        rho = statistics.mean(rank_correlation(a, b) for a, b in zip(scores, reference))
        print(
            f"{name:11} {seconds[name]:7.3f} s"
            f" | predict 32 : this {seconds['predict 32'] / seconds[name]:5.2f}"
            f" | best peer : this {seconds[best] / seconds[name]:5.2f} | same top {TOP} {same:4.0%}"
            f" | overlap {overlap:6.1%} | Spearman {rho:.4f}"
        )


if __name__ == "__main__":
    main()
