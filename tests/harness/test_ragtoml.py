"""A chosen system as rag.toml: every pipeline, loaded back by the library's own reader."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.ragtoml import check_writable, rag_toml, write_rag_toml
from harness.recommend import recommend
from harness.results import ResultDocument
from rag_core.app.settings import reranker_for, search_options
from rag_core.errors import InvalidArgumentError
from rag_core.service_config import read_config


def only(document: ResultDocument, pipeline: str, **key: str) -> ResultDocument:
    """``document`` with e5-small's hybrid cell alone, under another key."""
    cell = next(c for c in document.cells if c.key.cell_id == "e5-small/cpu/q4/flat/hybrid/-")
    if pipeline == "bm25":
        cell = next(c for c in document.cells if c.key.pipeline == "bm25")
    document.cells = [replace(cell, key=replace(cell.key, **{"pipeline": pipeline, **key}))]
    return document


def written(document: ResultDocument, **options: Any) -> str:
    return rag_toml(recommend(document, **options), command="bench recommend OUT", digest="abc123")


@pytest.mark.parametrize(
    ("pipeline", "key", "expected"),
    [
        ("vector", {}, {"pipeline": "vector"}),
        ("hybrid", {}, {"pipeline": "hybrid", "fusion": "rrf", "rrf_k": 60.0}),
        ("hybrid", {"fusion": "convex"}, {"pipeline": "hybrid", "fusion": "convex", "rrf_k": 60.0}),
        ("hybrid+rerank", {"reranker": "maxsim"}, {"pipeline": "hybrid", "fusion": "rrf", "rrf_k": 60.0}),
        ("bm25", {}, {"pipeline": "bm25"}),
    ],
)
def test_every_pipeline(
    document: ResultDocument, tmp_path: Path, pipeline: str, key: dict[str, str], expected: dict[str, Any]
) -> None:
    path = tmp_path / "rag.toml"
    path.write_text(written(only(document, pipeline, store="lancedb", **key)), encoding="utf-8")
    config = read_config(path)
    assert config.chain == (["fake"] if pipeline == "bm25" else ["e5-small@cpu"])
    assert config.rerankers == [key.get("reranker", "noop")]
    languages = {} if pipeline == "vector" else {"languages": ["en", "es", "pt"]}
    assert config.index == {"store": "lancedb", **languages}
    assert config.search == {"top_k": 10, "candidate_pool": 50, **expected}
    if "reranker" not in key:  # none is looked for either
        assert reranker_for(config, "") == (None, [])


def test_ranks_weights_and_other_depths(document: ResultDocument, tmp_path: Path) -> None:
    document = only(document, "hybrid+rerank+rrf", reranker="maxsim")
    document.spec |= {"weights": [2, 1], "rrf_k": 10.0, "analyser": "raw"}
    document.cells[0].settings["candidate_pool"] = 32
    path = tmp_path / "rag.toml"
    path.write_text(written(document, metric="precision@5"), encoding="utf-8")
    config = read_config(path)
    assert config.rerank == {"mix": "ranks"}
    assert config.index == {"store": "flat", "analyser": "raw"}
    assert search_options(config) == {
        "top_k": 5, "pipeline": "hybrid", "candidate_pool": 32, "fusion": "rrf", "rrf_k": 10.0,
        "weights": [2.0, 1.0], "rerank_mix": "ranks",
    }  # fmt: skip


def test_the_header_says_where_it_comes_from(document: ResultDocument) -> None:
    text = written(only(document, "hybrid"))
    assert "# Command: bench recommend OUT\n" in text
    assert "# Data set: civic, 121 documents, n = 40 judged queries\n" in text
    assert "# nDCG@10: 0.796, 95 % interval 0.740–0.839\n" in text
    assert "# Result: of 2026-11-30T05:59:30Z, sha256 abc123\n" in text
    assert written(only(document, "hybrid")) == text


def test_notes_tell_what_the_file_cannot_hold(
    document: ResultDocument, factory: Callable[..., ResultDocument]
) -> None:
    document = only(document, "hybrid")
    document.spec |= {"k1": 0.9, "lexical": "bm25s"}
    document.cells[0].settings["scope"] = "town"
    notes = [line for line in written(document).splitlines() if line.startswith("# Note: ")]
    assert len(notes) == 5
    assert any("told the language" in note for note in notes)
    assert any("k1 = 0.9" in note for note in notes)
    assert any("bm25s" in note for note in notes)
    assert any("--where town=VALUE" in note for note in notes)
    assert "BM25 alone" in written(only(factory(), "bm25"))


def test_odd_text_stays_toml(document: ResultDocument, tmp_path: Path) -> None:
    folder = tmp_path / 'a "b" ü'
    folder.mkdir()
    document = only(document, "vector", provider=f"st?path={folder}")
    document.name = "two\nlines"
    text = written(document)
    values = tomllib.loads(text)
    assert "# Data set: two lines, " in text
    assert values["embedding"]["provider"].startswith("st@cpu?path=")
    document = only_named(document, "not a [spec]: x@y")
    assert tomllib.loads(written(document))["embedding"]["provider"] == "not a [spec]: x@y"


def only_named(document: ResultDocument, provider: str) -> ResultDocument:
    cell = document.cells[0]
    document.cells = [replace(cell, key=replace(cell.key, provider=provider))]
    return document


def test_a_file_of_another_hand_stays(
    document: ResultDocument, tmp_path: Path, factory: Callable[..., ResultDocument]
) -> None:
    path = tmp_path / "deep" / "rag.toml"
    text = written(only(document, "hybrid"))
    write_rag_toml(path, text)
    other = written(only(factory(), "vector"))
    write_rag_toml(path, other)  # its own may be replaced
    assert path.read_text(encoding="utf-8") == other
    for foreign in (other.replace("top_k = 10", "top_k = 3"), '[embedding]\nprovider = "mine"\n', ""):
        path.write_text(foreign, encoding="utf-8")
        with pytest.raises(InvalidArgumentError, match=r"another hand.*--out FILE.*--force"):
            write_rag_toml(path, text)
        assert path.read_text(encoding="utf-8") == foreign
        write_rag_toml(path, text, force=True)
        assert path.read_text(encoding="utf-8") == text
    assert [found.name for found in path.parent.iterdir()] == ["rag.toml"]
    with pytest.raises(InvalidArgumentError, match="is a folder; accepted"):
        check_writable(tmp_path, force=False)
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        write_rag_toml(path / "below", text)
