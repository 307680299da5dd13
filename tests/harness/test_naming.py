from __future__ import annotations

import pytest

from harness.naming import provider_name, short_label
from harness.results import CellKey
from harness.rows import labels


@pytest.mark.parametrize(
    "text, target, shown",
    [
        ("minilm", "cpu", "minilm"),
        ("minilm", "mlx", "minilm@mlx"),
        ("cohere", "api", "cohere"),
        ("st:/models/all-MiniLM-L6-v2", "cpu", "st:…/all-MiniLM-L6-v2"),
        ("st:./mine/", "nvidia", "st:…/mine@nvidia"),
        ("st:intfloat/multilingual-e5-large", "cpu", "st:intfloat/multilingual-e5-large"),
        ("onnx?path=%2Fmodels%2Fa&dtype=int8", "cpu", "onnx?path=…/a&dtype=int8"),
        (
            "openai:m?base_url=http%3A%2F%2Flocalhost%3A8080%2Fv1",
            "api",
            "openai:m?base_url=localhost:8080/v1",
        ),
        ("no ? spec", "", "no ? spec"),
    ],
)
def test_a_name_is_as_short_as_a_reader_needs(text: str, target: str, shown: str) -> None:
    assert provider_name(text, target) == shown


def key(provider: str, pipeline: str = "vector", reranker: str = "-", target: str = "cpu") -> CellKey:
    return CellKey("d", provider, target, "fp32", "flat", pipeline, reranker)


def test_labels_cut_folders_and_tell_devices() -> None:
    keys = [
        key("st:/a/m"),
        key("minilm", target="mlx"),
        key("minilm", "hybrid+rerank", "cross-encoder?path=%2Fx%2Fy"),
    ]
    assert list(labels(keys).values()) == [
        "st:…/m · vector",
        "minilm@mlx · vector",
        "minilm · hybrid+rerank · cross-encoder?path=…/y",
    ]


def test_folders_that_end_alike_stay_whole() -> None:
    assert list(labels([key("st:/a/m"), key("st:/b/m")]).values()) == ["st:/a/m · vector", "st:/b/m · vector"]


def test_a_leg_of_its_own_is_named_once() -> None:
    assert short_label(key("bm25", "bm25")) == "bm25"
