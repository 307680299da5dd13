"""What the tests of the embedding services share: a server, providers that ask it, the right vectors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._pacing import Timers
from rag_core.registry import Spec, load_attribute
from rag_core.testing.server import FaultServer, vector_of

SPECS = {spec.name: spec for spec in EMBEDDERS if spec.target == "api"}
#: The parameter that tells a role, which the server mixes into its vectors.
SALTS = {
    "cohere": {"query": "search_query", "document": "search_document"},
    "jina": {"query": "retrieval.query", "document": "retrieval.passage"},
    "voyage": {"query": "query", "document": "document"},
}
NOMIC = {"query": "search_query: ", "document": "search_document: "}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COHERE_API_KEY", "JINA_API_KEY", "OPENAI_API_KEY", "VOYAGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    """voyageai keeps a session a thread and closes none: give it one that is closed here."""
    if importlib.util.find_spec("voyageai") is None:
        yield
        return
    import requests
    import voyageai

    with requests.Session() as session:
        voyageai.requestssession = session
        yield
        voyageai.requestssession = None


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """``made(server, name, model="", **options)``: a provider that asks ``server`` and never really waits."""
    all_made = []

    def make(server: FaultServer, name: str, model: str = "", **options: str) -> Any:
        spec = SPECS[name]
        spec = Spec(spec.name, model, "api", spec.dim, spec.load) if model else spec
        provider = load_attribute(spec.load)(spec, **{"base_url": server.url(name), **options})
        provider.transport.timers = Timers(sleep=lambda seconds: None)
        all_made.append(provider)
        if not model and not options.get("dimensions"):
            server.dim = spec.dim
        return provider

    yield make
    for provider in all_made:
        provider.close()


@pytest.fixture(scope="session")
def expected() -> Callable[..., np.ndarray]:
    """``expected(server, name, texts, role="document")``: the vectors that a provider must give."""

    def vectors(server: FaultServer, name: str, texts: list[str], role: str = "document") -> np.ndarray:
        prefix = NOMIC[role] if name == "ollama" else ""
        rows = [vector_of(prefix + text, server.dim, SALTS.get(name, {}).get(role, "")) for text in texts]
        wide = np.stack(rows).astype(np.float64)
        return wide / np.linalg.norm(wide, axis=1, keepdims=True)

    return vectors
