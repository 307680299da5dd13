"""`bench export`: which model is meant, and what is printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import export_command
from harness.export_command import export_lines, model_of, result_lines
from rag_core.errors import ProviderUnavailableError, SpecStringError, UnknownNameError
from rag_core.exporting import Exported, ExportedFile
from rag_core.registry import EMBEDDERS, load_plugins

GOOD = ExportedFile(
    "fp32", "model.onnx", 90_400_000, {"minimum": 1.0, "p1": 1.0}, True, "minimum cosine >= 0.9999"
)
BAD = ExportedFile(
    "int8", "model_int8.onnx", 23_000_000, {"minimum": 0.9748, "p1": 0.98}, False, "minimum cosine >= 0.999"
)


@pytest.fixture(autouse=True)
def _plugins() -> None:
    load_plugins({"RAG_PLUGINS": "providers:register"})


def test_every_file_has_a_line_and_what_disagrees_is_marked() -> None:
    lines = result_lines(
        Exported(Path("out"), (GOOD, BAD), "bench run --provider 'onnx?path=out'", ("mind this",))
    )
    assert lines == [
        "out:",
        "  fp32  model.onnx           90.4 MB  minimum 1.000000, p1 1.000000",
        "  int8  model_int8.onnx      23.0 MB  minimum 0.974800, p1 0.980000"
        "  DISAGREES with the original (accepted: minimum cosine >= 0.999)",
        "note: mind this",
        "next: bench run --provider 'onnx?path=out'",
    ]


def test_a_model_is_a_folder_a_name_on_the_hub_or_a_spec_string(tmp_path: Path) -> None:
    assert model_of(str(tmp_path)) == (str(tmp_path), "")
    assert model_of("owner/name") == ("owner/name", "")
    assert model_of("minilm") == ("sentence-transformers/all-MiniLM-L6-v2", "")
    assert model_of("minilm@cpu?path=/models/m") == ("sentence-transformers/all-MiniLM-L6-v2", "/models/m")
    assert model_of("cross-encoder:owner/name@cpu") == ("owner/name", "")
    with pytest.raises(
        UnknownNameError, match="no model 'nothing'; accepted: a folder, OWNER/NAME, or a spec"
    ):
        model_of("nothing")
    with pytest.raises(SpecStringError, match="the target is 'moon'"):
        model_of("minilm@moon")


def test_the_plug_ins_exporter_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def exporter(spec, *arguments):
        calls.append((spec.name, *arguments))
        return Exported(tmp_path, (GOOD,), "next")

    monkeypatch.setattr(export_command, "load_attribute", lambda _: exporter)
    lines = export_lines("owner/name", tmp_path / "out", "fp32, int8", 17)
    assert calls == [("onnx", "owner/name", tmp_path / "out", ["fp32", "int8"], 17, "")]
    assert lines[-1] == "next: next"


def test_without_an_exporter_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_command, "EMBEDDERS", [replace(spec, export="") for spec in EMBEDDERS])
    with pytest.raises(ProviderUnavailableError, match="no installed plug-in exports models"):
        export_lines("owner/name", tmp_path, "fp32", 17)
