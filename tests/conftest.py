"""For every folder of tests: tiny cross-encoders with random weights, one as ONNX, one as safetensors.

The ONNX file is encoded by hand (protobuf is tag, length, bytes) and so is the other one (a JSON header
and the arrays), so that no package is needed to make them. They are two different models.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

FLOAT, INT8, INT64 = 1, 3, 7
WIDTH = 16
#: Letters are the words of the tiny tokenizer: every text has tokens of its own.
TINY_VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
TINY_WINDOW = 64


def pytest_configure() -> None:
    """Children that a test interrupts listen, also where a shell began this process in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int) -> bytes:
    body = b"".join(_field(1, name) for name in inputs) + b"".join(_field(2, name) for name in outputs)
    body += _field(4, kind)
    for name, value in attributes.items():  # all of them whole numbers from 0; type 2 says so
        body += _field(5, _field(1, name) + _field(3, value) + _field(20, 2))
    return _field(1, body)


def _tensor(name: str, values: np.ndarray) -> bytes:
    kind = {"float32": FLOAT, "int8": INT8, "int64": INT64}[values.dtype.name]
    dims = b"".join(_field(1, size) for size in values.shape)
    return _field(5, dims + _field(2, kind) + _field(8, name) + _field(9, values.tobytes()))


def _value(field: int, name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    dims = b"".join(_field(1, _field(1 if isinstance(size, int) else 2, size)) for size in shape)
    return _field(field, _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dims))))


def tiny_onnx(n_logits: int = 1, types: bool = True, dynamic: bool = False, tokens: bool = False) -> bytes:
    """One attention layer over random embeddings and a linear head; padding has no influence.

    ``dynamic`` quantises the head's input over the whole batch, as int8 models of that kind do;
    ``tokens`` answers the layer's vectors too, as sentence models do.
    """
    rng = np.random.default_rng(7)
    weights = {
        "words": rng.normal(0, 1, (len(TINY_VOCABULARY), WIDTH)).astype(np.float32),
        "sides": rng.normal(0, 1, (2, WIDTH)).astype(np.float32),
        "one": np.array(1, np.float32),
        "far": np.array(1e4, np.float32),
        "axis1": np.array([1], np.int64),
        "axis2": np.array([2], np.int64),
        "head": rng.normal(0, 1, (WIDTH, n_logits)).astype(np.float32),
        "bias": rng.normal(0, 1, n_logits).astype(np.float32),
    }
    nodes = [_node("Gather", ["words", "input_ids"], ["word"], axis=0)]
    if types:
        nodes += [
            _node("Gather", ["sides", "token_type_ids"], ["side"], axis=0),
            _node("Add", ["word", "side"], ["x"]),
        ]
    else:
        nodes += [_node("Identity", ["word"], ["x"])]
    nodes += [
        _node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
        _node("Unsqueeze", ["mask", "axis1"], ["row_mask"]),
        _node("Unsqueeze", ["mask", "axis2"], ["column_mask"]),
        _node("Sub", ["row_mask", "one"], ["below"]),
        _node("Mul", ["below", "far"], ["penalty"]),
        _transpose("x", "turned"),
        _node("MatMul", ["x", "turned"], ["alike"]),
        _node("Add", ["alike", "penalty"], ["masked"]),
        _node("Softmax", ["masked"], ["attention"], axis=2),
        _node("MatMul", ["attention", "x"], ["mixed"]),
        _node("Tanh", ["mixed"], ["bent"]),
        _node("Mul", ["bent", "column_mask"], ["kept"]),
        _node("ReduceSum", ["kept", "axis1"], ["total"], keepdims=0),
        _node("ReduceSum", ["mask", "axis1"], ["length"], keepdims=1),
        _node("Div", ["total", "length"], ["mean"]),
    ]
    if dynamic:
        weights["head8"] = np.clip(weights["head"] * 40, -127, 127).astype(np.int8)
        nodes += [
            _node("DynamicQuantizeLinear", ["mean"], ["mean8", "scale", "zero"]),
            _node("MatMulInteger", ["mean8", "head8", "zero"], ["product"]),
            _node("Cast", ["product"], ["product32"], to=FLOAT),
            _node("Mul", ["product32", "scale"], ["raw"]),
        ]
    else:
        nodes += [_node("MatMul", ["mean", "head"], ["raw"])]
    nodes += [_node("Add", ["raw", "bias"], ["logits"])]
    if tokens:
        nodes += [_node("Identity", ["bent"], ["last_hidden_state"])]
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    graph = b"".join(nodes) + _field(2, "tiny")
    graph += b"".join(_tensor(name, values) for name, values in weights.items())
    graph += b"".join(_value(11, name, INT64, ["batch", "tokens"]) for name in inputs)
    if tokens:
        graph += _value(12, "last_hidden_state", FLOAT, ["batch", "tokens", WIDTH])
    graph += _value(12, "logits", FLOAT, ["batch", n_logits])
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))


def _transpose(source: str, target: str) -> bytes:
    """The last two axes swapped; the list attribute is field 8, type 7."""
    attribute = _field(1, "perm") + b"".join(_field(8, axis) for axis in (0, 2, 1)) + _field(20, 7)
    return _field(1, _field(1, source) + _field(2, target) + _field(4, "Transpose") + _field(5, attribute))


