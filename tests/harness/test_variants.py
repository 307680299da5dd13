"""Variants of one model: who is compared with whom, what a resumed run keeps, and a planted disagreement."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.config import RunSpec
from harness.results import CellKey, CellResult, MetricResult, ResultDocument, load_result, result_schema
from harness.rows import make_rows
from harness.runner import run
from harness.summary import verdict
from harness.variants import (
    KEPT_BYTES,
    NOT_KEPT,
    compare_variants,
    drop_large,
    save_vectors,
    vector_file,
)
from rag_core.registry import EMBEDDERS

PLUGIN = '''
import numpy as np
from dataclasses import replace
from providers.fake import load as load_fake
from rag_core.registry import Spec

class Bent:
    """The fake, each text's vector turned towards one direction by a share."""

    def __init__(self, made, dtype, share):
        self._made, self._share = made, share
        self.fingerprint = replace(made.fingerprint, provider="bent", model="bent-64", dtype=dtype)

    def __getattr__(self, name):
        return getattr(self._made, name)

    def embed(self, texts, *, role="document"):
        rows = self._made.embed(texts, role=role).copy()
        share = self._share * (len(texts) > 1 if self._share < 0 else 1)
        rows[:, 0] += abs(share)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

def load(spec, dtype="fp32", share="0", **options):
    return Bent(load_fake(Spec("fake", "hash-64", "cpu", 64, ""), **options), dtype, float(share))

def register(registries):
    for target in ("cpu", "api"):
        registries.embedders.add(Spec("bent", "bent-64", target, 64, "bending:load"))
