"""What the README says is checked against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.command import provider_table
from rag_core.stores import STORES

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_provider_table_is_the_registry() -> None:
    found = re.search(r"<!-- providers:.*?-->\n(.*?)\n<!-- end -->", README, re.DOTALL)
    assert found, "the README has lost its provider table"
    written = [line for line in found[1].splitlines() if line]
    assert written == provider_table(), "run: bench providers --format md"


def test_the_store_table_is_that_of_the_code() -> None:
    for name, spec in STORES.items():
        extra = f"`{spec.extra}` " if spec.extra else ""
        assert f"| `{name}` | {extra}| {spec.note} |\n" in README


def test_the_library_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = re.search(r"## Use the winner\n\n```python\n(.*?)```", README, re.DOTALL)
    assert code
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], "README.md", "exec"), {})  # noqa: S102 - our own example
    assert capsys.readouterr().out.startswith("ferry hybrid")


def test_every_command_it_names_exists() -> None:
    from harness.cli import app, data_app

    names = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    names |= {f"data {c.name or c.callback.__name__}" for c in data_app.registered_commands if c.callback}
    named = {m.strip() for m in re.findall(r"`bench ((?:data )?[a-z-]+)", README)}
    assert named <= names
    assert {"run", "show", "report", "diff", "providers", "doctor"} <= named


def test_no_placeholder_is_left() -> None:
    assert not re.findall(r"\b[A-Z]+_(?:TABLE|HYBRID|VECTOR)\b", README)
