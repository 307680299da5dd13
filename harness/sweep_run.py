"""A sweep under way: one fresh process per variant and per reranker, its events taken in as they come."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.datasets import Dataset, absolute_data
from harness.processes import measuring_process
from harness.sweep_agreement import judge_points, reference_of, vector_folder
from harness.sweep_plan import SweepSpec, Variant
from harness.sweep_result import Depth, Point, PoolResult, SweepDocument, VariantResult
from harness.sweep_worker import REFERENCE

__all__ = ["POOL", "VECTORS", "WORK", "OnEvent", "SweepEvent", "SweepRun"]

WORK, VECTORS, POOL = ".work", ".vectors", "pool.json"


@dataclass(frozen=True, slots=True)
class SweepEvent:
    """What happens during a sweep.

    ``kind`` is ``start``, ``progress``, ``point``, ``depth``, ``kept``, ``failed`` or ``skipped``; the
    last four stand for the variant or reranker ``piece`` as a whole.
    """

    kind: str
    label: str
    stage: str = ""
    done: int = 0
    total: int = 0
    point: Point | None = None
    depth: Depth | None = None
    piece: VariantResult | PoolResult | None = None


OnEvent = Callable[[SweepEvent], None]


class SweepRun:
    """Fills in a document, which is written after every finished point."""

    def __init__(
        self, spec: SweepSpec, dataset: Dataset, document: SweepDocument, out: Path, on_event: OnEvent
    ) -> None:
        self._spec, self._dataset, self._document = spec, dataset, document
        self._out, self._say = out, on_event
        (out / WORK).mkdir(parents=True, exist_ok=True)

    def speed(
        self,
        variants: Sequence[Variant],
        skipped: Sequence[tuple[Variant, str]],
        old: SweepDocument | None,
    ) -> None:
        """Measure every variant that is not kept; judge all points against their references."""
        found = self._document.variants
        kept = {v.label: v for v in old.variants if v.complete} if old else {}
        fp32 = {v.group for v in variants if v.dtype == "fp32"}
        for variant in variants:
            known = kept.get(variant.label)
            # one that was only held against itself is measured again once there is an fp32 variant
            if known is not None and not (variant.group in fp32 and known.dtype != "fp32" and _alone(known)):
                known.resumed = True
                found.append(known)
            else:
                found.append(VariantResult(variant.label, variant.group, variant.target, variant.dtype))
        for variant, reason in skipped:
            made = VariantResult(
                variant.label, variant.group, variant.target, variant.dtype, "skipped", reason
            )
            found.append(made)
            self._say(SweepEvent("skipped", variant.label, piece=made))
        self._need_references(found)
        self._document.write(self._out)
        for result in found:
            if result.resumed:
                self._say(SweepEvent("kept", result.label, piece=result))
            elif result.status == "running":
                self._variant(result)
                self._judge()
                self._document.write(self._out)
                self._tell(result)

    def _need_references(self, found: Sequence[VariantResult]) -> None:
        """Measure a kept fp32 variant again where its vectors are gone and another needs them."""
        for result in found:
            others = [v for v in found if v.group == result.group and v.status == "running"]
            gone = not (vector_folder(self._out, result) / REFERENCE).exists()
            if result.resumed and result.dtype == "fp32" and others and gone:
                result.resumed, result.status, result.points = False, "running", []

    def _variant(self, result: VariantResult) -> None:
        """Run the process of ``result``; one that dies at a batch size is started again without that one."""
        shutil.rmtree(vector_folder(self._out, result), ignore_errors=True)
        sizes: list[int | None] = list(self._spec.batch_sizes) or [None]
        while sizes:
            here: dict[str, Any] = {}

            def take(event: Mapping[str, Any], here: dict[str, Any] = here) -> None:
                if event["event"] == "variant":
                    for name, value in event["values"].items():
                        setattr(result, name, value)
                elif event["event"] == "point":
                    result.put(Point(**event["values"]))
                    self._document.write(self._out)
                elif "at" in event:
                    here["at"] = event["at"]

            values = {
                "label": result.label,
                "batch_sizes": sizes,
                "vectors": str(vector_folder(self._out, result)),
            }
            reason = self._process("sweep", result.label, values, take)
            if not reason or {point.batch_size for point in result.points} >= set(sizes):
                break
            at = here.get("at", "nowhere")
            if at not in sizes:
                result.status, result.reason = "failed", reason
                return
            result.put(Point(at, "failed", reason))
            sizes = [size for size in sizes if size != at]
        able = [point for point in result.points if point.status == "ok"]
        result.status = "ok" if able else "failed"
        if not able:
            result.reason = result.points[0].reason if result.points else "nothing was measured"

    def _judge(self) -> None:
        """Agreement of all points whose vectors are at hand; a later variant may be a better reference."""
        for variant in self._document.variants:
            if variant.status == "ok" and not variant.resumed:
                reference = reference_of(variant, self._document.variants, self._out)
                judge_points(variant, reference, self._dataset, self._spec, self._out)

    def _tell(self, result: VariantResult) -> None:
        for point in result.points:
            self._say(SweepEvent("point", result.label, point=point))
        if result.status == "failed":
            self._say(SweepEvent("failed", result.label, piece=result))

    def pool(self, old: SweepDocument | None) -> None:
        """Freeze the fused lists, or take the frozen ones again, and measure every reranker on them."""
        file = self._out / POOL
        kept: dict[str, PoolResult] = {}
        if old and old.pool and file.exists() and old.pool.get("sha256") == _sha256(file):
            self._document.pool = old.pool
            kept = {result.label: result for result in old.rerankers if result.status == "ok"}
        for label in self._spec.rerankers:
            result = kept.get(label) or PoolResult(label)
            result.resumed = label in kept
            self._document.rerankers.append(result)
        if self._document.pool is None:
            found: dict[str, Any] = {}
            values = {"label": self._spec.pool_provider, "pool": str(file)}
            reason = self._process(
                "sweep-pool", "candidate pool", values, lambda event: found.update(event.get("values", {}))
            )
            if reason:
                for result in self._document.rerankers:
                    result.status, result.reason = "failed", f"no candidate pool: {reason}"
                    self._say(SweepEvent("failed", result.label, piece=result))
                return
            self._document.pool = {**found, "sha256": _sha256(file)}
        for result in self._document.rerankers:
            if result.resumed:
                self._say(SweepEvent("kept", result.label, piece=result))
            else:
                self._reranker(result, file)
            self._document.write(self._out)

    def _reranker(self, result: PoolResult, file: Path) -> None:
        def take(event: Mapping[str, Any]) -> None:
            if event["event"] == "reranker":
                for name, value in event["values"].items():
                    setattr(result, name, value)
            elif event["event"] == "depth":
                depth = Depth(**event["values"])
                result.put(depth)
                self._document.write(self._out)
                self._say(SweepEvent("depth", result.label, depth=depth))

        reason = self._process(
            "sweep-reranker", result.label, {"label": result.label, "pool": str(file)}, take
        )
        result.status, result.reason = ("failed", reason) if reason else ("ok", None)
        if reason:
            self._say(SweepEvent("failed", result.label, piece=result))

    def _process(
        self, kind: str, label: str, values: Mapping[str, Any], take: Callable[[Mapping[str, Any]], None]
    ) -> str:
        """Run one measuring process and hand over its events; why it failed, or an empty string."""
        name = f"{kind}-{hashlib.sha256(label.encode()).hexdigest()[:12]}"
        shared = {
            "kind": kind,
            "spec": self._spec.as_dict(),
            "data": absolute_data(self._spec.data),
            "work": str(self._out / WORK),
        }
        self._say(SweepEvent("start", label))
        path = self._out / WORK / f"{name}.job.json"
        with measuring_process({**shared, **values}, path, self._spec.threads) as measuring:
            for event in measuring:
                if event["event"] == "progress":
                    self._say(SweepEvent("progress", label, event["stage"], event["done"], event["total"]))
                take(event)
        return measuring.failure

    def tidy(self) -> None:
        """Leave only the vectors that variants of a later sweep into this folder are held against."""
        shutil.rmtree(self._out / WORK, ignore_errors=True)
        keep = {vector_folder(self._out, v) for v in self._document.variants if v.dtype == "fp32"}
        for folder in (self._out / VECTORS).glob("*"):
            if folder not in keep:
                shutil.rmtree(folder, ignore_errors=True)
            for file in folder.glob("batch-*.npy"):
                file.unlink()


def _alone(variant: VariantResult) -> bool:
    return any((point.agreement or {}).get("itself") for point in variant.points)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
