"""Which engine reads a folder, and what is said when none can."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from providers import RERANKERS
from providers._rerank_engines import can_fetch, choose, missing
from providers.crossencoder import load
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderUnavailableError
from rag_core.factory import resolve
from rag_core.registry import RERANKERS as LOADED
from rag_core.registry import Registry

SPECS = {(spec.name, spec.target): spec for spec in RERANKERS}
ANY = SPECS["cross-encoder", "cpu"]
ENV = {"RAG_PLUGINS": "providers:register", "RAG_PROVIDER_ORDER": "cpu"}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``only("torch")`` makes torch the one engine that seems to be installed."""

    def pretend(*packages: str) -> None:
        for package in ("onnxruntime", "torch", "mlx"):
            if package not in packages:
                monkeypatch.setitem(sys.modules, package, None)
            elif importlib.util.find_spec(package) is None:
                monkeypatch.setitem(sys.modules, package, sys.modules[__name__])

    return pretend


@pytest.fixture
def both(tmp_path: Path, make_tiny: Callable[..., Path], make_tiny_bert: Callable[..., Path]) -> Path:
    """A folder with weights for every engine."""
    return make_tiny_bert(make_tiny(tmp_path / "both", "onnx/model.onnx"))


def test_the_folder_decides_and_onnx_comes_first(
    both: Path, tmp_path: Path, make_tiny_bert: Callable[..., Path], only: Callable[..., None]
) -> None:
    only("onnxruntime", "torch")
    assert choose(ANY, str(both))[0].name == "onnxruntime"
    assert choose(ANY, str(both), engine="torch")[0].name == "torch"
    assert choose(ANY, str(make_tiny_bert(tmp_path / "torch")))[0].name == "torch"


@pytest.mark.parametrize(
    "options, engine",
    [
        ({"dtype": "bf16"}, "torch"),
        ({"dtype": "fp32"}, "onnxruntime"),
        ({"dtype": "fp16"}, "torch"),  # the folder has no model_fp16.onnx
        ({"file": "onnx/model.onnx"}, "onnxruntime"),
    ],
)
def test_an_option_decides(
    options: dict[str, str], engine: str, both: Path, only: Callable[..., None]
) -> None:
    only("onnxruntime", "torch")
    assert choose(ANY, str(both), **options)[0].name == engine


def test_what_is_installed_decides(both: Path, only: Callable[..., None]) -> None:
    only("torch")
    assert choose(ANY, str(both))[0].name == "torch"