def tiny_tokenizer(typed: bool = True) -> object:
    """One token a letter, BERT's template for one text and for two; all types 0 unless ``typed``."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs pip install 'rag-core-bench[onnx]'")
    vocabulary = {word: number for number, word in enumerate(TINY_VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Split("", "isolated")]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1" if typed else "[CLS] $A [SEP] [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    # what published files carry: both must be undone by whoever loads them
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(pad_id=0, length=16)
    return tokenizer


@pytest.fixture(scope="session")
def make_tiny() -> Callable[..., Path]:
    """``make_tiny(folder, file="model.onnx", **options of tiny_onnx)`` writes a model; returns ``folder``."""

    def write(folder: Path, file: str = "model.onnx", **options: object) -> Path:
        pytest.importorskip("onnxruntime", reason="needs pip install 'rag-core-bench[onnx]'")
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(tiny_onnx(**options))
        tiny_tokenizer().save(str(folder / "tokenizer.json"))
        config = {"max_position_embeddings": TINY_WINDOW, "pad_token_id": 0, "model_type": "bert"}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


@pytest.fixture(scope="session")
def tiny_cross_encoder(tmp_path_factory: pytest.TempPathFactory, make_tiny: Callable[..., Path]) -> Path:
    """A folder with the tiny cross-encoder in floats."""
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_dynamic_cross_encoder(
    tmp_path_factory: pytest.TempPathFactory, make_tiny: Callable[..., Path]
) -> Path:
    """The same with a head quantised while it runs: a batch shares one scale."""
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny8", "onnx/model_quantized.onnx", dynamic=True)


def tiny_bert(family: str, n_logits: int, head: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """``config.json`` and the tensors of a BERT or XLM-RoBERTa of two layers, as transformers names them."""
    dim, inner, layers = 32, 64, 2
    is_bert = family == "bert"
    config = {
        "model_type": family,
        "architectures": [f"{'Bert' if is_bert else 'XLMRoberta'}ForSequenceClassification"],
        "vocab_size": len(TINY_VOCABULARY),
        "hidden_size": dim,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12 if is_bert else 1e-5,
        "max_position_embeddings": TINY_WINDOW + (0 if is_bert else 1),  # the padding id is 0
        "type_vocab_size": 2 if is_bert else 1,
        "pad_token_id": 0,
        "id2label": {str(i): f"LABEL_{i}" for i in range(n_logits)},
        "label2id": {f"LABEL_{i}": i for i in range(n_logits)},
    }
    rng = np.random.default_rng(3)
    at = "bert" if is_bert else "roberta"
    shapes: dict[str, tuple[int, int]] = {}
    norms = [f"{at}.embeddings.LayerNorm"]
    for layer in range(layers):
        name = f"{at}.encoder.layer.{layer}"
        shapes |= {f"{name}.attention.self.{part}": (dim, dim) for part in ("query", "key", "value")}
        shapes[f"{name}.attention.output.dense"] = (dim, dim)
        shapes[f"{name}.intermediate.dense"], shapes[f"{name}.output.dense"] = (inner, dim), (dim, inner)
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    if head:
        ends = (
            (f"{at}.pooler.dense", "classifier") if is_bert else ("classifier.dense", "classifier.out_proj")
        )
        shapes[ends[0]], shapes[ends[1]] = (dim, dim), (n_logits, dim)
    tensors = {
        f"{at}.embeddings.{kind}_embeddings.weight": rng.normal(0, 1, (config[size], dim))
        for kind, size in (
            ("word", "vocab_size"), ("position", "max_position_embeddings"), ("token_type", "type_vocab_size")
        )
    }  # fmt: skip
    for name, shape in shapes.items():
        tensors[f"{name}.weight"] = rng.normal(0, 0.3, shape)
        tensors[f"{name}.bias"] = rng.normal(0, 0.3, shape[0])
    for name in norms:
        tensors[f"{name}.weight"] = rng.uniform(0.5, 1.5, dim)
        tensors[f"{name}.bias"] = rng.normal(0, 0.2, dim)
    return config, {name: values.astype(np.float32) for name, values in tensors.items()}


@pytest.fixture(scope="session")
def make_tiny_bert() -> Callable[..., Path]:
    """``make_tiny_bert(folder, family="bert", n_logits=1, head=True)`` writes a model; returns ``folder``."""

    def write(folder: Path, family: str = "bert", n_logits: int = 1, head: bool = True) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        config, tensors = tiny_bert(family, n_logits, head)
        header, start = {}, 0
        for name, values in tensors.items():
            stop = start + values.nbytes
            header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [start, stop]}
            start = stop
        head_bytes = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
        body = b"".join(values.tobytes() for values in tensors.values())
        raw = len(head_bytes).to_bytes(8, "little") + head_bytes + body
        (folder / "model.safetensors").write_bytes(raw)
        (folder / "config.json").write_text(json.dumps(config))
        tiny_tokenizer(typed=family == "bert").save(str(folder / "tokenizer.json"))
        names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        inputs = ["input_ids", *(["token_type_ids"] if family == "bert" else []), "attention_mask"]
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": TINY_WINDOW, **names}
        settings["model_input_names"] = inputs
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return folder

    return write
