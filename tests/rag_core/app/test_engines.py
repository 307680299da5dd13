"""Option ``--engine`` of `rag ingest`: what does not go together is refused before anything is loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rag_core.app import commands
from rag_core.app.engines import check_engine, engine_for
from rag_core.app.settings import Asked, Engine
from rag_core.errors import (
    InvalidArgumentError,
    MissingExtraError,
    ProviderUnavailableError,
    UnknownNameError,
)


def asked(tmp_path: Path, engine: Engine, **more: float) -> Asked:
    return Asked(tmp_path / "i", provider="fake", engine=engine, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "engine, words",
    [
        (Engine("local", address="here:1"), "--address here:1 is of a cluster; add --engine ray"),
        (Engine("local", workers=2), "--workers 2 is of a cluster"),
        (Engine("local", provider="fake"), "--worker-provider fake is of a cluster"),
    ],
)
def test_options_of_a_cluster_without_one(tmp_path: Path, engine: Engine, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        check_engine(asked(tmp_path, engine), None)


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'rays'; did you mean 'ray'"):
        check_engine(asked(tmp_path, Engine("rays")), None)


def test_no_worker_keeps_a_budget(tmp_path: Path) -> None:
    for one in (asked(tmp_path, Engine("ray"), max_usd=1.0), asked(tmp_path, Engine("ray"))):
        with pytest.raises(InvalidArgumentError, match="a budget"):
            check_engine(one, 2.0)


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "a.txt").write_text("alpha")
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[ray\]'"):
        commands.ingest(tmp_path / "a.txt", asked(tmp_path, Engine("ray")), print, lambda *step: None)
    assert not (tmp_path / "i").exists()


def test_this_process_needs_no_engine(tmp_path: Path) -> None:
    check_engine(asked(tmp_path, Engine()), 1.0)
    with engine_for(asked(tmp_path, Engine()), ["fake"]) as engine:
        assert engine is None


@pytest.mark.stores_external
def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def refuse(*args: object, **options: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ray, "init", refuse)
    (tmp_path / "a.txt").write_text("alpha")
    with pytest.raises(
        ProviderUnavailableError,
        match=r"no cluster answers at '127.0.0.1:1': nobody there; start one: ray start",
    ):
        commands.ingest(
            tmp_path / "a.txt", asked(tmp_path, Engine("ray", "127.0.0.1:1")), print, lambda *step: None
        )
