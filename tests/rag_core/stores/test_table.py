"""Stores by name, where their packages are not installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rag_core.errors import InvalidArgumentError, MissingExtraError, StoreError, UnknownNameError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import load_attribute
from rag_core.stores import STORES, check_store, create_store, open_store
from rag_core.stores.identity import write_identity

IDENTITY = Fingerprint("fake", "m", "1", 4, "fp32", "mean")
EXTERNAL = [name for name, spec in STORES.items() if spec.requires]


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, STORES[name].requires, None)


@pytest.mark.parametrize("name", EXTERNAL)
def test_a_missing_package_names_the_extra_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, name)
    for call in (lambda: create_store(name, tmp_path / "s", IDENTITY), lambda: check_store(name)):
        with pytest.raises(MissingExtraError, match=rf"pip install 'rag-core-bench\[{name}\]'"):
            call()
    assert not (tmp_path / "s").exists()
    write_identity(tmp_path, name, IDENTITY, {})
    with pytest.raises(MissingExtraError, match=STORES[name].requires):
        open_store(name, tmp_path, IDENTITY)


@pytest.mark.parametrize("name", EXTERNAL)
def test_a_folder_without_a_store_is_named_before_the_package(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, name)
    with pytest.raises(StoreError, match=f"holds no {name} store"):
        open_store(name, tmp_path)


def test_every_store_is_a_class_with_its_own_name_and_extra() -> None:
    pyproject = Path(__file__).resolve().parents[3] / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    for name, spec in STORES.items():
        kind = load_attribute(spec.load)
        assert callable(kind.create)
        if spec.requires:
            assert (kind.name, kind.package, kind.extra) == (name, spec.requires, spec.extra)
            assert any(line.startswith(f"{spec.requires}>=") for line in extras[spec.extra])


def test_looking_at_the_table_imports_no_database() -> None:
    code = (
        "import sys; from rag_core.stores import STORES, check_store\n"
        "for name in STORES:\n"
        "    try: check_store(name)\n"
        "    except ImportError: pass\n"
        "print(sorted({s.requires for s in STORES.values() if s.requires} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("lancedbb", UnknownNameError, "lancedb"),
        ("flat?index=hnsw", InvalidArgumentError, "no option 'index'; accepted: scan"),
        ("flat?scan=fp8", InvalidArgumentError, "scan is 'fp8'; accepted: exact, int8"),
        ("flat@cpu", InvalidArgumentError, "accepted: name"),
        ("lancedb?index=hnsw", InvalidArgumentError, "auto, flat, hnsw_sq, ivf_pq"),
        ("lancedb?size=1", InvalidArgumentError, "no option 'size'; accepted: index"),
        ("chroma?ef_search=1.5", InvalidArgumentError, "ef_search is '1.5'; accepted: a whole number from 2"),
    ],
)
def test_bad_names_and_options_are_refused_first(
    name: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    for call in (lambda: check_store(name), lambda: create_store(name, tmp_path / "s", IDENTITY)):
        with pytest.raises(error, match=words):
            call()
    assert not (tmp_path / "s").exists()
