"""The conformance kit over every reranking service, by HTTP and through the official clients."""

from __future__ import annotations

import atexit
import importlib.util
from typing import Any

import pytest

from providers import RERANKERS
from rag_core.registry import load_attribute
from rag_core.testing import RerankerConformance
from rag_core.testing.server import FaultServer

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SPECS = {spec.name: spec for spec in RERANKERS if spec.target == "api"}
SDKS = {"cohere": "cohere", "voyage": "voyageai"}


def _case(name: str, engine: str = "http") -> type[RerankerConformance]:
    def make(self: RerankerConformance) -> Any:
        running = FaultServer()
        running.__enter__()
        atexit.register(running.__exit__, None, None, None)
        options = {"engine": engine} if engine == "sdk" else {}
        return load_attribute(SPECS[name].load)(SPECS[name], base_url=running.url(name), **options)

    missing = engine == "sdk" and importlib.util.find_spec(SDKS[name]) is None
    mark = pytest.mark.skipif(missing, reason=f"package {SDKS.get(name)!r} is not installed")
    return type(f"Test_{name}_{engine}", (RerankerConformance,), {"make": make, "pytestmark": [mark]})


globals().update(
    {case.__name__: case for case in [*map(_case, SPECS), *(_case(name, "sdk") for name in SDKS)]}
)


def test_every_service_of_the_table_is_covered() -> None:
    assert sorted(SPECS) == ["cohere", "jina", "voyage"]
