"""The command as a user types it, and a folder of documents to index."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rag_core.app import cli

ROOT = Path(__file__).resolve().parents[3]


def environment(**variables: str) -> dict[str, str]:
    """Without keys and settings of whoever runs the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAG_") and not k.endswith("_API_KEY")}
    plain = {"PYTHONPATH": str(ROOT), "RAG_PLUGINS": "providers:register", "CI": "true", "TERM": "dumb"}
    return {**kept, **plain, **variables}


class RagProcess:
    """``rag_process(*arguments, cwd=None, **variables)`` runs the command to its end in a process."""

    command = (sys.executable, "-c", "from rag_core.app.cli import main; main()")
    environment = staticmethod(environment)

    def __call__(
        self, *arguments: object, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        command, env = [*self.command, *map(str, arguments)], environment(**variables)
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def rag_process() -> RagProcess:
    return RagProcess()


@pytest.fixture
def rag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``rag(*arguments)`` runs the command to its end in this process, in ``tmp_path``."""
    for variable in set(os.environ) - set(environment()):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("CI", "true")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["rag", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(sys.argv, int(ended.value.code or 0), out, err)

    return run


def write_documents(folder: Path) -> Path:
    """A folder with a text, a markdown and an HTML file."""
    (folder / "deep").mkdir(parents=True)
    (folder / "ferry.md").write_text(
        "# The island ferry\n\n## Timetable\n\nThe ferry to the island leaves at nine in the morning.\n\n"
        "## Tickets\n\nTickets are sold on board. Children travel free.\n",
        encoding="utf-8",
    )
    (folder / "museum.txt").write_text("The museum of clocks is closed on Mondays.\n", encoding="utf-8")
    (folder / "deep" / "library.html").write_text(
        "<html><head><title>Library</title></head><body><h1>Opening hours</h1>"
        "<p>The library opens at ten and lends books for three weeks.</p></body></html>",
        encoding="utf-8",
    )
    return folder


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "documents")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, rag_process: RagProcess) -> Path:
    """An index of :func:`write_documents` with the fake provider; not to be changed."""
    folder = tmp_path_factory.mktemp("rag")
    source, index = write_documents(folder / "documents"), folder / "index"
    done = rag_process("ingest", source, "--index", index, "--provider", "fake")
    assert done.returncode == 0, done.stderr
    return index
