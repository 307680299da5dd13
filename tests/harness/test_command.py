from __future__ import annotations

import pytest

from harness import command
from rag_core.registry import Registry, Spec


def test_a_run_without_providers_measures_the_targets_that_detection_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Registry("embedding provider")
    registry.add(
        Spec("a", "a", "cpu", 4, "builtins:dict"),
        Spec("a", "a", "mlx", 4, "builtins:dict"),
        Spec("b", "b", "api", 4, "builtins:dict"),
        Spec("c", "c", "cpu", 4, "builtins:dict", auto=False),
    )
    monkeypatch.setattr(command, "EMBEDDERS", registry)
    monkeypatch.setattr("rag_core.devices.why_not", lambda target: "")
    monkeypatch.delenv("RAG_PROVIDER_ORDER", raising=False)
    for apple, expected in ((True, ["a@cpu", "a@mlx"]), (False, ["a@cpu"])):
        monkeypatch.setattr("rag_core.factory.is_apple_silicon", lambda apple=apple: apple)
        assert command.local_providers() == expected
    monkeypatch.setenv("RAG_PROVIDER_ORDER", "mlx")
    assert command.local_providers() == ["a@mlx"]
