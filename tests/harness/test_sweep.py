"""Whole sweeps in real processes: points, agreement, failures, deaths, what is kept, the frozen pool."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.results import ResultError
from harness.runner import ResultConflictError
from harness.sweep import SweepEvent, sweep
from harness.sweep_plan import SweepSpec
from harness.sweep_result import SweepDocument, load_sweep
from rag_core.errors import UnknownNameError
from rag_core.registry import EMBEDDERS, RERANKERS

#: `planted` takes a batch size and can be told to fail, die or answer wrongly at one.
PLUGIN = """
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from providers.fake import FakeEmbedder, load as load_fake, load_overlap
from rag_core.registry import Spec

LOG = Path(os.environ["PLANTED_LOG"])

class Planted(FakeEmbedder):
    batch_size = 0
    plans = {}

    def embed(self, texts, *, role="document"):
        out = super().embed(texts, role=role)
        if role == "query":
            return out
        size = self.batch_size
        assert len(texts) <= max(1, size) or not size, (len(texts), size)
        if size and size == int(self.plans.get("die_at", 0)):
            os._exit(7)
        if size and size == int(self.plans.get("raise_at", 0)):
            raise MemoryError(f"no room for {size} rows")
        if size and size == int(self.plans.get("wrong_at", 0)):
            return np.ascontiguousarray(out[:, ::-1])
        if size and size == int(self.plans.get("nan_at", 0)):
            return out * np.nan
        noise = float(self.plans.get("noise", 0))
        out = out + noise * np.roll(out, 1, axis=1)
        return np.ascontiguousarray(out / np.linalg.norm(out, axis=1, keepdims=True), np.float32)

def load(spec, *, dtype="fp32", dim="64", call_s="0", **plans):
    with LOG.open("a") as stream:
        stream.write(f"{spec.name}@{spec.target} {dtype}\\n")
    made = load_fake(Spec("fake", "hash", "cpu", int(dim), ""), call_s=call_s)
    made.__class__ = Planted
    made._fingerprint = replace(made._fingerprint, dtype=dtype)
    made.plans, made.runtime = plans, {"device_memory_bytes": 1_000_000}
    return made

class Reverse:
    name, model, target, fingerprint = "reverse", "reverse", "cpu", "reverse/1"

    def is_available(self):
        return True

    def rerank(self, query, candidates):
        with LOG.open("a") as stream:
            stream.write(f"rerank {len(candidates)}\\n")
        return [float(i) for i in range(len(candidates))]

def load_reverse(spec):
    return Reverse()

def load_broken(spec):
    raise RuntimeError("the weights are upside down")

