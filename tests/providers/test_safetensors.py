from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from providers._bert_weights import is_bert_like, read_bert, read_config
from providers._safetensors import digest_of, read_tensors, shards
from rag_core.errors import MissingExtraError, ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

SPEC = Spec("tiny", "acme/tiny", "cpu", 0, "x:y", extra="local")
Save = Callable[..., Path]


def save(file: Path, tensors: dict[str, np.ndarray], kind: str = "") -> Path:
    """A safetensors file, written after the format's description."""
    names = {"float32": "F32", "float16": "F16", "int64": "I64", "uint16": "BF16"}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        raw = values.tobytes()
        header[name] = {
            "dtype": kind or names[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return file


def bert(layers: int = 1, dim: int = 8, prefix: str = "") -> dict[str, np.ndarray]:
    """Random weights under Hugging Face's names."""
    rng = np.random.default_rng(5)
    shapes = {
        "embeddings.word_embeddings.weight": (20, dim),
        "embeddings.position_embeddings.weight": (16, dim),
        "embeddings.token_type_embeddings.weight": (2, dim),
    }
    for n in range(layers):
        shapes[f"encoder.layer.{n}.intermediate.dense.weight"] = (4 * dim, dim)
        shapes[f"encoder.layer.{n}.output.dense.weight"] = (dim, 4 * dim)
    return {f"{prefix}{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def config(folder: Path, **values: object) -> None:
    known = {"model_type": "bert", "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
    (folder / "config.json").write_text(json.dumps(known | values))


def test_arrays_come_back_as_they_were_stored(tmp_path: Path) -> None:
    stored = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1.5, -2.0], np.float16),
        "c": np.array([[7]], np.int64),
    }
    save(tmp_path / "model.safetensors", stored)
    tensors, kind = read_tensors(SPEC, tmp_path)
    assert kind == "fp32"
    assert set(tensors) == set(stored)
    for name, values in stored.items():
        assert tensors[name].dtype == values.dtype
        assert np.array_equal(tensors[name], values)


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 3.140625], np.float32)
    save(tmp_path / "model.safetensors", {"a": (values.view(np.uint32) >> 16).astype(np.uint16)})
    tensors, kind = read_tensors(SPEC, tmp_path)
    assert kind == "bf16"
    assert tensors["a"].tolist() == values.tolist()


def test_shards_are_read_together(tmp_path: Path) -> None:
    save(tmp_path / "model-1.safetensors", {"a": np.ones(2, np.float32)})
    save(tmp_path / "model-2.safetensors", {"b": np.zeros(2, np.float32)})
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [file.name for file in shards(tmp_path)] == ["model-1.safetensors", "model-2.safetensors"]
    tensors, _ = read_tensors(SPEC, tmp_path)
    assert sorted(tensors) == ["a", "b"]
    before = digest_of(shards(tmp_path))
    save(tmp_path / "model-2.safetensors", {"b": np.ones(2, np.float32)})
    assert digest_of(shards(tmp_path)) != before


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:4],
        lambda data: data[:-3],
        lambda data: (1 << 40).to_bytes(8, "little") + data[8:],
        lambda data: data[:8] + b"{" * 20 + data[28:],
        lambda data: data.replace(b'"F32"', b'"F33"'),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = save(tmp_path / "model.safetensors", {"a": np.arange(4, dtype=np.float32)})
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ProviderError, match=r"tiny: .*model\.safetensors cannot be read \(.*\); fetch"):
        read_tensors(SPEC, tmp_path)


def test_no_weights_at_all(tmp_path: Path) -> None:
    assert shards(tmp_path) == []
    with pytest.raises(ProviderError, match="holds no weights"):
        read_tensors(SPEC, tmp_path)


def test_torchs_own_files_need_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[local\]'"):
        read_tensors(SPEC, tmp_path)


@pytest.mark.embeddings_local
def test_torchs_own_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    file = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.tensor([1.0, 2.0]), "b": torch.ones(4, dtype=torch.bfloat16)}, file)
    tensors, kind = read_tensors(SPEC, tmp_path)
    assert kind == "bf16"
    assert tensors["a"].tolist() == [1.0, 2.0]
    assert tensors["b"].dtype == np.float32
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(ProviderError, match=r"pytorch_model\.bin cannot be read"):
        read_tensors(SPEC, tmp_path)


@pytest.mark.parametrize("prefix", ["", "bert.", "roberta.", "0.auto_model."])
def test_an_encoder_is_read_whatever_its_prefix(tmp_path: Path, prefix: str) -> None:
    config(tmp_path, layer_norm_eps=1e-5)
    save(
        tmp_path / "model.safetensors",
        bert(prefix=prefix) | {"classifier.weight": np.ones((1, 8), np.float32)},
    )
    found = read_bert(SPEC, tmp_path)
    shape = found.shape
    assert (shape.dim, shape.layers, shape.heads, shape.inner) == (8, 1, 2, 32)
    assert (shape.words, shape.positions, shape.types) == (20, 16, 2)
    assert (shape.epsilon, shape.first_position, shape.pad, shape.activation) == (1e-5, 0, 0, "gelu")
    assert found.float32("classifier.weight").shape == (1, 8)
    with pytest.raises(ProviderError, match="holds no tensor 'pooler'"):
        found.float32("pooler")


def test_robertas_kin_count_positions_from_beyond_the_padding_id(tmp_path: Path) -> None:
    config(tmp_path, model_type="xlm-roberta", pad_token_id=1)
    save(tmp_path / "model.safetensors", bert())
    assert read_bert(SPEC, tmp_path).shape.first_position == 2


@pytest.mark.parametrize(
    "values, ok",
    [
        ({"model_type": "bert"}, True),
        ({"model_type": "camembert", "hidden_act": "gelu"}, True),
        ({"model_type": "bert", "hidden_act": "silu"}, False),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, False),
        ({"model_type": "bert", "is_decoder": True}, False),
        ({"model_type": "mpnet"}, False),
        ({}, False),
    ],
)
def test_what_counts_as_like_bert(values: dict, ok: bool) -> None:
    assert is_bert_like(values) is ok


def test_other_models_and_missing_tensors_are_said(tmp_path: Path) -> None:
    config(tmp_path, model_type="mpnet")
    with pytest.raises(ProviderUnavailableError, match=r"describes a 'mpnet' .* accepted: bert, roberta"):
        read_bert(SPEC, tmp_path)
    config(tmp_path, num_hidden_layers=3)
    save(tmp_path / "model.safetensors", bert())
    with pytest.raises(ProviderError, match=r"lack encoder\.layer\.2\.output\.dense\.weight"):
        read_bert(SPEC, tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ProviderError, match=r"config\.json holds a list"):
        read_config(SPEC, tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ProviderError, match=r"config\.json is not JSON"):
        read_config(SPEC, tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ProviderUnavailableError, match=r"config\.json: No such file"):
        read_config(SPEC, tmp_path)