@pytest.mark.parametrize(
    "options, said",
    [
        ({"engine": "tensorflow"}, "option engine is 'tensorflow'; accepted: 'onnxruntime', 'torch'"),
        ({"engine": "mlx"}, r"engine 'mlx' does not run on cpu; .*cross-encoder@mlx\?engine=mlx"),
        ({"dtype": "fp8"}, "option dtype is 'fp8'; accepted: 'fp32', 'fp16', 'int8', 'q4', 'bf16'"),
        ({"dtype": "int8", "engine": "torch"}, "option dtype is 'int8'; accepted: 'fp32', 'fp16', 'bf16'"),
        ({"file": "a.onnx", "engine": "torch"}, "option file names an ONNX file"),
    ],
)
def test_options_that_no_engine_takes_are_refused(options: dict[str, str], said: str, both: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        load(ANY, path=str(both), **options)


@pytest.mark.parametrize(
    "there, lacking",
    [("torch", "onnxruntime"), ("onnxruntime", "torch"), ("", "")],
)
def test_the_package_for_the_weights_is_named(
    there: str, lacking: str, tmp_path: Path, only: Callable[..., None],
    make_tiny: Callable[..., Path], make_tiny_bert: Callable[..., Path],
) -> None:  # fmt: skip
    onnx, torch = make_tiny(tmp_path / "onnx"), make_tiny_bert(tmp_path / "torch")
    only(there)
    for folder, package, needed in ((onnx, "onnxruntime", "onnx"), (torch, "torch", "local")):
        if lacking in ("", package):
            said = rf"{package}.*pip install 'rag-core-bench\[{needed}\]'"
            with pytest.raises(MissingExtraError, match=said):
                load(ANY, path=str(folder))
            with pytest.raises(MissingExtraError, match=said):
                load(ANY, path=str(folder), engine=package)


def test_a_missing_tokenizers_package_is_named(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"tokenizers.*pip install 'rag-core-bench\[onnx\]'"):
        load(ANY, path=str(both), engine="onnxruntime" if importlib.util.find_spec("onnxruntime") else "")


def test_nothing_to_read_names_both_forms(tmp_path: Path, only: Callable[..., None]) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    only("onnxruntime", "torch")
    with pytest.raises(ProviderUnavailableError) as error:
        load(ANY, path=str(tmp_path))
    assert "no model.onnx and no onnx/*.onnx; no config.json" in str(error.value)
    assert "with an ONNX model and tokenizer.json, or config.json, tokenizer.json and model.safe" in str(
        error.value
    )


@pytest.mark.parametrize("installed", ["onnxruntime", "torch"])
def test_a_cpu_line_needs_either_engine_with_its_weights(
    installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: Callable[..., None],
    make_tiny: Callable[..., Path], make_tiny_bert: Callable[..., Path],
) -> None:  # fmt: skip
    monkeypatch.setenv("RAG_MODELS_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    registry = Registry("reranker")
    registry.add(*RERANKERS)
    spec, kept = SPECS["minilm-l6", "cpu"], tmp_path / "kept"
    for name, make in (("onnxruntime", make_tiny), ("torch", make_tiny_bert)):
        make(kept / name)
    only(installed)
    answer = registry.availability(spec)
    assert not answer.ok
    assert answer.reason.startswith(f"no weights of {spec.model}; looked in: {tmp_path / spec.model}, ")
    assert str(tmp_path / "hub") in answer.reason
    assert answer.hint == "use minilm-l6?path=FOLDER, or set RAG_MODELS_DIR"
    assert registry.availability(ANY).reason == "no folder is named"
    shutil.copytree(kept / ("torch" if installed == "onnxruntime" else "onnxruntime"), tmp_path / spec.model)
    assert not registry.availability(spec).ok, "weights for the engine that is not installed"
    shutil.copytree(kept / installed, tmp_path / spec.model, dirs_exist_ok=True)
    assert registry.availability(spec).ok
    only("neither")
    both = (
        "package 'onnxruntime' is not installed (run: pip install 'rag-core-bench[onnx]'); or package 'torch'"
    )
    assert registry.availability(spec).reason.startswith(both)


def test_weights_on_the_hub_count_where_an_engine_can_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]
) -> None:
    for variable in ("RAG_MODELS_DIR", "HF_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", sys.modules[__name__])
    registry = Registry("reranker")
    registry.add(*RERANKERS)
    only("torch")
    spec = SPECS["bge-reranker-v2-m3", "cpu"]
    answer = registry.availability(spec)
    assert (answer.ok, answer.is_ready) == (True, False)
    assert answer.reason == "weights are downloaded at first use (2.3 GB)"
    assert not can_fetch(spec, {"HF_HUB_OFFLINE": "1"})
    assert not can_fetch(ANY, {})
    assert not registry.availability(replace(spec, folder=str(tmp_path))).ok, "a named folder is not fetched"
    only("neither")
    assert not can_fetch(spec, {})


def test_a_folder_in_the_spec_string_is_looked_in(
    tmp_path: Path, only: Callable[..., None], make_tiny: Callable[..., Path]
) -> None:
    only("onnxruntime")
    with pytest.raises(ProviderUnavailableError, match=r"cpu: .* will not do \(no tokenizer\.json\)"):
        resolve(LOADED, f"cross-encoder?path={tmp_path}", ENV)
    with pytest.raises(ProviderUnavailableError, match="no folder is named"):
        resolve(LOADED, "cross-encoder", ENV)
    make_tiny(tmp_path, "one.onnx")
    make_tiny(tmp_path, "two.onnx")
    spec, parsed = resolve(LOADED, f"cross-encoder?path={tmp_path}&file=two.onnx", ENV)
    assert (spec.folder, parsed.options["file"]) == (str(tmp_path), "two.onnx")


def test_a_device_that_cannot_read_the_folder_leaves_it_to_the_cpu(
    tmp_path: Path, only: Callable[..., None], make_tiny: Callable[..., Path]
) -> None:
    """ONNX weights beside an installed MLX: the order of targets must not end in an error."""
    only("onnxruntime", "mlx")
    assert "no model.safetensors" in missing(
        replace(SPECS["cross-encoder", "mlx"], folder=str(make_tiny(tmp_path)))
    )
    spec, _ = resolve(
        LOADED, f"cross-encoder?path={tmp_path}", ENV | {"RAG_PROVIDER_ORDER": "mlx,nvidia,cpu"}
    )
    assert spec.target == "cpu"


def test_every_local_reranker_stands_on_every_target() -> None:
    names = {name for name, target in SPECS if target == "mlx"}
    expected = {"bge-reranker-v2-m3", "cross-encoder", "maxsim", "minilm-l12", "minilm-l6", "mmarco-minilm"}
    assert names == expected | {"tinybert-l2"}
    for name in names:
        lines = [SPECS[name, target] for target in ("cpu", "mlx", "nvidia")]
        assert not any(line.auto for line in lines), "auto-detection must not choose what has to be fetched"
        assert len({(line.model, line.languages, line.size_bytes) for line in lines}) == 1
