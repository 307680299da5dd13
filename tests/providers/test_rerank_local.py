"""Rerankers on every engine beside sentence-transformers: the same numbers from the same folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from providers import RERANKERS
from providers.crossencoder import CrossEncoder, load
from providers.maxsim import load as load_maxsim
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.reranking import rerank_ranking
from rag_core.types import Ranking

pytestmark = [
    pytest.mark.embeddings_local,
    pytest.mark.skipif(
        importlib.util.find_spec("transformers") is None, reason="needs pip install 'rag-core-bench[local]'"
    ),
    pytest.mark.filterwarnings("ignore"),  # of other libraries, at load
]
SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
REAL = SHARED / "models" / "xenc-enpt"
SPECS = {(spec.name, spec.target): spec for spec in RERANKERS}
#: Engine -> target.
ENGINES = {"onnxruntime": "cpu", "torch": "cpu", "mlx": "mlx"}
FAMILIES = ("bert", "xlm-roberta")
QUERY = "opening hours"
TEXTS = ["the library opens at nine", "dogs", "", "pay the bill at the office", "dogs", "zebra " * 20]


def random_model(family: str, folder: Path, n_logits: int = 1) -> Any:
    """A tiny classifier as transformers makes and saves it, with weights far enough from zero to matter."""
    import torch
    import transformers

    sizes = {
        "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 65 if family == "xlm-roberta" else 64,
        "pad_token_id": 0, "num_labels": n_logits,
    }  # fmt: skip
    if family == "distilbert":
        sizes |= {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
    if family == "electra":
        sizes |= {"embedding_size": 16}
    torch.manual_seed(11)
    config = transformers.AutoConfig.for_model(family, **sizes)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * 0.2)
    model.save_pretrained(folder)
    return model


def export(model: Any, file: Path, types: bool) -> None:
    """The model as ONNX."""
    import torch

    ids = torch.randint(4, 30, (2, 7))
    feed = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if types:
        feed["token_type_ids"] = torch.zeros_like(ids)
    file.parent.mkdir()
    torch.onnx.export(
        model, (feed,), str(file), input_names=list(feed), output_names=["logits"],
        dynamic_axes={name: {0: "rows", 1: "tokens"} for name in feed} | {"logits": {0: "rows"}},
        dynamo=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, make_tiny_bert: Callable[..., Path]) -> dict[str, Path]:
    """Family -> folder with the weights for every engine."""
    made = {}
    for family in FAMILIES:
        folder = make_tiny_bert(tmp_path_factory.mktemp("models") / family, family)
        model = random_model(family, folder)
        export(model, folder / "onnx" / "model.onnx", family == "bert")
        made[family] = folder
    return made


def reference(folder: Path, query: str, texts: list[str]) -> list[float]:
    """Raw logits as sentence-transformers answers them, one pair a call."""
    import sentence_transformers
    import torch

    model = sentence_transformers.CrossEncoder(
        str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float32}
    )
    scores = model.predict([(query, text) for text in texts], batch_size=1, activation_fn=torch.nn.Identity())
    return [float(score) for score in scores]


def on(engine: str, folder: Path, **options: Any) -> CrossEncoder:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    return load(SPECS["cross-encoder", ENGINES[engine]], path=str(folder), engine=engine, **options)


@pytest.fixture(params=[(family, engine) for family in FAMILIES for engine in ENGINES], ids="-".join)
def tiny(request: pytest.FixtureRequest, folders: dict[str, Path]) -> tuple[Path, str]:
    """Folder and engine."""
    family, engine = request.param
    return folders[family], engine


def test_raw_logits_equal_those_of_sentence_transformers(tiny: tuple[Path, str]) -> None:
    folder, engine = tiny
    reranker = on(engine, folder, **({} if engine == "onnxruntime" else {"dtype": "fp32"}))
    texts = TEXTS[:5]
    scores = reranker.rerank(QUERY, texts)
    assert np.abs(np.subtract(scores, reference(folder, QUERY, texts))).max() < 1e-4
    assert np.ptp(scores) > 0.05, "the model does not tell the candidates apart"
    assert (reranker.runtime["engine"], reranker.target) == (engine, ENGINES[engine])


@pytest.mark.parametrize("threads", ["1", "2"])
def test_o29_each_score_belongs_to_its_own_candidate(tiny: tuple[Path, str], threads: str) -> None:
    folder, engine = tiny
    reranker = on(engine, folder, threads=threads, **({} if engine == "onnxruntime" else {"dtype": "fp32"}))
    fused = Ranking.from_scores((f"d{i}", float(-i)) for i in range(len(TEXTS)))
    alone = [reranker.rerank(QUERY, [text])[0] for text in TEXTS]
    for pool in (1, 3, len(TEXTS)):
        again = rerank_ranking(reranker, QUERY, fused.top(pool), TEXTS[:pool])
        assert [again.raw[f"d{i}"] for i in range(pool)] == pytest.approx(alone[:pool], abs=1e-4)
    assert set(again.raw) == {f"d{i}" for i in range(len(TEXTS))}, "equal texts stay distinct by id"
    assert reranker.rerank(QUERY, TEXTS[::-1]) == pytest.approx(alone[::-1], abs=1e-4)
    assert reranker.rerank(QUERY, []) == []


# the weights of an ONNX file are not easily broken: test_crossencoder does it there
@pytest.mark.parametrize(
    "tiny",
    [(family, engine) for family in FAMILIES for engine in ENGINES if engine != "onnxruntime"],
    ids="-".join,
    indirect=True,
)
def test_o30_a_number_that_is_none_never_wins_and_is_reported(tiny: tuple[Path, str], tmp_path: Path) -> None:
    """Weights that overflow give NaN on the torch engines; the reordering puts it last."""
    folder, engine = tiny
    from safetensors.numpy import load_file, save_file

    broken = shutil.copytree(folder, tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    name = next(name for name in tensors if name.endswith("word_embeddings.weight"))
    tensors[name][4 + ord("z") - ord("a")] = np.nan
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    reranker = on(engine, broken, dtype="fp32")
    fused = Ranking.from_scores({"nan": 3.0, "first": 2.0, "second": 1.0})
    again = rerank_ranking(reranker, QUERY, fused, ["zebra", "dogs", "bill"])
    assert again.ranking.doc_ids[-1] == "nan"
    assert np.isnan(again.raw["nan"])
    assert again.raw["first"] == pytest.approx(on(engine, folder, dtype="fp32").rerank(QUERY, ["dogs"])[0])
    assert "NaN for 1 of 3" in again.warnings[0]


def test_o31_long_candidates_are_counted_or_read_in_windows(tiny: tuple[Path, str]) -> None:
    folder, engine = tiny
    cut, windowed = on(engine, folder), on(engine, folder, windows="20")
    long = "lorem " * 2000 + "the answer"
    assert cut.max_tokens == 64
    cut.rerank(QUERY, [long, "a", "b", "c"])
    assert (cut.stats.pairs, cut.stats.truncated, cut.stats.rows) == (4, 1, 4)
    score = windowed.rerank(QUERY, [long, "a", "b", "c"])[0]
    assert (windowed.stats.truncated, windowed.stats.pairs) == (0, 4)
    assert windowed.stats.rows > 600
    ends = windowed.rerank(QUERY, ["loremlorem" * 2, "loremloremtheanswer"])
    assert score >= max(ends[1:]) - 1e-2, "the best window counts"


def test_o31_a_query_of_600_words_leaves_room_and_the_end_of_the_template(tiny: tuple[Path, str]) -> None:
    folder, engine = tiny
    reranker = on(engine, folder)
    scores = reranker.rerank("word " * 600, TEXTS)
    assert np.ptp(scores) > 1e-3, "the candidates are not read"
    assert reranker.stats.truncated == len(TEXTS)
    rows = [row for pair in reranker._encoder.pairs("word " * 600, TEXTS) for row in pair.rows]
    assert all(len(row.ids) <= 64 and row.ids[0] == 2 and row.ids[-1] == 3 for row in rows)


@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_other_architectures_run_through_transformers(
    family: str, tmp_path: Path, make_tiny_bert: Callable[..., Path]
) -> None:
    # like DistilBERT, the tokenizer of XLM-RoBERTa has no types
    folder = make_tiny_bert(tmp_path / family, "bert" if family == "electra" else "xlm-roberta")
    random_model(family, folder)
    reranker = on("torch", folder)
    assert reranker.runtime["forward"] == "transformers"
    assert reranker.rerank(QUERY, TEXTS[:5]) == pytest.approx(reference(folder, QUERY, TEXTS[:5]), abs=1e-4)
    assert reranker.rerank(QUERY, TEXTS)[4] == pytest.approx(reranker.rerank(QUERY, ["dogs"])[0], abs=1e-4)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize("engine", ["torch", "mlx"])
def test_more_than_one_logit_is_refused(
    family: str, engine: str, tmp_path: Path, make_tiny_bert: Callable[..., Path]
) -> None:
    folder = make_tiny_bert(tmp_path / family)
    random_model(family, folder, 3)
    said = "gives 3 logits for a pair" if (family, engine) != ("distilbert", "mlx") else "'distilbert'"
    with pytest.raises(ProviderUnavailableError, match=said):
        on(engine, folder)


@pytest.mark.parametrize("engine", ["torch", "mlx"])
def test_an_encoder_without_a_head_is_refused(
    engine: str, tmp_path: Path, make_tiny_bert: Callable[..., Path]
) -> None:
    with pytest.raises(ProviderUnavailableError, match="has no classifier's head; accepted: a classifier of"):
        on(engine, make_tiny_bert(tmp_path, head=False))


@pytest.mark.parametrize("engine", ["torch", "mlx"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_damaged_file_is_named(
    engine: str, name: str, tmp_path: Path, make_tiny_bert: Callable[..., Path]
) -> None:
    folder = make_tiny_bert(tmp_path)
    (folder / name).write_bytes(b"{ damaged")
    with pytest.raises(ProviderError, match=f"^cross-encoder: .*{folder / name}"):
        on(engine, folder)


def test_a_damaged_file_of_another_architecture_is_named(
    tmp_path: Path, make_tiny_bert: Callable[..., Path]
) -> None:
    folder = make_tiny_bert(tmp_path)
    random_model("distilbert", folder)
    (folder / "model.safetensors").write_bytes(b"{ damaged")
    with pytest.raises(ProviderError, match=f"transformers cannot load {folder}"):
        on("torch", folder)


@pytest.mark.parametrize("engine, dtypes", [("torch", ("bf16", "fp16")), ("mlx", ("bf16", "fp16", "q8"))])
def test_other_dtypes_keep_the_order_of_clear_cases(
    engine: str, dtypes: tuple[str, ...], folders: dict[str, Path]
) -> None:
    full = on(engine, folders["bert"], dtype="fp32")
    expected = full.rerank(QUERY, TEXTS)
    for dtype in dtypes:
        other = on(engine, folders["bert"], dtype=dtype)
        assert np.abs(np.subtract(other.rerank(QUERY, TEXTS), expected)).max() < 0.2
        assert f"dtype={dtype}" in other.fingerprint != full.fingerprint


def test_torch_is_left_with_the_threads_it_had(folders: dict[str, Path]) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        on("torch", folders["bert"], threads="1").rerank(QUERY, TEXTS)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("engine", ["torch", "mlx", "onnxruntime"])
def test_token_vectors_give_the_same_late_interaction(
    engine: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    import torch
    import transformers

    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    folder = folders["bert"]
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    if engine == "onnxruntime":
        folder = shutil.copytree(folder, tmp_path / "tokens", ignore=shutil.ignore_patterns("onnx"))
        _export_tokens(model, folder / "model.onnx")
    spec, more = SPECS["maxsim", ENGINES[engine]], {} if engine == "onnxruntime" else {"dtype": "fp32"}
    kept = load_maxsim(spec, path=str(folder), engine=engine, **more)
    fresh = load_maxsim(spec, path=str(folder), engine=engine, cache_mb=0, **more)
    encode = fresh._tokenizer.encode

    def tokens(text: str) -> np.ndarray:
        with torch.inference_mode():
            hidden = model(torch.tensor([encode(text).ids])).last_hidden_state[0, 1:-1].numpy()
        return hidden / np.linalg.norm(hidden, axis=1, keepdims=True)

    texts = [text for text in TEXTS if text and len(text) < 60]
    expected = [float((tokens(QUERY) @ tokens(text).T).max(axis=1).sum()) for text in texts]
    assert fresh.rerank(QUERY, texts) == pytest.approx(expected, abs=1e-4)
    for query in (QUERY, "a dog", "bills"):
        some = texts[: 2 + len(query) % 3]
        again = kept.rerank(query, some)
        if engine == "mlx":  # calls on a device are filled with what is there
            assert again == pytest.approx(fresh.rerank(query, some), abs=1e-5)
        else:
            assert again == fresh.rerank(query, some) == [fresh.rerank(query, [text])[0] for text in some]
    assert kept.stats.cached > 0
    assert fresh.stats.cached == 0


def _export_tokens(model: Any, file: Path) -> None:
    import torch

    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    ids = torch.randint(4, 30, (2, 7))
    names = ["input_ids", "attention_mask"]
    torch.onnx.export(
        Tokens().eval(), (ids, torch.ones_like(ids)), str(file), input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "rows", 1: "tokens"} for name in [*names, "last_hidden_state"]},
        dynamo=False,
    )  # fmt: skip


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the reference models beside the checkout")
@pytest.mark.parametrize("engine", ["torch", "mlx"])
def test_a_real_cross_encoder_scores_as_in_sentence_transformers(engine: str) -> None:
    reranker = on(engine, REAL, dtype="fp32")
    query = "At what time does the library open?"
    texts = [
        "Dogs must be kept on a lead in the park between May and September.",
        "The library opens at nine on Monday and closes at six in the evening.",
        "Water bills are paid at the council office or by post. " * (10 if engine == "torch" else 1),
    ]
    scores = reranker.rerank(query, texts)
    assert np.abs(np.subtract(scores, reference(REAL, query, texts))).max() < 1e-4
    assert int(np.argmax(scores)) == 1
