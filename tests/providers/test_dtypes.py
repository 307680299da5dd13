"""Which dtype is chosen: from a table, by measuring stand-ins on a clock of their own, from memory."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from providers import _dtypes
from providers._dtypes import (
    TEXTS,
    Measured,
    agreement,
    automatic,
    choose,
    cpu_features,
    default_dtype,
    machine,
    measurements,
)  # fmt: skip
from providers._sentences import SENTENCES
from rag_core.errors import ProviderUnavailableError


class Clock:
    """Seconds that pass only when a stand-in works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    def __init__(self, clock: Clock, cost_s: float, drift: float = 0.0) -> None:
        self.clock, self.cost_s, self.drift = clock, cost_s, drift

    def embed(self, texts, *, role="document"):
        self.clock.now += self.cost_s
        angles = np.arange(len(texts)) + self.drift
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


LINE = Measured("onnxruntime", "cpu", "vnni", "q8", 1.5, 2.0, 0.9994, "here")


def test_the_kept_table_is_complete_and_never_speaks_for_fp16_on_a_cpu() -> None:
    assert measurements()
    for line in measurements():
        assert line.where
        assert line.features in ("amx", "bf16", "vnni", "avx512", "other") or line.target != "cpu"
        assert default_dtype(line.engine, line.target, line.features) != "fp16" or line.target != "cpu"
    for features in ("amx", "bf16", "vnni"):
        assert default_dtype("onnxruntime", "cpu", features) == "q8"
    assert default_dtype("torch", "cpu", "amx") == default_dtype("torch", "cpu", "bf16") == "bf16"
    assert default_dtype("torch", "cpu", "vnni") == default_dtype("onnxruntime", "cpu", "other") == "fp32"


@pytest.mark.parametrize(
    "lines, expected",
    [
        ([], "fp32"),
        ([LINE], "q8"),
        ([replace(LINE, min_cosine=0.998)], "fp32"),
        ([replace(LINE, min_cosine=0.998, is_equivalent=True)], "q8"),
        ([replace(LINE, bulk=0.8)], "fp32"),
        ([replace(LINE, bulk=0.97)], "q8"),
        ([LINE, replace(LINE, min_cosine=0.9, where="another model")], "fp32"),
        ([LINE, replace(LINE, query=0.5, where="another model")], "fp32"),
        ([replace(LINE, features="avx512")], "q8"),
        ([replace(LINE, features="amx")], "fp32"),
        ([replace(LINE, engine="torch")], "fp32"),
        ([replace(LINE, dtype="fp16")], "fp32"),
        ([LINE, replace(LINE, dtype="bf16", query=3.0)], "bf16"),
    ],
)
def test_the_best_that_agrees_and_gains_is_the_default(lines, expected) -> None:
    assert default_dtype("onnxruntime", "cpu", "vnni", lines) == expected


def test_a_device_runs_in_half_unless_it_was_measured_otherwise() -> None:
    assert default_dtype("torch", "nvidia", "", []) == "fp16"
    line = replace(LINE, engine="torch", target="nvidia", features="H", dtype="bf16")
    assert default_dtype("torch", "nvidia", "other", [line]) == "bf16"


@pytest.mark.parametrize(
    "flags, expected",
    [
        ({"avx512f", "avx512_vnni", "amx_int8"}, "amx"),
        ({"avx512_bf16", "avx512_vnni"}, "bf16"),
        ({"avx_vnni", "avx2"}, "vnni"),
        ({"avx512f"}, "avx512"),
        ({"avx2"}, "other"),
        ((), "other"),
    ],
)
def test_features_by_flags(flags, expected) -> None:
    assert cpu_features(frozenset(flags)) == expected