'''


@pytest.fixture
def bending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in above, for this process and those it starts."""
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "bending.py").write_text(PLUGIN)
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{root}")
    monkeypatch.setenv("RAG_PLUGINS", "providers:register,bending:register")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("rag_core.registry._loaded", set())
    monkeypatch.setattr(EMBEDDERS, "_specs", dict(EMBEDDERS._specs))
    sys.modules.pop("bending", None)


def entries(document: ResultDocument) -> dict[str, dict[str, Any]]:
    return {entry["provider"]: entry for entry in document.parity}


def spec(*providers: str) -> RunSpec:
    return RunSpec(data="mini", providers=providers, pipelines=("vector",))


def test_a_planted_disagreement_is_marked_and_never_the_winner(bending: None, tmp_path: Path) -> None:
    quantised = "bent@cpu?dtype=int8&share=3"  # far away: every document looks alike
    wrong = "bent@cpu?dtype=fp16&share=0.3"
    document = run(spec("bent@cpu", quantised, wrong, "bent@api"), tmp_path)
    found = [(e["provider"], e["target"], e["verdict"]) for e in document.parity]
    assert found == [
        ("bent", "cpu", "reference"),
        ("bent", "api", "same"),
        ("bent?dtype=fp16&share=0.3", "cpu", "differs"),
        ("bent?dtype=int8&share=3", "cpu", "differs"),
    ]
    by_name = entries(document)
    assert by_name["bent?dtype=int8&share=3"]["reference"] == {
        "provider": "bent",
        "target": "cpu",
        "dtype": "fp32",
    }
    assert "expected of fp16" in by_name["bent?dtype=fp16&share=0.3"]["reason"]
    values = json.loads((tmp_path / "result.json").read_text())
    import jsonschema

    jsonschema.validate(values, result_schema())
    # the one that differs scores best: still not recommended
    best = document.cell("bent?dtype=fp16&share=0.3/cpu/fp16/flat/vector/-")
    assert best is not None
    metric = best.metrics["ndcg@10"]
    metric.mean, metric.per_query = 1.0, [1.0] * len(metric.per_query)
    said = verdict(document)
    assert said.winner != best.key.cell_id
    assert said.sentences[0].startswith(
        "bent?dtype=fp16&share=0.3 · vector scores highest (1.000) but is not "
    )
    assert "Next is " in said.sentences[0]
    marked = [row.label for row in make_rows(document) if row.doubt]
    assert marked == ["bent?dtype=int8&share=3 · vector", "bent?dtype=fp16&share=0.3 · vector"]


def test_vectors_that_change_with_their_neighbours_are_marked(bending: None, tmp_path: Path) -> None:
    """O11: a negative share bends a text only when it is not alone in its call."""
    document = run(spec("fake-minilm", "bent@cpu?share=-0.5"), tmp_path)
    (entry,) = document.parity
    assert (entry["verdict"], entry["reference"]) == ("differs", None)
    assert entry["reason"].startswith("vectors change with their neighbours in a batch: cosine 0.")
    cell = document.cells[1]
    assert any("neighbours" in text for text in cell.warnings)
    assert cell.settings["self_check"]["passed"] is False
    assert document.cells[0].settings["self_check"] == {"min_cosine": 1.0, "least": 0.9999, "passed": True}
    assert make_rows(document)[1].doubt == entry["reason"]


def test_a_resumed_run_keeps_and_extends_the_comparison(bending: None, tmp_path: Path) -> None:
    first = run(spec("bent@cpu"), tmp_path)
    assert first.parity == []
    again = run(spec("bent@cpu", "bent@cpu?dtype=q4&share=3"), tmp_path)
    assert [cell.resumed for cell in again.cells] == [True, False]
    assert [entry["verdict"] for entry in again.parity] == ["reference", "differs"]
    for path in (tmp_path / "vectors").iterdir():
        path.unlink()
    later = run(spec("bent@cpu", "bent@cpu?dtype=q4&share=3"), tmp_path)
    assert later.parity == again.parity == load_result(tmp_path).parity


# the same without processes


def cell(provider: str, dtype: str = "fp32", target: str = "cpu", **more: Any) -> CellResult:
    fingerprint = {"model": "m", "dim": 16, "query_template": "{text}", "document_template": "{text}"}
    counts = more.pop("counts", {})
    settings = more.pop("settings", {})
    key = CellKey("d", provider, target, dtype, "flat", more.pop("pipeline", "vector"), "-")
    return CellResult(key, "ok", fingerprint={**fingerprint, **more}, counts=counts, settings=settings)


def made(document: ResultDocument, cells: list[CellResult]) -> ResultDocument:
    document.cells = cells
    return document


def store(folder: Path, *cells: CellResult, seed: int = 0, noise: float = 0.0, n: int = 30) -> None:
    for place, one in enumerate(cells):
        generator = np.random.default_rng(seed)
        docs, queries = generator.normal(size=(n, 16)), generator.normal(size=(4, 16))
        shift = np.random.default_rng(seed + place + 1)
        docs = docs + shift.normal(scale=noise or 1e-9, size=docs.shape)
        save_vectors(vector_file(folder, one.key), docs, queries)


def shown(document: ResultDocument, folder: Path) -> list[tuple[str, str]]:
    return [(e["provider"], e["verdict"]) for e in compare_variants(document, folder)]


def test_the_reference_is_fp32_on_a_cpu_and_failing_that_the_finest(
    document: ResultDocument, tmp_path: Path
) -> None:
    cells = [cell("a", "int8"), cell("b", "fp16"), cell("c", target="nvidia"), cell("d"), cell("e")]
    store(tmp_path, *cells)
    assert shown(made(document, cells), tmp_path)[0] == ("d", "reference")
    assert shown(made(document, cells[:3]), tmp_path)[0] == ("c", "reference")
    assert shown(made(document, cells[:2]), tmp_path)[0] == ("b", "reference")
    got = compare_variants(made(document, [cell("a", "int8"), cell("z", "q4")]), tmp_path)
    assert [e["fp32_reference"] for e in got] == [False, False]
    unstable = {"self_check": {"passed": False, "min_cosine": 0.5, "least": 0.9999}}
    odd = cell("d", settings=unstable)
    assert shown(made(document, [odd, cell("e")]), tmp_path) == [("e", "reference"), ("d", "differs")]


def test_one_space_makes_variants_of_other_names(document: ResultDocument, tmp_path: Path) -> None:
    cells = [cell("a"), cell("b", model="the same weights from a folder"), cell("c", model="another")]
    store(tmp_path, *cells[:2])
    store(tmp_path, cells[2], seed=5)
    assert shown(made(document, cells), tmp_path) == [("a", "reference"), ("b", "same")]


@pytest.mark.parametrize(
    ("more", "together"),
    [
        ({"dim": 8}, False),
        ({"query_template": "query: {text}"}, False),
        ({"document_template": "passage: {text}"}, False),
        ({"max_tokens": 128}, True),
        ({"max_tokens": 128, "counts": {"n_truncated_documents": 3}}, False),
    ],
)
def test_what_was_meant_to_differ_is_no_variant(
    document: ResultDocument, tmp_path: Path, more: dict[str, Any], together: bool
) -> None:
    cells = [cell("a", max_tokens=512), cell("b", **{"max_tokens": 512, **more})]
    store(tmp_path, *cells)
    assert bool(shown(made(document, cells), tmp_path)) == together


def test_results_are_compared_in_a_cell_that_both_have(document: ResultDocument, tmp_path: Path) -> None:
    cells = [cell("a"), cell("a", pipeline="hybrid"), cell("b", "int8", pipeline="hybrid")]
    for one, value in zip(cells, (0.9, 0.5, 0.25)):
        one.metrics["ndcg@10"] = MetricResult(value, None, None, [value] * 4)
    store(tmp_path, *cells)
    _, entry = compare_variants(made(document, cells), tmp_path)
    assert entry["difference"] == {"mean": -0.25, "low": -0.25, "high": -0.25}


def test_vectors_that_cannot_be_compared_are_said_to_be(document: ResultDocument, tmp_path: Path) -> None:
    cells = [cell("a"), cell("b")]
    store(tmp_path, cells[0])
    store(tmp_path, cells[1], n=29)
    _, entry = compare_variants(made(document, cells), tmp_path)
    assert (entry["verdict"], entry["reason"]) == (
        "not compared",
        "vectors of shape (29, 16) against (30, 16)",
    )
    save_vectors(
        vector_file(tmp_path, cells[1].key), np.ones((30, 16), np.float32), np.zeros((4, 16), np.float32)
    )
    assert compare_variants(document, tmp_path)[1]["reason"] == "no query was answered by both"
    vector_file(tmp_path, cells[1].key).write_bytes(b"cut short")
    assert compare_variants(document, tmp_path)[1]["reason"] == NOT_KEPT


def test_vectors_that_are_gone_leave_the_earlier_comparison(document: ResultDocument, tmp_path: Path) -> None:
    """Also where vectors alone told that both are one model."""
    cells = [cell("a"), cell("b", "q4", model="a folder"), cell("c", "int8")]
    store(tmp_path, *cells[:2])
    document.parity = compare_variants(made(document, cells[:2]), tmp_path)
    vector_file(tmp_path, cells[0].key).unlink()
    store(tmp_path, cells[2])
    got = compare_variants(made(document, cells), tmp_path)
    assert got[:2] == document.parity
    assert (got[2]["provider"], got[2]["verdict"], got[2]["reason"]) == ("c", "not compared", NOT_KEPT)


def test_one_provider_alone_has_no_entry(document: ResultDocument, tmp_path: Path) -> None:
    assert compare_variants(made(document, [cell("a")]), tmp_path) == []
    document.cells[0].status = "failed"
    assert compare_variants(document, tmp_path) == []


def test_large_vectors_go_when_the_run_is_complete(tmp_path: Path) -> None:
    small, large = tmp_path / "a.npy", tmp_path / "b.npy"
    save_vectors(small, np.ones((3, 4), np.float32), np.ones((1, 4), np.float32))
    with large.open("wb") as stream:
        stream.truncate(KEPT_BYTES + 1)
    drop_large(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy"]
    drop_large(tmp_path / "absent")
