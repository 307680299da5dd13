"""An index opened to be asked, in this process."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rag_core import registry
from rag_core.app.commands import ingest
from rag_core.app.searching import Searcher, search
from rag_core.app.settings import Asked
from rag_core.errors import IdentityMismatchError, InvalidArgumentError
from rag_core.protocols import Target
from rag_core.registry import RERANKERS, Spec, load_plugins

GO = threading.Event()


class Stuck:
    name = model = fingerprint = "stuck"
    target: Target = "cpu"

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        GO.wait(60)
        return [1.0] * len(candidates)


def load_stuck(spec: Spec) -> Stuck:
    return Stuck()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a reranker that does not answer before the test ends."""
    load_plugins()
    monkeypatch.setattr(RERANKERS, "_specs", dict(RERANKERS._specs))
    RERANKERS.add(Spec("stuck", "stuck", "cpu", 0, "here:stuck", auto=False))
    real = registry.load_attribute
    monkeypatch.setattr(
        registry, "load_attribute", lambda path: load_stuck if path == "here:stuck" else real(path)
    )
    GO.clear()
    yield "stuck"
    GO.set()


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("EMBED", "RERANK"):
        monkeypatch.delenv(f"RAG_{kind}_PROVIDER", raising=False)
    for service in ("COHERE", "JINA", "VOYAGE"):
        monkeypatch.delenv(f"{service}_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


def quiet(*anything: Any) -> None:
    return


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "index"))


def test_a_late_reranker_leaves_the_fused_order(index: Path, stuck: str) -> None:
    asked = Asked(index, reranker=stuck, search={"rerank_timeout_s": 0.05})
    found = search("ferry island", [], asked)
    plain = search("ferry island", [], Asked(index, rerank=False))
    assert [hit.document.doc_id for hit in found] == [hit.document.doc_id for hit in plain]
    assert found[0].source == "hybrid"
    assert any("longer than its limit of 0.05 s" in warning for warning in found.warnings)


def test_the_limit_of_the_option_the_file_and_the_caller(index: Path, stuck: str) -> None:
    def told(default: float | None = None, **options: Any) -> str:
        searcher = Searcher(Asked(index, reranker=stuck, search=options), default)
        found = searcher("ferry island")
        searcher.close()
        return found.warnings[-1]

    assert "limit of 0.03 s" in told(0.03)
    Path("rag.toml").write_text("[rerank]\ntimeout_s = 0.02\n")
    assert "limit of 0.02 s" in told(0.03)
    assert "limit of 0.01 s" in told(0.03, rerank_timeout_s=0.01)
    with pytest.raises(InvalidArgumentError, match="rerank_timeout_s is 0"):
        told(rerank_timeout_s=0)


def test_a_new_version_of_the_index_is_seen(index: Path, documents: Path) -> None:
    searcher = Searcher(Asked(index))
    try:
        assert "lighthouse" not in searcher("lighthouse").hits[0].document.text
        (documents / "tower.txt").write_text("The lighthouse can be climbed in summer.")
        ingest(documents, Asked(index), quiet, quiet)
        assert "lighthouse" in searcher("lighthouse", top_k=1).hits[0].document.text
    finally:
        searcher.close()


def test_warming_up_makes_the_first_calls_and_survives_one_that_fails(index: Path) -> None:
    said: list[str] = []
    stages: list[str] = []
    searcher = Searcher(Asked(index, reranker="fake-overlap"), 10.0)
    searcher.warmup(lambda stage, done, total: stages.append(stage), said.append)
    searcher.close()
    assert (said, "ready" in stages) == ([], True)
    searcher = Searcher(Asked(index, provider="fake?fail_role=query"))
    searcher.warmup(None, said.append)
    assert len(said) == 1
    assert "is not ready" in said[0]
    assert searcher("ferry").degraded
    searcher.close()


def test_the_languages_of_the_documents_are_held_against_the_reranker(
    documents: Path, tmp_path: Path
) -> None:
    for number in range(3):
        text = "O barco não sai da ilha quando há muito vento, e os passageiros ficam à espera.\n"
        (documents / f"{number}.txt").write_text(f"{text}{number}")
    asked = Asked(tmp_path / "i", provider="fake", reranker="maxsim")
    ingest(documents, asked, quiet, quiet)
    searcher = Searcher(asked)
    searcher.close()
    assert searcher.warnings == [
        "reranker maxsim is made for en; the documents also have pt, where it loses precision"
    ]


def test_another_provider_is_refused_before_anything_is_embedded(index: Path) -> None:
    with pytest.raises(IdentityMismatchError, match=r"rag rebuild --index .* --provider fake-jina"):
        Searcher(Asked(index, provider="fake-jina"))
