"""The built wheel, installed into an environment of its own, used from an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from harness.results import load_result

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment that holds the wheel; its dependencies are lent by this one.

    A line of a .pth file adds a folder to the path without reading the .pth files in it, so that the
    editable install of the checkout is not seen there.
    """
    home = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(purelib) / "lent.pth").write_text("\n".join(sorted(lent)) + "\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
    ]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, text=True)
    return home


def bench(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return script("bench", installed, cwd, *arguments)


def script(name: str, installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RAG_PLUGINS")}
    command = [str(installed / "bin" / name), *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**env, "CI": "true"}, capture_output=True, text=True, check=False
    )


def test_top_level_names_and_data_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"rag_core", "providers", "harness"}
    for needed in (
        "harness/fixtures/mini/corpus.jsonl",
        "harness/fixtures/mini/qrels/test.tsv",
        "harness/result.schema.json",
        "harness/render/assets/page.html",
        "harness/render/assets/report.css",
        "harness/render/assets/queries.js",
        "providers/data/bert_uncased_vocab.txt",
        "providers/data/NOTICE",
        "rag_core/data/prices.json",
        "rag_core/py.typed",
    ):
        assert needed in names
    assert not [name for name in names if "civic" in name or name.endswith(".pyc")]


def test_a_run_in_an_empty_folder_finds_the_mini_set(installed: Path, tmp_path: Path) -> None:
    done = bench(installed, tmp_path, "run", "--provider", "fake", "--out", "here")
    assert done.returncode == 0, done.stdout + done.stderr
    document = load_result(tmp_path / "here")
    assert document.name == "mini"
    assert {cell.status for cell in document.cells} == {"ok"}
    assert (tmp_path / "here" / "report.md").exists()
    assert "<title>mini" in (tmp_path / "here" / "report.html").read_text()


def test_the_packages_come_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "providers").mkdir()  # a folder of the user's own must not be taken for the package
    (tmp_path / "providers" / "__init__.py").write_text("raise ImportError('the wrong one')")
    done = bench(installed, tmp_path, "doctor")
    assert done.returncode == 0, done.stderr
    for package in ("rag_core", "providers", "harness"):
        line = next(line for line in done.stdout.splitlines() if line.split()[:1] == [package])
        assert Path(line.split()[1]).is_relative_to(installed.resolve())


def test_the_rag_command_indexes_and_searches(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ferry.md").write_text("# Ferry\n\nThe ferry to the island leaves at nine.\n")
    made = script("rag", installed, tmp_path, "ingest", "notes", "--index", "here", "--provider", "fake")
    assert made.returncode == 0, made.stderr
    done = script("rag", installed, tmp_path, "search", "ferry island", "--index", "here", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hits"][0]["metadata"]["source"] == "ferry.md"
