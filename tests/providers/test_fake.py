from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from providers import EMBEDDERS, RERANKERS
from providers._models import CARDS
from providers.fake import SIBLINGS, load, load_overlap
from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.reranking import reorder
from rag_core.types import Ranking

ROOT = Path(__file__).resolve().parents[2]
FAKES = {spec.name: spec for spec in EMBEDDERS if spec.name.startswith("fake")}


def make(name: str = "fake", **options: str):
    return load(FAKES[name], **options)


def test_the_bits_are_pinned() -> None:
    """Stored indexes and the baseline's figures stand on these numbers: a change is a new revision."""
    vector = make().embed(["hello"])[0]
    length = np.sqrt(1_180_888)  # of the 64 whole numbers, the first six of which are below
    assert vector[:6].tolist() == [np.float32(n / length) for n in (-191, 249, -53, 21, -13, -19)]
    assert vector.tobytes() == make().embed(["other", "hello"])[1].tobytes()


def test_the_same_bits_in_another_process_with_another_hash_seed() -> None:
    code = (
        "from providers import EMBEDDERS; from providers.fake import load; "
        "s = next(s for s in EMBEDDERS if s.name == 'fake-bge-m3'); "
        "print(load(s).embed(['olá 図書館'])[0].tobytes().hex())"
    )
    env = {"PYTHONHASHSEED": "123", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == make("fake-bge-m3").embed(["olá 図書館"])[0].tobytes().hex()


def test_it_means_nothing() -> None:
    """A paraphrase is no nearer than a stranger: cosines scatter around 0 by about 1/sqrt(dim)."""
    fake = make("fake-bge-m3")
    texts = [f"text number {i}" for i in range(200)]
    vectors = fake.embed(texts)
    cosines = (vectors @ vectors.T)[np.triu_indices(200, 1)]
    assert abs(cosines.mean()) < 0.005
    assert 0.5 < cosines.std() * np.sqrt(1024) < 1.5


def test_spaces_of_two_fakes_and_of_two_models_are_apart() -> None:
    one, other = make("fake-cohere"), make("fake-voyage")
    assert one.dim == other.dim
    assert one.fingerprint != other.fingerprint
    assert abs(float(one.embed(["x"])[0] @ other.embed(["x"])[0])) < 0.3


def test_every_fake_of_the_table_has_a_behaviour() -> None:
    assert set(FAKES) == set(SIBLINGS)


@pytest.mark.parametrize(
    "name, sent_document, sent_query",
    [
        ("fake-e5-small", "passage: x", "query: x"),
        ("fake-e5-large", "passage: x", "query: x"),
        ("fake-ollama", "search_document: x", "search_query: x"),
        ("fake-cohere", "x", "x"),
        ("fake-minilm", "x", "x"),
    ],
)
def test_the_text_sent_carries_the_roles_prefix_once(name: str, sent_document: str, sent_query: str) -> None:
    fake = make(name)
    fake.embed(["x"])
    fake.embed(["x"], role="query")
    assert list(fake.sent) == [("document", sent_document), ("query", sent_query)]


@pytest.mark.parametrize(
    "name, query, document",
    [
        ("fake-cohere", "input_type=search_query", "input_type=search_document"),
        ("fake-voyage", "input_type=query", "input_type=document"),
        ("fake-jina", "task=retrieval.query", "task=retrieval.passage"),
        ("fake-e5-large", "query: {text}", "passage: {text}"),
    ],
)
def test_the_roles_parameter_stands_in_the_fingerprint_and_changes_the_vector(
    name: str, query: str, document: str
) -> None:
    fake = make(name)
    assert (fake.fingerprint.query_template, fake.fingerprint.document_template) == (query, document)
    as_query, as_document = fake.embed(["x"], role="query"), fake.embed(["x"])
    assert not np.array_equal(as_query, as_document)


@pytest.mark.parametrize("name", ["fake", "fake-bge-m3", "fake-minilm", "fake-openai"])
def test_symmetric_models_give_one_vector_for_both_roles(name: str) -> None:
    fake = make(name)
    assert np.array_equal(fake.embed(["x"], role="query"), fake.embed(["x"]))


def test_blanks_are_never_sent_and_the_rest_stays_aligned() -> None:
    fake = make()
    vectors = fake.embed(["a", "", " \n", "b"])
    assert [text for _, text in fake.sent] == ["a", "b"]
    assert np.array_equal(vectors[3], make().embed(["b"])[0])
    assert (fake.stats.texts, fake.stats.blank) == (4, 2)


def test_batches_follow_the_siblings_limit() -> None:
    cohere, plain = make("fake-cohere"), make()
    texts = [f"t{i}" for i in range(200)]
    assert np.array_equal(cohere.embed(texts)[150], make("fake-cohere").embed(["t150"])[0])
    plain.embed(texts)
    assert list(cohere.batches) == [96, 96, 8]
    assert list(plain.batches) == [200]


def test_what_it_remembers_is_bounded() -> None:
    fake = make()
    assert fake.sent.maxlen is not None
    assert fake.batches.maxlen is not None


def test_texts_beyond_the_window_are_cut_and_counted() -> None:
    fake = make("fake-minilm")
    words = [f"w{i}" for i in range(300)]
    whole, cut, at_limit = fake.embed([" ".join(words), " ".join([*words[:256], "x"]), " ".join(words[:256])])
    assert np.array_equal(whole, cut)
    assert np.array_equal(whole, at_limit)
    assert fake.stats.truncated == 2
    assert fake.count_tokens([" ".join(words)]) == [300]


def test_no_window_cuts_nothing() -> None:
    fake = make()
    fake.embed(["word " * 20_000])
    assert fake.stats.truncated == 0
    assert fake.stats.tokens == 20_000


def test_load_first_and_every_call_take_their_time() -> None:
    started = perf_counter()
    fake = make(load_s="0.05", first_s="0.05", call_s="0.01")
    loaded = perf_counter()
    fake.embed(["a"])
    first = perf_counter()
    fake.embed(["a"])
    second = perf_counter()
    assert loaded - started >= 0.05
    assert first - loaded >= 0.06
    assert 0.01 <= second - first < 0.06


def test_a_lazy_answer_has_reached_the_host_when_embed_returns() -> None:
    """O36: what stands for a device array is converted inside the call."""
    fake = make(lazy_s="0.05")
    started = perf_counter()
    vectors = fake.embed(["a"])
    assert perf_counter() - started >= 0.05
    assert isinstance(vectors, np.ndarray)
    assert np.array_equal(vectors, make().embed(["a"]))


def test_lazy_answers_convert_to_other_types() -> None:
    fake = make(lazy_s="0.001")
    lazy = fake._encode(["a"], "document")
    assert np.asarray(lazy).dtype == np.float32
    assert np.asarray(lazy, dtype=np.float64).dtype == np.float64


def test_fails_on_the_text_asked_for() -> None:
    fake = make(fail="poison")
    fake.embed(["fine"])
    with pytest.raises(ProviderError, match="text 1 of 2 holds 'poison'"):
        fake.embed(["fine", "some poison here"])


def test_fails_for_the_role_asked_for() -> None:
    fake = make(fail_role="query")
    fake.embed(["fine"])
    with pytest.raises(ProviderError, match="fail for role 'query'"):
        fake.embed(["fine"], role="query")


@pytest.mark.parametrize("options", [{"load_s": "x"}, {"call_s": "-1"}, {"fail_role": "passage"}])
def test_bad_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"fake: option {next(iter(options))} is"):
        make(**options)


