"""Every reranker of the tables that can run here, through the kit."""

from __future__ import annotations

from typing import Any

import pytest

from providers import RERANKERS
from rag_core.registry import Registry, Spec
from rag_core.testing import RerankerConformance


def _case(spec: Spec) -> type[RerankerConformance]:
    registry = Registry("reranker")
    registry.add(spec)
    answer = registry.availability(spec)
    reason = "a service: see tests/contract" if spec.target == "api" else f"{answer.reason}; {answer.hint}"
    body: dict[str, Any] = {
        "make": lambda self: registry.create(spec),
        "pytestmark": pytest.mark.skipif(spec.target == "api" or not answer.ok, reason=reason),
    }
    return type(f"Test_{spec.name}_{spec.target}".replace("-", "_"), (RerankerConformance,), body)


globals().update({case.__name__: case for case in map(_case, RERANKERS)})


def test_the_table_is_covered() -> None:
    cases = [
        value for value in globals().values() if isinstance(value, type) and value.__name__[:5] == "Test_"
    ]
    assert len(cases) == len(RERANKERS)
