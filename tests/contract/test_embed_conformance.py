"""The conformance kit over every embedding service, by HTTP and through the official clients."""

from __future__ import annotations

import atexit
import importlib.util
from typing import Any

import pytest

from providers import EMBEDDERS
from rag_core.registry import load_attribute
from rag_core.testing import EmbedProviderConformance
from rag_core.testing.server import SERVICES, FaultServer

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SPECS = {spec.name: spec for spec in EMBEDDERS if spec.target == "api"}
NAMES = sorted(SPECS)
SDKS = {"cohere": "cohere", "openai": "openai", "voyage": "voyageai"}


def needs(name: str) -> Any:
    package = SDKS[name]
    is_there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not is_there, reason=f"package {package!r} is not installed")


def _case(name: str, engine: str = "http") -> type[EmbedProviderConformance]:
    def make(self: EmbedProviderConformance) -> Any:
        running = FaultServer(SPECS[name].dim)
        running.__enter__()
        atexit.register(running.__exit__, None, None, None)
        options = {"engine": engine} if engine == "sdk" else {}
        return load_attribute(SPECS[name].load)(SPECS[name], base_url=running.url(name), **options)

    body = {"make": make, "pytestmark": [needs(name)] if engine == "sdk" else []}
    return type(f"Test_{name}_{engine}", (EmbedProviderConformance,), body)


globals().update({case.__name__: case for case in [*map(_case, NAMES), *(_case(n, "sdk") for n in SDKS)]})


def test_the_table_and_the_server_know_the_same_services() -> None:
    assert sorted(SERVICES) == NAMES