def register(registries):
    for target in ("cpu", "mlx"):
        registries.embedders.add(Spec("planted", "planted", target, 64, "planted:load"))
    registries.embedders.add(
        Spec("absent", "absent", "cpu", 64, "planted:load", requires=("no_such_package",), extra="onnx"),
    )
    registries.rerankers.add(
        Spec("reverse", "reverse", "cpu", 0, "planted:load_reverse"),
        Spec("broken", "broken", "cpu", 0, "planted:load_broken"),
    )
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plug-in on the path of this process and of those it starts; returns the log of what was loaded."""
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "planted.py").write_text(PLUGIN)
    log = tmp_path / "loads.log"
    log.touch()
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{root}")
    monkeypatch.setenv("PLANTED_LOG", str(log))
    monkeypatch.setenv("RAG_PLUGINS", "providers:register,planted:register")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("rag_core.registry._loaded", set())
    for registry in (EMBEDDERS, RERANKERS):
        monkeypatch.setattr(registry, "_specs", dict(registry._specs))
    sys.modules.pop("planted", None)
    return log


def mini(*providers: str, **settings: Any) -> SweepSpec:
    made: dict[str, Any] = {"batch_sizes": (1, 4), "texts": 12, "rounds": 2, "query_samples": 5, **settings}
    return SweepSpec("mini", providers, **made)


def points(document: SweepDocument) -> dict[tuple[str, str], Any]:
    return {(v.label, p.name): p for v in document.variants for p in v.points}


def verdicts(document: SweepDocument) -> dict[tuple[str, str], str]:
    return {key: (point.agreement or {}).get("verdict", "-") for key, point in points(document).items()}


def test_a_variant_is_loaded_once_and_measured_at_every_batch_size(tmp_path: Path, planted: Path) -> None:
    events: list[SweepEvent] = []
    spec = mini("planted@cpu?call_s=0.02", batch_sizes=(1, 3, 12))
    document = sweep(spec, tmp_path / "out", on_event=events.append)
    assert planted.read_text().splitlines() == ["planted@cpu fp32"]
    (variant,) = document.variants
    assert (variant.status, variant.dtype, variant.target) == ("ok", "fp32", "cpu")
    assert [point.batch_size for point in variant.points] == [1, 3, 12]
    assert [[len(calls) for calls in point.calls_s] for point in variant.points] == [[12, 12], [4, 4], [1, 1]]
    one, three, twelve = variant.points
    # 20 ms a call and nothing else: what a call costs is spread over its texts
    assert one.passages_per_s < three.passages_per_s < twelve.passages_per_s
    assert one.passages_per_s_low <= one.passages_per_s <= one.passages_per_s_high
    assert one.p50_s >= 0.02
    assert (one.p95_s is not None, three.p95_s, twelve.p95_s) == (True, None, None)
    assert one.n_tokens > one.n_texts == 12
    assert one.tokens_per_s == pytest.approx(one.passages_per_s * one.n_tokens / 12)
    assert one.device_bytes == 1_000_000
    assert 0 < one.peak_rss_bytes <= twelve.peak_rss_bytes
    assert len(variant.query_s) == 5
    assert variant.speed["query_p50_s"] >= 0.02
    assert set(verdicts(document).values()) == {"same"}
    assert [event.kind for event in events if event.point] == ["point"] * 3
    raw = (tmp_path / "out" / "sweep.json").read_text()
    json.loads(raw, parse_constant=pytest.fail)
    assert str(tmp_path) not in raw
    assert load_sweep(tmp_path / "out").as_dict() == document.as_dict()
    assert not (tmp_path / "out" / ".work").exists()


def test_without_batch_sizes_the_provider_batches_by_itself(tmp_path: Path) -> None:
    document = sweep(mini("fake", batch_sizes=()), tmp_path / "out")
    (point,) = document.variants[0].points
    assert (point.name, point.batch_size) == ("own", None)
    assert [len(calls) for calls in point.calls_s] == [1, 1]
    assert point.agreement["verdict"] == "same"


def test_dtypes_and_targets_are_held_against_fp32_on_the_cpu(
    tmp_path: Path, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_core.devices.why_not", lambda target: "no such device here")
    spec = mini("planted?noise=0.02", dtypes=("int8", "fp32"), targets=("mlx", "cpu", "nvidia"))
    document = sweep(spec, tmp_path / "out")
    found = {(v.target, v.dtype): v for v in document.variants}
    assert planted.read_text().splitlines() == ["planted@cpu fp32", "planted@cpu int8"]
    assert {v.status for (target, _), v in found.items() if target != "cpu"} == {"skipped"}
    assert "no such device here" in found["mlx", "fp32"].reason
    assert "no target 'nvidia'" in found["nvidia", "fp32"].reason
    reference = found["cpu", "fp32"]
    assert [p.agreement["reference"] for p in found["cpu", "int8"].points] == [reference.label] * 2
    assert [p.agreement["itself"] for p in found["cpu", "int8"].points] == [False] * 2
    assert [p.agreement["itself"] for p in reference.points] == [True] * 2
    assert not document.complete


def test_a_batch_size_that_changes_the_vectors_fails(tmp_path: Path, planted: Path) -> None:
    document = sweep(mini("planted?wrong_at=4", "planted?nan_at=4&dtype=int8"), tmp_path / "out")
    wrong, holed = (v.label for v in document.variants)
    assert verdicts(document) == {
        (wrong, "1"): "same",
        (wrong, "4"): "differs",
        (holed, "1"): "same",
        (holed, "4"): "differs",
    }
    assert "cosine" in points(document)[wrong, "4"].agreement["reason"]
    assert "not a number" in points(document)[holed, "4"].agreement["reason"]
    assert not points(document)[wrong, "4"].agrees
    assert document.variants[1].points[0].agreement["itself"]


def test_one_batch_size_may_fail_or_kill_and_the_others_go_on(tmp_path: Path, planted: Path) -> None:
    spec = mini("planted?raise_at=4", "planted?die_at=4", batch_sizes=(2, 4, 6))
    document = sweep(spec, tmp_path / "out")
    raised, died = document.variants
    assert [p.status for p in raised.points] == [p.status for p in died.points] == ["ok", "failed", "ok"]
    assert raised.points[1].reason == "MemoryError: no room for 4 rows"
    assert died.points[1].reason.startswith("the measuring process ended with status 7")
    assert {p.agreement["verdict"] for p in died.points if p.status == "ok"} == {"same"}
    assert (raised.status, died.status, document.status) == ("ok", "ok", "complete")
    assert planted.read_text().splitlines() == ["planted@cpu fp32"] * 3  # only the dead one was started again
    again = sweep(spec, tmp_path / "out")
    assert not any(variant.resumed for variant in again.variants)  # what failed is tried again


def test_a_variant_that_cannot_run_is_skipped_or_failed_with_its_reason(
    tmp_path: Path, planted: Path
) -> None:
    document = sweep(mini("absent", "planted?die_at=1", "planted?dim=nine", "fake"), tmp_path / "out")
    found = {v.label: v for v in document.variants}
    assert found["absent@cpu"].status == "skipped"
    assert "pip install 'rag-core-bench[onnx]'" in found["absent@cpu"].reason
    # the reference at batch size 1 is the first thing that is embedded
    assert found["planted@cpu?die_at=1"].points[0].status == "failed"
    assert found["planted@cpu?dim=nine"].status == "failed"
    assert "ValueError" in found["planted@cpu?dim=nine"].reason
    assert found["fake@cpu"].status == "ok"


def test_finished_variants_are_kept(tmp_path: Path, planted: Path) -> None:
    out = tmp_path / "out"
    first = sweep(mini("planted", dtypes=("fp32",)), out)
    again = sweep(mini("planted", dtypes=("fp32", "int8")), out)
    assert planted.read_text().splitlines() == ["planted@cpu fp32", "planted@cpu int8"]
    assert [v.resumed for v in again.variants] == [True, False]
    assert again.variants[0].points[0].calls_s == first.variants[0].points[0].calls_s
    assert again.variants[1].points[0].agreement["reference"] == "planted@cpu?dtype=fp32"
    assert again.resumed_from == [first.created]
    assert not any(v.resumed for v in sweep(mini("planted"), out, fresh=True).variants)


def test_a_reference_whose_vectors_are_gone_is_measured_again(tmp_path: Path, planted: Path) -> None:
    import shutil

    out = tmp_path / "out"
    sweep(mini("planted", dtypes=("fp32",)), out)
    shutil.rmtree(out / ".vectors")
    again = sweep(mini("planted", dtypes=("fp32", "int8")), out)
    assert [v.resumed for v in again.variants] == [False, False]
    assert not again.variants[1].points[0].agreement["itself"]


def test_a_variant_held_against_itself_is_measured_again_beside_fp32(tmp_path: Path, planted: Path) -> None:
    out = tmp_path / "out"
    alone = sweep(mini("planted", dtypes=("int8",)), out)
    assert alone.variants[0].points[0].agreement["itself"]
    both = sweep(mini("planted", dtypes=("int8", "fp32")), out)
    assert {v.dtype: v.resumed for v in both.variants} == {"fp32": False, "int8": False}
    assert {p.agreement["reference"] for v in both.variants for p in v.points} == {"planted@cpu?dtype=fp32"}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"texts": 6}, r"another settings \(texts: 12 / 6\)"),
        ({"batch_sizes": (1, 2)}, "another settings"),
        ({"data": "civic"}, "another data set"),
    ],
)
def test_other_settings_or_data_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    spec = mini("fake")
    sweep(spec, tmp_path / "out")
    with pytest.raises(ResultConflictError, match=words):
        sweep(replace(spec, **change), tmp_path / "out")


def test_figures_of_other_packages_are_not_kept(tmp_path: Path) -> None:
    document = sweep(mini("fake"), tmp_path / "out")
    document.environment["packages"]["numpy"] = "1.0"
    document.write(tmp_path / "out")
    with pytest.raises(ResultConflictError, match=r"package versions \(numpy 1\.0 / .*--fresh"):
        sweep(mini("fake"), tmp_path / "out")


def test_an_interrupted_sweep_keeps_what_it_finished(tmp_path: Path, planted: Path) -> None:
    def stop(event: SweepEvent) -> None:
        if event.kind == "start" and "int8" in event.label:
            raise KeyboardInterrupt

    spec = mini("planted", dtypes=("fp32", "int8"))
    with pytest.raises(KeyboardInterrupt):
        sweep(spec, tmp_path / "out", on_event=stop)
    halfway = load_sweep(tmp_path / "out")
    assert (halfway.status, [v.status for v in halfway.variants]) == ("interrupted", ["ok", "running"])
    assert [v.resumed for v in sweep(spec, tmp_path / "out").variants] == [True, False]


def test_names_are_checked_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'minilm'"):
        sweep(mini("minilmm"), tmp_path / "out")
    with pytest.raises(UnknownNameError, match="reranker 'nop'"):
        sweep(mini("fake", pools=(5,), rerankers=("nop",)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ResultError, match="bench sweep --out"):
        load_sweep(tmp_path / "out")


def pool_spec(*rerankers: str, **settings: Any) -> SweepSpec:
    return mini("fake", batch_sizes=(), pools=(2, 5), rerankers=rerankers, **settings)


def test_every_reranker_meets_the_same_frozen_pool(tmp_path: Path, planted: Path) -> None:
    out = tmp_path / "out"
    document = sweep(pool_spec("fake-overlap", "noop", "reverse", "broken"), out)
    assert document.variants == []  # nothing else was asked for
    found = {r.label: r for r in document.rerankers}
    assert (found["broken"].status, found["reverse"].status) == ("failed", "ok")
    assert "RuntimeError: the weights are upside down" in found["broken"].reason
    pool = json.loads((out / "pool.json").read_text())
    assert document.pool["depth"] == pool["depth"] == 5
    assert {len(ids) for ids in pool["rankings"].values()} <= {1, 2, 3, 4, 5}
    for first, other in zip(found["noop"].depths, found["reverse"].depths):
        assert first.before == other.before == first.after
        assert first.oracle == other.oracle
        assert other.oracle["ndcg@10"] >= max(first.after["ndcg@10"], other.after["ndcg@10"])
        assert first.difference["mean"] == 0.0
    two, five = found["reverse"].depths
    assert (two.depth, five.depth) == (2, 5)
    assert five.oracle["ndcg@10"] >= two.oracle["ndcg@10"]
    assert five.difference["mean"] == pytest.approx(five.after["ndcg@10"] - five.before["ndcg@10"])
    assert five.after != five.before  # the last comes first
    assert five.points_per_ms == pytest.approx(100 * five.difference["mean"] / (five.p50_s * 1000))
    assert len(two.samples_s) == len(five.samples_s) == document.pool["n_queries"]
    # quality from the deepest scores alone, times from calls at every depth
    calls = [line for line in planted.read_text().splitlines() if line.startswith("rerank")]
    assert calls.count("rerank 5") == 2 * document.pool["n_queries"]
    assert calls.count("rerank 2") == document.pool["n_queries"]


def test_a_frozen_pool_and_its_rerankers_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = sweep(pool_spec("noop"), out)
    before = (out / "pool.json").stat().st_mtime_ns
    again = sweep(pool_spec("noop", "fake-overlap"), out)
    assert [r.resumed for r in again.rerankers] == [True, False]
    assert again.pool == first.pool
    assert (out / "pool.json").stat().st_mtime_ns == before
    (out / "pool.json").write_text("{}")  # another pool: nothing measured on the old one may stand
    third = sweep(pool_spec("noop"), out)
    assert not third.rerankers[0].resumed
    assert third.pool["sha256"] == first.pool["sha256"]


def test_without_a_pool_every_reranker_fails_with_the_reason(tmp_path: Path) -> None:
    spec = replace(pool_spec("noop"), providers=("fake?fail_role=document",))
    document = sweep(spec, tmp_path / "out")
    assert document.rerankers[0].status == "failed"
    assert document.rerankers[0].reason.startswith("no candidate pool: ProviderError")
