"""What the guide says is checked against the code, and its examples are run."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rag_core.app import cli
from rag_core.listing import price_table, width_table

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "embeddings-and-rerank.md").read_text(encoding="utf-8")
#: Names of variables in the code that stand beside no call which reads the environment.
NAMES = re.compile(
    r"(?:RAG|HF|OLLAMA|OPENAI|COHERE|VOYAGE|JINA|FASTEMBED|TRANSFORMERS|OMP|MKL|OPENBLAS|RAYON|LANCEDB)_[A-Z0-9_]+"
)
#: Read to describe the machine in a result, and never to decide anything.
DESCRIBED = {"OPENBLAS_CORETYPE"}


@pytest.mark.parametrize("name, table", [("widths", width_table), ("prices", price_table)])
def test_a_table_is_that_of_the_code(name: str, table: Callable[[], list[str]]) -> None:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n?<!-- end -->", GUIDE, re.DOTALL)
    assert found, f"the guide has lost its table of {name}"
    assert found[1].splitlines() == table(), f"run: rag providers --format {name}"


def _read_by(tree: ast.AST) -> set[str]:
    """Names of environment variables in a module: upper-case texts of known families, and whatever is asked
    of something called env or environ."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMES.fullmatch(node.value):
            names.add(node.value)
        asked, key = None, None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            asked, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Subscript):
            asked, key = node.value, node.slice
        if asked is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
            of = getattr(asked, "attr", getattr(asked, "id", ""))
            if of in ("env", "environ") and key.value.isupper():
                names.add(key.value)
    return names


def test_every_environment_variable_is_named() -> None:
    read = set()
    for package in ("rag_core", "providers", "harness"):
        for file in (ROOT / package).rglob("*.py"):
            read |= _read_by(ast.parse(file.read_text(encoding="utf-8")))
    table = GUIDE.partition("## Environment variables")[2]
    named = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", table)) - {"PATH"}
    assert {"RAG_EMBED_PROVIDER", "COHERE_API_KEY", "SOURCE_DATE_EPOCH", "TERM"} <= read
    assert not read - DESCRIBED - named, "the guide lacks these"
    assert not named - read, "the guide names what nothing reads"


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "ferry.md").write_text("# Ferry\n\nThe ferry leaves Old Quay at nine.\n", encoding="utf-8")
    (folder / "pool.md").write_text("# Pool\n\nThe pool is closed on Mondays.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "true")
    for name in ("RAG_EMBED_PROVIDER", "RAG_RERANK_PROVIDER", "RAG_PROVIDER_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return folder


def _with_stand_ins(text: str) -> str:
    """The real models would take seconds to load; what is shown holds for any."""
    return re.sub(r"(?<![\w-])(e5-small|use-multilingual)(?![\w-])", r"fake-\1", text)


def test_its_commands_and_programs_run(
    notes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order in which they stand, as one reader would try them."""
    commands = re.findall(r"^\$ (rag .*?)(?:\s+#.*)?$", GUIDE, re.MULTILINE)
    assert [line.split()[1] for line in commands] == ["ingest", "search", "search", "stats", "rebuild"]
    said = []
    for line in commands:
        monkeypatch.setattr(sys, "argv", shlex.split(_with_stand_ins(line)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        said.append(out)
    assert "2 added" in said[0]
    assert "ferry.md" in said[1]
    assert [hit["metadata"]["source"] for hit in json.loads(said[2])["hits"]] == ["ferry.md"]
    programs = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(programs) == 3
    shared: dict[str, object] = {}
    for code in programs:
        exec(compile(_with_stand_ins(code), "embeddings-and-rerank.md", "exec"), shared)  # noqa: S102
    out = capsys.readouterr().out
    assert "ferry.md Ferry" in out
    assert "1 added; 3 in all" in out
    assert "warning" not in out


def test_the_measuring_command_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Its options exist; running it takes minutes."""
    from typer.main import get_command

    from harness.cli import app

    run = get_command(app).commands["run"]  # type: ignore[attr-defined]
    known = {name for parameter in run.params for name in parameter.opts}
    for line in re.findall(r"bench run (.*)", GUIDE):
        assert set(re.findall(r"--[a-z-]+", line)) <= known
    for name in re.findall(r"`(--[a-z-]+)", GUIDE):
        options = {o for c in get_command(cli.app).commands.values() for p in c.params for o in p.opts}  # type: ignore[attr-defined]
        assert name in options | known, name


def test_the_settings_of_an_mcp_client_start_the_server() -> None:
    from typer.main import get_command

    found = re.search(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    for server in json.loads(found[1])["mcpServers"].values():
        assert server["command"] == "rag"
        name, *options = server["args"]
        command = get_command(cli.app).commands[name]  # type: ignore[attr-defined]
        given = command.make_context(name, options).params
        assert str(given["index"]).startswith("/")
        assert given["rerank_timeout"] == 10


def test_it_is_linked_and_shipped() -> None:
    assert "(docs/embeddings-and-rerank.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert '"docs"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("sdist]")[2]
