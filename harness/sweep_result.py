"""The document of a sweep: what its report, table and plots are made from. Strict JSON, versioned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from harness.results import read_document, strict, write_atomic

__all__ = [
    "FILE",
    "SWEEP_VERSION",
    "Depth",
    "Point",
    "PoolResult",
    "SweepDocument",
    "VariantResult",
    "load_sweep",
]

SWEEP_VERSION = 1
FILE = "sweep.json"
T = TypeVar("T")


@dataclass(slots=True)
class Point:
    """One batch size of one variant.

    Attributes:
        batch_size: texts a call; None for one call batched by the provider itself ("own").
        status: ``ok`` or ``failed``.
        reason: why it failed.
        calls_s: raw seconds, a list per round, a number per call.
        n_texts, n_tokens: of a round; tokens 0 where the provider does not count them.
        passages_per_s: of the median round.
        passages_per_s_low, passages_per_s_high: of the slowest and the fastest round.
        tokens_per_s: of the median round.
        p50_s, p95_s: of a call; p95 from 20 calls on.
        peak_rss_bytes: of the process so far, smaller batch sizes included.
        device_bytes: what the provider's runtime says of its device's memory.
        agreement: with the reference: ``reference`` (label), ``itself``, ``min_cosine``, ``p1_cosine``,
            ``overlap_at_10``, ``difference`` (of nDCG@10, paired) and ``verdict``
            (``same``, ``equivalent``, ``differs``).
    """

    batch_size: int | None
    status: str = "ok"
    reason: str | None = None
    calls_s: list[list[float]] = field(default_factory=list)
    n_texts: int = 0
    n_tokens: int = 0
    passages_per_s: float | None = None
    passages_per_s_low: float | None = None
    passages_per_s_high: float | None = None
    tokens_per_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    peak_rss_bytes: int | None = None
    device_bytes: int | None = None
    agreement: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The batch size, or ``own``."""
        return "own" if self.batch_size is None else str(self.batch_size)

    @property
    def agrees(self) -> bool:
        """Whether it ran and its vectors are those of the reference; without that it is never recommended."""
        found = self.agreement or {}
        return self.status == "ok" and found.get("verdict") in ("same", "equivalent")


@dataclass(slots=True)
class VariantResult:
    """One provider on one target in one dtype, with its points.

    ``dtype`` is the one that the model has, or the one asked for where it could not be loaded;
    ``speed`` holds ``load_s``, ``first_call_s`` and ``query_p50_s``; ``query_s`` the raw seconds of
    single queries.
    """

    label: str
    group: str
    target: str
    dtype: str
    status: str = "running"  # running | ok | failed | skipped
    reason: str | None = None
    model: str = ""
    fingerprint: dict[str, Any] | None = None
    runtime: dict[str, Any] = field(default_factory=dict)
    speed: dict[str, float | None] = field(default_factory=dict)
    query_s: list[float] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    resumed: bool = False

    @property
    def complete(self) -> bool:
        """Whether every point was measured."""
        return self.status == "ok" and all(point.status == "ok" for point in self.points)

    def put(self, point: Point) -> None:
        """Add ``point`` in the order of batch sizes, in place of one of the same size."""
        kept = [known for known in self.points if known.batch_size != point.batch_size]
        self.points = sorted([*kept, point], key=lambda p: p.batch_size or 0)


@dataclass(slots=True)
class Depth:
    """One reranker on the frozen pool cut to ``depth`` candidates.

    ``before``, ``after`` and ``oracle`` are means by metric name over the judged queries; ``difference``
    is that of nDCG@10, after minus before, paired, with ``low``, ``high`` and ``p_value``;
    ``samples_s`` are the raw seconds of single calls.
    """

    depth: int
    before: dict[str, float | None] = field(default_factory=dict)
    after: dict[str, float | None] = field(default_factory=dict)
    oracle: dict[str, float | None] = field(default_factory=dict)
    difference: dict[str, float | None] | None = None
    samples_s: list[float] = field(default_factory=list)
    p50_s: float | None = None
    points_per_ms: float | None = None


@dataclass(slots=True)
class PoolResult:
    """One reranker over all depths."""

    label: str
    status: str = "running"
    reason: str | None = None
    model: str = ""
    fingerprint: str = ""
    target: str = ""
    runtime: dict[str, Any] = field(default_factory=dict)
    depths: list[Depth] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    resumed: bool = False

    def put(self, depth: Depth) -> None:
        """Add ``depth``, in place of one of the same size."""
        kept = [known for known in self.depths if known.depth != depth.depth]
        self.depths = sorted([*kept, depth], key=lambda d: d.depth)


@dataclass(slots=True)
class SweepDocument:
    """One sweep: settings, data, machine, variants and rerankers.

    ``pool`` says what the frozen pool is: ``provider``, ``model``, ``lexical``, ``depth``,
    ``sha256`` of the file and ``n_queries``.
    """

    name: str
    status: str  # running | complete | interrupted
    created: str
    spec: dict[str, Any]
    spec_digest: str
    dataset: dict[str, Any]
    environment: dict[str, Any]
    variants: list[VariantResult] = field(default_factory=list)
    pool: dict[str, Any] | None = None
    rerankers: list[PoolResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    resumed_from: list[str] = field(default_factory=list)
    tool: dict[str, str] = field(default_factory=dict)
    sweep_version: int = SWEEP_VERSION

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON values: not-a-number and infinities are null."""
        return strict(asdict(self))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SweepDocument:
        """The inverse of :meth:`as_dict`."""
        made = _known(cls, values)
        made["variants"] = [variant_from(variant) for variant in made["variants"]]
        made["rerankers"] = [pool_result_from(reranker) for reranker in made["rerankers"]]
        return cls(**made)

    def write(self, folder: Path) -> None:
        """Write ``sweep.json`` into ``folder``, whole or not at all."""
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomic(folder / FILE, text)

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for was measured."""
        return all(v.complete for v in self.variants) and all(r.status == "ok" for r in self.rerankers)


def _known(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    return {name: value for name, value in values.items() if name in names}


def variant_from(values: Mapping[str, Any]) -> VariantResult:
    """A variant from its JSON values."""
    made = _known(VariantResult, values)
    made["points"] = [Point(**_known(Point, point)) for point in made.get("points", ())]
    return VariantResult(**made)


def pool_result_from(values: Mapping[str, Any]) -> PoolResult:
    """A reranker's result from its JSON values."""
    made = _known(PoolResult, values)
    made["depths"] = [Depth(**_known(Depth, depth)) for depth in made.get("depths", ())]
    return PoolResult(**made)


def load_sweep(path: Path) -> SweepDocument:
    """Read ``sweep.json`` (or the folder that holds it).

    Raises:
        ResultError: no such file, not JSON, or of another version; with the path and the reason.
    """
    made_by = ("sweep", "the document of a sweep")
    return read_document(path, FILE, ("sweep_version", SWEEP_VERSION), made_by, SweepDocument.from_dict)
