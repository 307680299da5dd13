"""Digests of code, weights and tokenizers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness import digests
from harness.digests import code_digest, model_hashes, package_digest


class Record:
    def __init__(self, text: str | None) -> None:
        self.text = text

    def read_text(self, name: str) -> str | None:
        assert name == "RECORD"
        return self.text


def embedder(revision: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(fingerprint=SimpleNamespace(revision=revision), **more)


def test_the_code_has_one_digest_and_another_after_an_edit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    assert code_digest() == code_digest()
    assert len(code_digest()) == 16
    (tmp_path / "__init__.py").write_text("a = 1\n")
    monkeypatch.setattr(digests, "OWN", ("one",))
    monkeypatch.setattr(
        digests.importlib,
        "import_module",
        lambda name: SimpleNamespace(__file__=str(tmp_path / "__init__.py")),
    )
    before = code_digest.__wrapped__()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.py").write_text("")
    assert code_digest.__wrapped__() == before
    (tmp_path / "__init__.py").write_text("a = 2\n")
    assert code_digest.__wrapped__() != before


def test_a_package_is_what_its_record_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "m/weights.bin,sha256=abc,10\nm/__init__.py,sha256=def,2\n"
    installer = "m-1.dist-info/INSTALLER,sha256=xyz,4\nm/__pycache__/__init__.pyc,,\n"
    texts = {"one": lines, "same": installer + lines, "other": lines.replace("abc", "abd"), "none": None}
    monkeypatch.setattr(digests, "distribution", lambda name: Record(texts[name]))
    assert package_digest("one") == package_digest("same") != package_digest("other")
    assert package_digest("none") is None


def test_a_package_that_is_not_installed_has_no_digest() -> None:
    assert package_digest("no-such-distribution-here") is None


def test_weights_of_a_package_and_of_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "package_digest", lambda name: f"contents of {name}")
    packages = ("model", "model-large")
    inside = embedder("model-large-1.0.0-int8", tokenizer_digest=lambda: "ids")
    assert model_hashes(inside, packages) == {"weights": "contents of model-large", "tokenizer": "ids"}
    assert model_hashes(embedder("0123456789ab"), packages) == {"weights": "0123456789ab"}
    monkeypatch.setattr(digests, "package_digest", lambda name: None)
    assert model_hashes(embedder("model-1"), packages) == {}
