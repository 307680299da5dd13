"""The command of a cell, read back by the command line itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.command import RunOptions
from harness.config import RunSpec
from harness.reproduce import command, run_command_of
from harness.results import CellKey, CellResult, ResultDocument

Factory = Callable[..., ResultDocument]


def parsed(text: str, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """The settings that `bench` makes of ``text``."""
    from harness import cli
    from harness import command as command_module

    seen: list[RunOptions] = []

    def keep(options: RunOptions, say: Any) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(command_module, "run_command", keep)
    words = shlex.split(text)
    assert words[0] == "bench"
    typer.main.get_command(cli.app).main(words[1:], standalone_mode=False)
    return seen[0].spec()


SETTINGS: list[dict[str, Any]] = [
    {},
    {"k": 50, "candidate_pool": 30, "rrf_k": 12.5, "weights": (2.0, 0.25), "analyser": "raw"},
    {"metrics": ("ndcg@5", "map@10"), "warmup": 0, "repeats": 4, "threads": 1, "seed": 7},
    {
        "lexical": "bm25?engine=numba",
        "scope": "speaker of it",
        "score_threshold": -1.5,
        "audit_prefixes": True,
    },
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_command_of_a_cell_measures_the_same_cell(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    document = factory(4)
    made = RunSpec(data="civic", providers=("fake", "e5-small@cpu"), baseline_only=True, **settings)
    document.spec = made.as_dict()
    for cell in document.cells:
        found = parsed(command(document, cell), monkeypatch)
        assert found.digest == made.digest
        assert found.pipelines == (cell.key.pipeline,)
        assert found.data == "civic"
        if cell.key.pipeline != "bm25":
            assert found.providers == (f"{cell.key.provider}@{cell.key.target}",)


def test_provider_store_reranker_and_fusion_are_named(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = factory(4)
    key = CellKey(
        "civic", "st:some/model?dtype=bf16", "nvidia", "bf16", "lancedb?index=hnsw_sq", "hybrid+rerank",
        "maxsim", "convex",
    )  # fmt: skip
    found = parsed(command(document, CellResult(key, "ok")), monkeypatch)
    assert found.providers == ("st:some/model@nvidia?dtype=bf16",)
    assert (found.stores, found.rerankers) == (("lancedb?index=hnsw_sq",), ("maxsim",))
    assert (found.pipelines, found.fusions) == (("hybrid+rerank",), ("convex",))


def test_the_command_of_the_whole_run(factory: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    document = factory(4)
    for made in (
        RunSpec(data="civic", providers=("fake", "e5-small@cpu", "minilm@cpu"), baseline_only=True,
                pipelines=("vector", "bm25", "hybrid")),
        RunSpec(data="civic", providers=("e5-small@cpu",), rerankers=("maxsim",), fusions=("rrf", "convex"),
                margins=("ndcg@10=0.01",), stores=("flat", "lancedb")),
        RunSpec(data="civic", providers=("fake",), pipelines=("vector",)),
    ):  # fmt: skip
        document.spec = made.as_dict()
        found = parsed(run_command_of(document), monkeypatch)
        # without the baseline nothing hangs on whether it would be the only cell of its provider
        assert replace(found, baseline_only=made.baseline_only) == made


def test_every_row_of_the_report_has_its_command(document: ResultDocument, tmp_path: Path) -> None:
    from harness.render.markdown import render

    text = render(document)
    assert text.rstrip().endswith("</details>")
    for cell in document.cells:
        assert f"      {command(document, cell)}\n" in text


def test_a_name_that_is_no_spec_string_stays_as_it_is(factory: Factory) -> None:
    document = factory(4)
    cell = document.cells[1]
    cell.key = replace(cell.key, provider="odd name!")
    assert "--provider 'odd name!" in command(document, cell)
