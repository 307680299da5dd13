"""The page's tables are the model's output, and the model's arithmetic."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def scale_model() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield _load()


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale_model", ROOT / "benchmarks" / "scale_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_holds_what_the_script_prints(scale_model: ModuleType) -> None:
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert scale_model.whole_page(page) == page, "run: python benchmarks/scale_model.py --write"
    assert scale_model.tables(scale_model.read_inputs()) in page
    assert "LanceDB IVF-PQ" in page


def test_every_input_says_where_it_is_from(scale_model: ModuleType) -> None:
    for name, one in scale_model.read_inputs().items():
        assert one["kind"] in ("asked", "measured", "public", "assumed"), name
        assert one["source"], name


def test_the_rate_on_cpus_is_that_of_the_readme(scale_model: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    row = next(line for line in readme.splitlines() if line.strip().startswith("minilm · vector"))
    assert float(row.split()[-3]) == scale_model.read_inputs()["cpu_passages_per_s"]["value"]


def test_arithmetic_by_hand(scale_model: ModuleType) -> None:
    values = {name: float(one["value"]) for name, one in scale_model.read_inputs().items()}
    values |= {"passages": 1000, "gpus": 2, "passages_per_gpu_s": 10, "gpu_utilisation": 0.5}
    values |= {"usd_per_gpu_s": 0.01, "bytes_per_row": 700, "text_bytes": 300, "rows_per_shard": 300}
    values |= {"query_cpu_s": 0.5, "queries_per_s": 3, "core_utilisation": 0.5, "cores_per_node": 16}
    values |= {"index_cpu_s": 36, "measured_rows": 10}
    found = {name: value for name, _, value, _ in scale_model.model(values)}
    assert found["embedding rate"] == 10
    assert found["time to embed"] == pytest.approx(100 / 3600)
    assert found["GPU cost"] == pytest.approx(2.0)
    assert found["stored"] == pytest.approx(1e-6)
    assert found["shards"] == 4
    assert found["processor time a query"] == 2
    assert found["cores to search"] == 12
    assert found["nodes to search"] == 1
    assert found["indexing"] == pytest.approx(1)
    assert found["… for the query's p95"] ** 4 == pytest.approx(0.95)


@pytest.mark.parametrize(
    "value, text",
    [(0.99312, "0.9931"), (100, "100"), (43440.4, "43,400"), (1e9, "1,000,000,000"), (511.1, "511")],
)
def test_shown(scale_model: ModuleType, value: float, text: str) -> None:
    assert scale_model.shown(value) == text