def test_the_cpu_is_read_from_the_systems_list(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("model name\t: One\nflags\t\t: sse avx2\n\nmodel name\t: Two\nflags\t: none\n")
    assert _dtypes._cpu_info(file) == ("One", frozenset({"sse", "avx2"}))
    assert _dtypes._cpu_info(tmp_path / "none")[1] == frozenset()
    assert len(machine()) == 12


def test_the_sentences_are_sixty_four_unlike_ones() -> None:
    assert len(SENTENCES) == len(set(SENTENCES)) == 64
    assert len(TEXTS) == 16


def test_the_fastest_that_agrees_wins() -> None:
    clock = Clock()
    found = choose(
        {
            "fp32": lambda: Fake(clock, 2.0),
            "q8": lambda: Fake(clock, 1.0, drift=0.01),
            "int8": lambda: Fake(clock, 0.1, drift=0.5),
        },
        clock=clock,
    )
    assert found.dtype == "q8"
    assert found.embedder.cost_s == 1.0
    assert found.seconds == {"fp32": pytest.approx(4.0), "q8": pytest.approx(2.0)}
    assert found.cosines["int8"] == pytest.approx(np.cos(0.5), abs=1e-6)
    assert "fastest of fp32 4000.0 ms, q8 2000.0 ms" in found.why
    assert "int8 disagrees (least cosine 0.8776, accepted 0.999)" in found.why


def test_what_cannot_run_is_left_out_and_said() -> None:
    clock = Clock()

    def broken() -> Fake:
        raise ProviderUnavailableError("tiny", "no weights")

    found = choose({"bf16": broken, "fp32": lambda: Fake(clock, 1.0)}, clock=clock)
    assert found.dtype == "fp32"
    assert "bf16 cannot run (tiny is not available: no weights" in found.why
    with pytest.raises(ProviderUnavailableError, match="no weights"):
        choose({"q8": lambda: Fake(clock, 1.0), "fp32": broken}, clock=clock)


def test_a_vector_that_is_no_number_never_agrees() -> None:
    rows = np.array([[1, 0], [np.nan, 0]], np.float32)
    assert agreement(rows, np.array([[1, 0], [1, 0]], np.float32)) == -1


def _candidates(clock: Clock, made: list[str], q8_s: float = 1.0):
    def maker(dtype: str, cost_s: float):
        return lambda: made.append(dtype) or Fake(clock, cost_s)

    return {"fp32": maker("fp32", 2.0), "q8": maker("q8", q8_s)}


def test_the_choice_is_remembered_until_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("RAG_DTYPE_REMEASURE", raising=False)
    clock, made = Clock(), []
    with caplog.at_level(logging.INFO, "rag_core"):
        assert automatic("tiny", ["digest"], _candidates(clock, made), clock).cost_s == 1.0
        assert made == ["fp32", "q8"]
        assert automatic("tiny", ["digest"], _candidates(clock, made), clock).cost_s == 1.0
        assert made == ["fp32", "q8", "q8"], "the second start loads what was chosen and nothing else"
    assert "dtype q8, fastest of fp32 4000.0 ms, q8 2000.0 ms" in caplog.text
    assert "measured here before" in caplog.text
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["dtype"] == "q8"
    automatic("tiny", ["another digest"], _candidates(clock, made), clock)
    assert len(made) == 5, "other weights are measured for themselves"
    monkeypatch.setenv("RAG_DTYPE_REMEASURE", "1")
    assert automatic("tiny", ["digest"], _candidates(clock, made, 9.0), clock).cost_s == 2.0


@pytest.mark.parametrize("content", ["", "[]", '{"dtype": 3}', '{"dtype": "int3"}'])
def test_a_damaged_memory_is_measured_again(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    clock, made = Clock(), []
    automatic("tiny", ["digest"], _candidates(clock, made), clock)
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    automatic("tiny", ["digest"], _candidates(clock, made), clock)
    assert made == ["fp32", "q8"] * 2


def test_a_memory_that_cannot_be_kept_costs_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path / "file" / "below"))
    clock = Clock()
    with caplog.at_level(logging.WARNING, "rag_core"):
        assert automatic("tiny", [], _candidates(clock, []), clock).cost_s == 1.0
    assert "set RAG_CACHE_DIR" in caplog.text
