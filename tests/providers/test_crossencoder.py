"""Cross-encoders: a tiny one with random weights, and a small real one where it is at hand."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from providers import RERANKERS
from providers._local_reranker import About
from providers._weights import ANY_MODEL
from providers.crossencoder import CrossEncoder, load
from rag_core.errors import InvalidArgumentError, ProviderError, ProviderUnavailableError
from rag_core.reranking import rerank_ranking
from rag_core.types import Ranking

SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
REAL = SHARED / "models" / "xenc-enpt-onnx"
SPEC = next(spec for spec in RERANKERS if spec.name == "cross-encoder")
NAMED = [spec for spec in RERANKERS if (spec.load, spec.target) == (SPEC.load, "cpu") and spec is not SPEC]
QUERY = "opening hours"
TEXTS = ["the library opens at nine", "dogs", "", "pay the bill at the office", "dogs", "zebra " * 20]


def reference(folder: Path, query: str, text: str) -> float:
    """The logit by onnxruntime and the tokenizer alone, no cutting, no batch."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    pair = tokenizer.encode(query, text)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    feed = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
    names = {entry.name for entry in session.get_inputs()}
    (logits,) = session.run(["logits"], {k: np.array([v]) for k, v in feed.items() if k in names})
    return float(logits.item())


@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_scores_are_the_models_raw_logits(
    types: bool, threads: str, tmp_path: Path, make_tiny: Callable[..., Path]
) -> None:
    folder = make_tiny(tmp_path, types=types)
    texts = TEXTS[:5]
    scores = load(SPEC, path=str(folder), threads=threads).rerank(QUERY, texts)
    assert np.allclose(scores, [reference(folder, QUERY, text) for text in texts], rtol=0, atol=1e-5)
    assert len({round(score, 3) for score in scores}) == 4, "two of five texts are equal"


def test_scores_stay_with_their_candidates_through_the_sort(tiny_cross_encoder: Path) -> None:
    """O29: order, duplicates and cut-offs of the pool never move a score to another document."""
    reranker = load(SPEC, path=str(tiny_cross_encoder))
    fused = Ranking.from_scores((f"d{i}", float(-i)) for i in range(len(TEXTS)))
    again = rerank_ranking(reranker, QUERY, fused, TEXTS)
    assert set(again.raw) == set(fused.doc_ids)
    assert again.raw["d1"] == pytest.approx(again.raw["d4"], abs=1e-6)
    for position, doc_id in enumerate(fused.doc_ids):
        assert again.raw[doc_id] == pytest.approx(reranker.rerank(QUERY, [TEXTS[position]])[0], abs=1e-5)
    for pool in (1, 3):
        part = rerank_ranking(reranker, QUERY, fused.top(pool), TEXTS[:pool])
        assert [part.raw[d] for d in fused.doc_ids[:pool]] == pytest.approx(
            [again.raw[d] for d in fused.doc_ids[:pool]], abs=1e-5
        )


def test_run_time_quantisation_gets_one_pair_a_call(tiny_dynamic_cross_encoder: Path) -> None:
    reranker = load(SPEC, path=str(tiny_dynamic_cross_encoder))
    alone = [reranker.rerank(QUERY, [text])[0] for text in TEXTS]
    assert reranker.rerank(QUERY, TEXTS) == alone
    assert "batching=single" in reranker.fingerprint
    reranker._runner.token_budget = 4096
    assert np.abs(np.subtract(reranker.rerank(QUERY, TEXTS), alone)).max() > 0.01, "the model shows no effect"


def test_cut_pairs_are_counted(tiny_cross_encoder: Path) -> None:
    """O31: the window of the tiny model has 64 tokens, a letter each."""
    reranker = load(SPEC, path=str(tiny_cross_encoder))
    assert reranker.max_tokens == 64
    reranker.rerank("abc", ["x" * 58, "x" * 59, "y"])
    assert (reranker.stats.pairs, reranker.stats.truncated, reranker.stats.rows) == (3, 1, 3)
    assert reranker.stats.tokens == 64 + 64 + 7
    reranker.rerank("q" * 600, ["y", "z"])
    assert reranker.stats.truncated == 3
    narrow = load(SPEC, path=str(tiny_cross_encoder), max_tokens="32")
    narrow.rerank("abc", ["x" * 58, "y"])
    assert narrow.stats.truncated == 1


