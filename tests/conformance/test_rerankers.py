"""Every reranker of the tables that can run here, through the kit."""

from __future__ import annotations

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


class TestTinyRunTimeInt8(RerankerConformance):
    """A model whose scores depend on their neighbours, unless it is given one pair a call."""

    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _folder(self, tiny_dynamic_cross_encoder: Path) -> None:
        type(self).folder = tiny_dynamic_cross_encoder

    def make(self) -> Any:
        return get_reranker(f"cross-encoder?path={self.folder}", {"RAG_PLUGINS": "providers:register"})


class TestTinyInWindows(RerankerConformance):
    """Long candidates read in windows."""

    folder: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _folder(self, tiny_cross_encoder: Path) -> None:
        type(self).folder = tiny_cross_encoder

    def make(self) -> Any:
        return get_reranker(
            f"cross-encoder?path={self.folder}&windows=20", {"RAG_PLUGINS": "providers:register"}
        )


@pytest.fixture(autouse=True, scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, make_tiny: Callable[..., Path]) -> Iterator[Path]:
    """A folder in which every model that comes without weights is found: tiny ones with random weights."""
    root = tmp_path_factory.mktemp("models")
    for spec in CROSS_ENCODERS:
        make_tiny(root / spec.model)
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
    body: dict[str, Any] = {
        "make": lambda self: _create(registry, spec),
        "pytestmark": pytest.mark.skipif(spec.target == "api" or not answer.ok, reason=reason),
    }
    return type(f"Test_{spec.name}_{spec.target}".replace("-", "_"), (RerankerConformance,), body)


globals().update({case.__name__: case for case in map(_case, RERANKERS)})


def test_the_table_is_covered() -> None:
    cases = [
        value for value in globals().values() if isinstance(value, type) and value.__name__[:5] == "Test_"
    ]
    assert len(cases) == len(RERANKERS)