def test_overlap_scores_the_share_of_query_words() -> None:
    spec = next(spec for spec in RERANKERS if spec.name == "fake-overlap")
    reranker = load_overlap(spec)
    assert reranker.rerank("Library opens", ["the library", "it OPENS: library!", "nothing"]) == [
        0.5,
        1.0,
        0.0,
    ]
    assert reranker.rerank("?!", ["a"]) == [0.0]
    fused = Ranking.from_scores({"x": 3.0, "y": 2.0, "z": 1.0})
    reordered = reorder(fused, reranker.rerank("library opens", ["nothing", "the library", "library opens"]))
    assert reordered.ranking.doc_ids == ("z", "y", "x")
    assert repr(reranker) == "OverlapReranker()"


def test_every_real_provider_has_a_sibling_of_its_width() -> None:
    widths = {spec.name: spec.dim for spec in EMBEDDERS}
    real = [spec for spec in EMBEDDERS if not spec.name.startswith("fake")]
    assert {f"fake-{spec.name}" for spec in real} == set(widths) - {spec.name for spec in real} - {"fake"}
    for spec in real:
        assert spec.dim in (0, widths[f"fake-{spec.name}"])


@pytest.mark.parametrize("name", ["cohere", "jina", "openai", "voyage"])
def test_siblings_of_services_have_their_limits(name: str) -> None:
    service = importlib.import_module(f"providers.{name}").SERVICE
    (spec,) = (spec for spec in EMBEDDERS if spec.name == name)
    sibling = SIBLINGS[f"fake-{name}"]
    assert sibling.max_batch == service.limits.texts
    assert sibling.max_tokens == service.models[spec.model].window
    for role, sent in service.roles.items():
        (parameter, value), *_ = sent.items()
        assert getattr(sibling, role) == f"{parameter}={value}"


@pytest.mark.parametrize("name", ["bge-m3", "e5-large", "e5-small", "minilm"])
def test_siblings_of_local_models_have_their_prompts_and_windows(name: str) -> None:
    spec = next(spec for spec in EMBEDDERS if spec.name == name)
    card, sibling = CARDS[spec.model], SIBLINGS[f"fake-{name}"]
    assert sibling.max_tokens == card.max_tokens
    assert sibling.query == card.query_prompt + "{text}"
    assert sibling.document == card.document_prompt + "{text}"