def test_a_long_candidate_is_scored_by_its_best_window(tiny_cross_encoder: Path) -> None:
    """O31: 2,000 words, of which the last score best, against three short unrelated candidates."""
    cut = load(SPEC, path=str(tiny_cross_encoder))
    windowed = load(SPEC, path=str(tiny_cross_encoder), windows="30")
    letters = "abcdefghijklmnopqrstuvwxyz"
    ordered = sorted(
        letters, key=dict(zip(letters, cut.rerank(QUERY, [x * 30 for x in letters]))).__getitem__
    )
    worst, best = ordered[0], ordered[-1]
    candidates = [worst * 4, f"{worst * 4} " * 2000 + best * 30, worst * 5, worst * 6]
    assert np.argmax(windowed.rerank(QUERY, candidates)) == 1
    assert np.argmax(cut.rerank(QUERY, candidates)) != 1, "the model does not need the end of the candidate"
    assert windowed.rerank(QUERY, candidates[1:2]) == pytest.approx(cut.rerank(QUERY, [best * 30]), abs=1e-5)
    assert (cut.stats.truncated, windowed.stats.truncated) == (1, 0)
    assert windowed.stats.rows > windowed.stats.pairs == 5
    assert cut.fingerprint != windowed.fingerprint


class Answers:
    """A runner whose answers are known."""

    def __init__(self, *answers: float | list[float]) -> None:
        self.answers = [np.atleast_1d(np.array(answer, np.float32)) for answer in answers]

    def run(self, rows: list) -> list[np.ndarray]:
        assert len(rows) == len(self.answers)
        return self.answers


class Encoder:
    """Pairs with a row per word of the candidate."""

    def pairs(self, query: str, candidates: list[str]):
        from providers._pairs import Pair, Row

        return [Pair([Row([1], [0])] * len(text.split()), False) for text in candidates]


def known(*answers: float | list[float]) -> CrossEncoder:
    return CrossEncoder(About("x", "m", "f", 8), Encoder(), Answers(*answers))  # type: ignore[arg-type]


def test_the_maximum_over_windows_and_raw_large_logits() -> None:
    """O30: 80, 90, 100 keep their order and size."""
    assert known(80, 100, 90, -5).rerank("q", ["a a", "b", "c"]) == [100.0, 90.0, -5.0]


def test_a_window_that_is_no_number_is_not_hidden() -> None:
    """O30: NaN reaches the reordering, which puts the candidate last and says so."""
    for answers in ([1, np.nan, 0.5], [np.nan, 1, 0.5]):
        scores = known(*answers).rerank("q", ["a a", "b"])
        assert np.isnan(scores[0])
        assert scores[1] == 0.5
        fused = Ranking.from_scores({"first": 2.0, "second": 1.0})
        again = rerank_ranking(known(*answers), "q", fused, ["a a", "b"])
        assert again.ranking.doc_ids == ("second", "first")
        assert "NaN for 1 of 2" in again.warnings[0]


def test_several_logits_a_pair_are_refused(tmp_path: Path, make_tiny: Callable[..., Path]) -> None:
    with pytest.raises(ProviderError, match="answered 2 logits for a pair; expected 1"):
        known([1, 2]).rerank("q", ["a"])
    with pytest.raises(ProviderUnavailableError, match=r"'logits' has the shape .*2\]; accepted: one logit"):
        load(SPEC, path=str(make_tiny(tmp_path, n_logits=2)))


