"""Conformance kits: subclass one in a test module, write ``make``, and pytest runs the rest.

::

    from rag_core.testing import EmbedProviderConformance

    class TestMine(EmbedProviderConformance):
        def make(self):
            return MyProvider()

The kits use plain asserts, so importing them needs no test framework.
"""

from __future__ import annotations

from rag_core.testing.embed import EmbedProviderConformance
from rag_core.testing.rerank import RerankerConformance
from rag_core.testing.server import Fault, FaultServer
from rag_core.testing.store import VectorStoreConformance, oracle_ranking

__all__ = [
    "EmbedProviderConformance",
    "Fault",
    "FaultServer",
    "RerankerConformance",
    "VectorStoreConformance",
    "oracle_ranking",
]
