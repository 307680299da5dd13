"""Every embedder of the tables that can run here, through the kit: a new table line is covered by itself."""

from __future__ import annotations

from typing import Any

import pytest

from providers import EMBEDDERS
from rag_core.registry import Registry, Spec
from rag_core.testing import EmbedProviderConformance


def _case(spec: Spec) -> type[EmbedProviderConformance]:
    registry = Registry("embedding provider")
    registry.add(spec)
    answer = registry.availability(spec)
    reason = "a service: see tests/contract" if spec.target == "api" else f"{answer.reason}; {answer.hint}"
    name = f"Test_{spec.name}_{spec.target}".replace("-", "_")
    body: dict[str, Any] = {
        "make": lambda self: registry.create(spec),
        "pytestmark": pytest.mark.skipif(spec.target == "api" or not answer.ok, reason=reason),
        "test_agrees_with_its_table_line": lambda self: _agrees(spec, self.provider()),
    }
    return type(name, (EmbedProviderConformance,), body)


def _agrees(spec: Spec, provider: Any) -> None:
    assert (provider.name, provider.target) == (spec.name, spec.target)
    assert provider.model == spec.model
    assert spec.dim in (0, provider.dim)
    assert isinstance(provider.runtime, dict)


globals().update({case.__name__: case for case in map(_case, EMBEDDERS)})


def test_the_tables_are_covered() -> None:
    cases = [
        value for value in globals().values() if isinstance(value, type) and value.__name__[:5] == "Test_"
    ]
    assert len(cases) == len(EMBEDDERS)