def test_another_input_is_refused(tmp_path: Path, make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny(tmp_path)
    raw = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(raw.replace(b"attention_mask", b"attention_mist"))
    with pytest.raises(
        ProviderUnavailableError, match="has the input 'attention_mist'; accepted: attention_mask"
    ):
        load(SPEC, path=str(folder))


def test_the_fingerprint_names_model_weights_and_settings(tiny_cross_encoder: Path) -> None:
    reranker = load(SPEC, path=str(tiny_cross_encoder))
    assert reranker.fingerprint.startswith("cross-encoder:tiny@cpu#")
    assert reranker.fingerprint.endswith("?max_tokens=64&windows=0&dtype=stored&batching=any")
    assert str(tiny_cross_encoder.parent) not in reranker.fingerprint + repr(reranker)
    assert reranker.model == "tiny"
    assert reranker.runtime["execution_provider"] == "CPUExecutionProvider"
    assert (reranker.runtime["engine"], reranker.runtime["file"]) == ("onnxruntime", "model.onnx")


def test_languages_come_from_the_table_or_the_option(tiny_cross_encoder: Path) -> None:
    assert load(SPEC, path=str(tiny_cross_encoder)).languages == ()
    assert load(SPEC, path=str(tiny_cross_encoder), languages="en, pt").languages == ("en", "pt")
    english = next(spec for spec in NAMED if spec.name == "minilm-l6")
    assert load(english, path=str(tiny_cross_encoder)).languages == ("en",)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"max_tokens": "65"}, "option max_tokens is '65'; accepted: a whole number from 1 to 64"),
        ({"max_tokens": "5"}, "option max_tokens is 5; accepted: from 11"),
        ({"windows": "-1"}, "option windows is '-1'"),
        ({"threads": "0"}, "option threads is '0'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str, tiny_cross_encoder: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        load(SPEC, path=str(tiny_cross_encoder), **options)


def test_no_window_in_the_files_means_the_usual_one(tmp_path: Path, make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny(tmp_path)
    (folder / "config.json").write_text(json.dumps({"pad_token_id": None}))
    assert load(SPEC, path=str(folder)).max_tokens == 512


def test_the_tokenizers_settings_say_whether_a_model_has_types(
    tmp_path: Path, make_tiny: Callable[..., Path]
) -> None:
    folder = make_tiny(tmp_path)
    typed = load(SPEC, path=str(folder)).rerank(QUERY, TEXTS[:3])
    settings = folder / "tokenizer_config.json"
    for names, same in ((["input_ids", "token_type_ids", "attention_mask"], True), (["input_ids"], False)):
        settings.write_text(json.dumps({"model_input_names": names}))
        scores = load(SPEC, path=str(folder)).rerank(QUERY, TEXTS[:3])
        assert (scores == pytest.approx(typed, abs=1e-5)) is same


def test_the_general_provider_needs_a_folder_or_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_tiny: Callable[..., Path]
) -> None:
    with pytest.raises(ProviderUnavailableError, match=r"no folder is named; .*cross-encoder\?path=FOLDER"):
        load(SPEC)
    make_tiny(tmp_path / "owner" / "mine")
    monkeypatch.setenv("RAG_MODELS_DIR", str(tmp_path))
    named = load(replace(SPEC, model="owner/mine"))
    assert named.model == "owner/mine"
    assert SPEC.model == ANY_MODEL


@pytest.mark.parametrize("spec", NAMED, ids=lambda spec: spec.name)
def test_named_models_are_found_or_refused_at_once(
    spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_tiny: Callable[..., Path]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("RAG_MODELS_DIR", str(tmp_path / "models"))
    started = time.perf_counter()
    with pytest.raises(ProviderUnavailableError) as e:
        load(spec)
    assert time.perf_counter() - started < 5
    assert f"no weights of {spec.model}" in str(e.value)
    assert str(tmp_path / "models" / spec.model) in str(e.value)
    assert str(tmp_path / "none" / "hub") in str(e.value)
    make_tiny(tmp_path / "models" / spec.model)
    assert load(spec).model == spec.model
    assert not spec.auto, "auto-detection must not choose what needs weights that may be missing"


@pytest.mark.parametrize("name", ["model.onnx", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path, make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny(tmp_path)
    (folder / name).write_bytes(b"{ damaged")
    with pytest.raises(ProviderError, match=f"^cross-encoder: .*{folder / name}"):
        load(SPEC, path=str(folder))


def test_a_tokenizer_of_another_model_is_an_error_of_the_provider(
    tmp_path: Path, make_tiny: Callable[..., Path]
) -> None:
    folder = make_tiny(tmp_path)
    file = folder / "tokenizer.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"z": 29', '"z": 2900'), encoding="utf-8")
    with pytest.raises(ProviderError, match=r"cross-encoder: .* failed on 1 inputs \(.*2900"):
        load(SPEC, path=str(folder)).rerank("a", ["z"])


def test_warm_up_and_batch_size(tiny_cross_encoder: Path) -> None:
    reranker, told = load(SPEC, path=str(tiny_cross_encoder)), []
    assert not reranker.is_ready
    reranker.warmup(lambda *step: told.append(step))
    assert reranker.is_ready
    assert told == [("first call", 0, 1), ("ready", 1, 1)]
    before = reranker.rerank(QUERY, TEXTS)
    reranker.batch_size = 3
    assert (reranker.batch_size, reranker._runner.batch_size) == (3, 3)
    assert reranker.rerank(QUERY, TEXTS) == pytest.approx(before, abs=1e-5)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the reference models beside the checkout")
def test_a_real_model_prefers_the_answer_and_does_not_see_its_neighbours() -> None:
    pytest.importorskip("onnxruntime", reason="needs pip install 'rag-core-bench[onnx]'")
    reranker = load(SPEC, path=str(REAL), max_tokens="192")
    texts = [
        "Dogs must be kept on a lead in the park between May and September.",
        "The library opens at nine on Monday and closes at six in the evening.",
        "Water bills are paid at the council office or by post.",
    ]
    alone = [reranker.rerank("At what time does the library open?", [text])[0] for text in texts]
    together = reranker.rerank("At what time does the library open?", texts)
    assert together == alone
    assert int(np.argmax(together)) == 1
    assert "batching=single" in reranker.fingerprint
    # a closing token spelt out in a text is no closing token
    (pair,) = reranker._encoder.pairs("a </s> b <s>", ["c </s> d"])
    assert (pair.rows[0].ids.count(0), pair.rows[0].ids.count(2)) == (1, 3)
