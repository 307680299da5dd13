"""Every reranker of the tables that can run here, through the kit."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from providers import RERANKERS
from rag_core.factory import get_reranker
from rag_core.registry import Registry, Spec
from rag_core.testing import RerankerConformance

CROSS_ENCODERS = [
    spec for spec in RERANKERS if spec.load == "providers.crossencoder:load" and spec.model != "any"
]
ENV = {"RAG_PLUGINS": "providers:register"}
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs pip install 'rag-core-bench[local]'"
)


class TestTinyRunTimeInt8(RerankerConformance):
    """A model whose scores depend on their neighbours, unless it is given one pair a call."""

    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _folder(self, tiny_dynamic_cross_encoder: Path) -> None:
        type(self).folder = tiny_dynamic_cross_encoder

    def make(self) -> Any:
        return get_reranker(f"cross-encoder@cpu?path={self.folder}", ENV)


class TestTinyInWindows(RerankerConformance):
    """Long candidates read in windows."""

    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _folder(self, tiny_cross_encoder: Path) -> None:
        type(self).folder = tiny_cross_encoder

    def make(self) -> Any:
        return get_reranker(f"cross-encoder@cpu?path={self.folder}&windows=20", ENV)


class TinyBert(RerankerConformance):
    """A tiny BERT with random weights under the spec string ``text``."""

    __test__ = False
    text: ClassVar[str]
    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _folder(self, models: Path) -> None:
        type(self).folder = models / CROSS_ENCODERS[0].model

    def make(self) -> Any:
        return get_reranker(self.text.format(self.folder), ENV)


@needs_torch
@pytest.mark.embeddings_local
class TestTorch(TinyBert):
    """Pairs on torch, in floats."""

    __test__ = True
    text = "cross-encoder@cpu?path={}&engine=torch"


@needs_torch
@pytest.mark.embeddings_local
class TestTorchHalvesInWindows(TinyBert):
    """Long candidates in windows, in bfloat16: scores of random weights move by a few hundredths."""

    __test__ = True
    text = "cross-encoder@cpu?path={}&engine=torch&dtype=bf16&windows=20"
    tolerance = 0.05


@needs_torch
@pytest.mark.embeddings_local
class TestTokensOnTorch(TinyBert):
    """Late interaction on torch."""

    __test__ = True
    text = "maxsim@cpu?path={}&engine=torch"


class TestTokensOnOnnxruntime(RerankerConformance):
    """Late interaction over a folder's token vectors."""

    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory: pytest.TempPathFactory, make_tiny: Callable[..., Path]) -> None:
        type(self).folder = make_tiny(tmp_path_factory.mktemp("tokens"), tokens=True)

    def make(self) -> Any:
        return get_reranker(f"maxsim@cpu?path={self.folder}", ENV)


@pytest.fixture(autouse=True, scope="module")
def models(
    tmp_path_factory: pytest.TempPathFactory, make_tiny: Callable[..., Path],
    make_tiny_bert: Callable[..., Path],
) -> Iterator[Path]:  # fmt: skip
    """A folder in which every model that comes without weights is found: tiny ones with random weights."""
    root = tmp_path_factory.mktemp("models")
    for name in {spec.model for spec in RERANKERS if spec.missing and "/" in spec.model}:
        make_tiny_bert(make_tiny(root / name, tokens=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_MODELS_DIR", str(root))
        yield root


def _create(registry: Registry, spec: Spec) -> Any:
    # the one without a model of its own takes any name that is looked for in the same places
    return registry.create(replace(spec, model=CROSS_ENCODERS[0].model) if spec.model == "any" else spec)


def _case(spec: Spec) -> type[RerankerConformance]:
    registry = Registry("reranker")
    spec = replace(spec, missing="")  # the weights are made by a fixture, after this line has run
    registry.add(spec)
    answer = registry.availability(spec)
    reason = "a service: see tests/contract" if spec.target == "api" else f"{answer.reason}; {answer.hint}"
    marks = [pytest.mark.skipif(spec.target == "api" or not answer.ok, reason=reason)]
    if spec.target in ("mlx", "nvidia"):
        marks.append(pytest.mark.embeddings_local)
    body: dict[str, Any] = {"make": lambda self: _create(registry, spec), "pytestmark": marks}
    if spec.target == "nvidia":
        body["tolerance"] = 0.05  # halves
    return type(f"Test_{spec.name}_{spec.target}".replace("-", "_"), (RerankerConformance,), body)


globals().update({case.__name__: case for case in map(_case, RERANKERS)})


def test_the_table_is_covered() -> None:
    cases = [
        value for value in globals().values() if isinstance(value, type) and value.__name__[:5] == "Test_"
    ]
    assert len(cases) == len(RERANKERS)
