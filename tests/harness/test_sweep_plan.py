"""The settings of a sweep, its variants and the order of its texts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from harness.datasets import load_dataset
from harness.sweep_plan import SweepSpec, chosen_documents, numbers, plan_variants, words
from rag_core.errors import InvalidArgumentError, SpecStringError, UnknownNameError
from rag_core.registry import load_plugins


@pytest.fixture(autouse=True)
def plugins() -> None:
    load_plugins()


def labels(spec: SweepSpec) -> list[str]:
    return [variant.label for variant in plan_variants(spec)[0]]


def test_a_variant_is_a_provider_on_a_target_in_a_dtype() -> None:
    spec = SweepSpec("mini", ("fake?call_s=0.1", "fake-minilm"), dtypes=("int8", "fp32"))
    assert labels(spec) == [
        "fake@cpu?call_s=0.1&dtype=fp32",  # the reference of its group first
        "fake@cpu?call_s=0.1&dtype=int8",
        "fake-minilm@cpu?dtype=fp32",
        "fake-minilm@cpu?dtype=int8",
    ]
    assert [v.group for v in plan_variants(spec)[0]] == ["fake?call_s=0.1"] * 2 + ["fake-minilm"] * 2


def test_spec_strings_of_one_model_make_one_group() -> None:
    spec = SweepSpec("mini", ("fake@cpu?dtype=int8", "fake?dtype=fp32", "fake@cpu?dtype=int8"))
    assert labels(spec) == ["fake@cpu?dtype=fp32", "fake@cpu?dtype=int8"]
    assert {v.group for v in plan_variants(spec)[0]} == {"fake"}


def test_a_target_that_a_provider_lacks_is_skipped_when_swept_and_refused_when_named() -> None:
    runnable, skipped = plan_variants(SweepSpec("mini", ("fake",), targets=("cpu", "mlx")))
    assert [v.label for v in runnable] == ["fake@cpu"]
    ((variant, reason),) = skipped
    assert variant.label == "fake@mlx"
    assert "no target 'mlx'; accepted: cpu" in reason
    with pytest.raises(UnknownNameError, match="no target 'mlx'"):
        plan_variants(SweepSpec("mini", ("fake@mlx",)))
    with pytest.raises(SpecStringError, match="target is 'moon'"):
        plan_variants(SweepSpec("mini", ("fake",), targets=("moon",)))


def test_the_pool_alone_sweeps_no_provider() -> None:
    spec = SweepSpec("mini", ("fake",), pools=(10,), rerankers=("noop",))
    assert not spec.sweeps_speed
    assert plan_variants(spec) == ([], [])
    assert replace(spec, batch_sizes=(1,)).sweeps_speed
    assert replace(spec, providers=()).pool_provider == "fake"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"texts": 1}, "texts is 1; accepted: 2 or more"),
        ({"rounds": 0}, "rounds is 0"),
        ({"threads": -1}, "threads is -1"),
        ({"pools": (10,)}, "--candidate-pool and --reranker"),
        ({"rerankers": ("noop",)}, "--candidate-pool and --reranker"),
        ({"providers": ()}, "nothing to sweep"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        SweepSpec(**{"data": "mini", "providers": ("fake",), **settings})


def test_settings_round_trip_and_what_their_digest_covers() -> None:
    spec = SweepSpec("mini", ("fake",), (1, 8), pools=(5,), rerankers=("noop",))
    assert SweepSpec.from_dict(json.loads(json.dumps(spec.as_dict()))) == spec
    assert spec.digest == replace(spec, rerankers=("noop", "fake-overlap"), dtypes=("fp32",)).digest
    assert spec.digest != replace(spec, batch_sizes=(1,)).digest
    assert spec.digest != replace(spec, providers=("fake-minilm",)).digest  # another frozen pool


def test_texts_are_mixed_the_same_way_every_time() -> None:
    dataset = load_dataset("civic")
    spec = SweepSpec("civic", ("fake",), texts=50)
    documents, timed = chosen_documents(dataset, spec)
    again, _ = chosen_documents(dataset, spec)
    assert timed == 50
    assert documents == again
    assert len(documents) == len({d.doc_id for d in documents}) == 396  # the whole of a small corpus
    assert [d.doc_id for d in documents] != [d.doc_id for d in dataset.documents]
    assert not any(d.is_empty for d in documents)
    assert chosen_documents(dataset, replace(spec, seed=1))[0] != documents


def test_of_a_large_corpus_only_the_timed_texts_are_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.sweep_plan.WHOLE_CORPUS", 100)
    documents, timed = chosen_documents(load_dataset("civic"), SweepSpec("civic", ("fake",), texts=50))
    assert len(documents) == timed == 50


def test_numbers_and_words() -> None:
    assert numbers("--batch-size", " 8,1, 8,32") == (1, 8, 32)
    assert numbers("--batch-size", "") == ()
    assert words("int8, fp32,int8") == ("int8", "fp32")
    for text in ("1,x", "0", "-4", "1.5", "²"):
        with pytest.raises(InvalidArgumentError, match=r"--batch-size holds .*whole numbers from 1"):
            numbers("--batch-size", text)
