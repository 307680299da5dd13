"""The result document: everything a report, a plot or a comparison is made from. Strict JSON, versioned."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rag_core.errors import RagCoreError
from rag_core.index_files import write_whole

if TYPE_CHECKING:
    import pandas

__all__ = [
    "SCHEMA_VERSION",
    "CellKey",
    "CellResult",
    "MetricResult",
    "ResultDocument",
    "ResultError",
    "StageTimes",
    "file_name",
    "load_result",
    "read_document",
    "strict",
    "write_atomic",
]

SCHEMA_VERSION = 1
D = TypeVar("D")
#: In the place of a fusion method where nothing is fused.
NOT_FUSED = "-"


class ResultError(RagCoreError, ValueError):
    """A result file cannot be read, or is of another schema version."""


@dataclass(frozen=True, slots=True)
class CellKey:
    """What distinguishes one row of the table from another.

    ``fusion`` is ``-`` where nothing is fused, else a method; ``rrf``, which earlier results do not name,
    is the one that is taken where none is given and that no id names.
    """

    data: str
    provider: str
    target: str
    dtype: str
    store: str
    pipeline: str
    reranker: str
    fusion: str = ""

    def __post_init__(self) -> None:
        known = self.fusion not in ("", NOT_FUSED)
        method = (self.fusion if known else "rrf") if self.pipeline.startswith("hybrid") else NOT_FUSED
        object.__setattr__(self, "fusion", method)

    @property
    def _parts(self) -> tuple[str, ...]:
        parts = (self.provider, self.target, self.dtype, self.store, self.pipeline, self.reranker)
        return parts if self.fusion in (NOT_FUSED, "rrf") else (*parts, self.fusion)

    @property
    def cell_id(self) -> str:
        """One string, unique within a result, safe as a file name after escaping."""
        return "/".join(self._parts)


def file_name(key: CellKey) -> str:
    """``key`` as a file name that every system accepts; distinct keys never share one."""
    import hashlib

    text = "-".join(key._parts)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_+") else "_" for c in text)[:80]
    return f"{safe}-{hashlib.sha256(key.cell_id.encode()).hexdigest()[:8]}"


@dataclass(slots=True)
class MetricResult:
    """A metric over the judged queries.

    ``per_query`` follows the order of ``ResultDocument.dataset["query_ids"]``; ``low`` and ``high``
    bound the mean's 95 % confidence interval.
    """

    mean: float | None
    low: float | None
    high: float | None
    per_query: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class StageTimes:
    """Raw seconds of one stage, one per timed query, in the order of measurement."""

    samples_s: list[float] = field(default_factory=list)
    warmup_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class CellResult:
    """One provider on one target and store with one pipeline: judged and timed, or the reason why not.

    ``speed`` holds ``import_s``, ``load_s``, ``first_call_s`` (cold, apart), ``rerank_load_s`` (of a
    reranked cell), ``embed_s`` (the corpus),
    ``docs_per_s``, ``tokens_per_s``, ``peak_rss_bytes``, ``peak_device_bytes`` (null where the device's
    memory is the machine's, or is not counted), ``p50_s``, ``p95_s`` and ``p99_s`` (null below
    20 and 100 samples), ``store_write_s`` and, of another store than the exact one,
    ``store_recall_at_10`` (0 to 1); ``stages`` the raw samples that the percentiles are made from, whose
    sum per query stands in ``total_s``. ``rerank`` is what :func:`harness.economics.economics` found, of a
    reranked cell. ``cost`` holds the values of :class:`harness.cost.Usage` under ``embed`` and, of a
    reranked cell, ``rerank``. ``attribution`` is what :func:`harness.attribution.totals` counted; each
    relevant document stands in its ``file`` in runs/. ``thresholds`` is what
    :func:`harness.thresholds.record` kept, of a vector or a reranked cell; ``audit`` what
    :func:`harness.audit.audit` found of the provider; ``judged_at_10`` the judged share of the first 10
    per judged query. ``load``, which ``bench load`` adds, holds ``workers``, ``peak_rss_bytes`` and
    ``levels``, each what :func:`harness.load.level` gives.
    ``environment`` is that of the cell, as in :class:`ResultDocument`, where it was measured on another
    machine or installation than the document names.
    """

    key: CellKey
    status: str  # ok | failed | skipped
    reason: str | None = None
    model: str = ""
    fingerprint: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, MetricResult] = field(default_factory=dict)
    speed: dict[str, float | int | None] = field(default_factory=dict)
    stages: dict[str, StageTimes] = field(default_factory=dict)
    total_s: list[float] = field(default_factory=list)
    runtime: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    resumed: bool = False
    wall_s: float | None = None
    rerank: dict[str, Any] | None = None
    cost: dict[str, Any] | None = None
    attribution: dict[str, Any] | None = None
    thresholds: dict[str, Any] | None = None
    audit: dict[str, Any] | None = None
    judged_at_10: list[float | None] | None = None
    environment: dict[str, Any] | None = None
    load: dict[str, Any] | None = None

    def mean(self, metric: str) -> float | None:
        """The mean of ``metric``; None where it was not measured."""
        found = self.metrics.get(metric)
        return found.mean if found else None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CellResult:
        """The inverse of ``dataclasses.asdict``."""
        known = {f.name for f in fields(cls)}
        made = {name: value for name, value in values.items() if name in known}
        made["key"] = CellKey(**made["key"])
        made["metrics"] = {m: MetricResult(**v) for m, v in made.get("metrics", {}).items()}
        made["stages"] = {s: StageTimes(**v) for s, v in made.get("stages", {}).items()}
        return cls(**made)


@dataclass(slots=True)
class ResultDocument:
    """One run: its settings, data, machine and cells.

    ``dataset`` holds ``name``, ``hash`` (``corpus``, ``queries``, ``qrels``), ``languages``,
    ``licence``, ``query_ids`` (the judged ones, sorted: the order of every ``per_query``),
    ``query_tags`` (query id → tags), ``query_overlap`` (query id → values of
    :class:`harness.overlap.Overlap`; not in older files), ``headline`` (query ids), ``n_documents``,
    ``n_documents_empty``, ``n_queries``, ``n_judgements``, ``n_judgements_relevant`` and ``near_duplicates``
    (see :mod:`harness.describe`; neither in older files),
    ``n_without_relevant``.
    ``baseline`` is the cell id of the baseline, or null when it did not run.
    ``parity`` holds one entry per provider that shares a model with another one, or whose vectors
    change with their neighbours; its fields stand in :mod:`harness.variants`.
    """

    name: str
    status: str  # running | complete | interrupted
    created: str
    spec: dict[str, Any]
    spec_digest: str
    dataset: dict[str, Any]
    environment: dict[str, Any]
    cells: list[CellResult] = field(default_factory=list)
    baseline: str | None = None
    notes: list[str] = field(default_factory=list)
    resumed_from: list[str] = field(default_factory=list)
    tool: dict[str, str] = field(default_factory=dict)
    parity: list[dict[str, Any]] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION

    @property
    def seed(self) -> int:
        """Of the run's resampling; 0 where none is recorded."""
        return int(self.spec.get("seed") or 0)

    def cell(self, cell_id: str) -> CellResult | None:
        """The cell of that id."""
        return next((cell for cell in self.cells if cell.key.cell_id == cell_id), None)

    def put(self, cell: CellResult) -> None:
        """Add ``cell``, in place of an earlier one of the same id."""
        for position, known in enumerate(self.cells):
            if known.key == cell.key:
                self.cells[position] = cell
                return
        self.cells.append(cell)

    def to_frame(self, rows: str = "cells") -> pandas.DataFrame:
        """A pandas DataFrame with one row per cell, or, of ``rows="queries"``, per cell and judged query.

        Columns and units: :mod:`harness.frames`.

        Raises:
            InvalidArgumentError: other rows.
            MissingExtraError: pandas is not installed.
        """
        from harness.frames import to_frame

        return to_frame(self, rows)

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON values: numpy numbers are plain, NaN and infinities null."""
        return strict(self)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ResultDocument:
        """The inverse of :meth:`as_dict`."""
        known = {f.name for f in fields(cls)}
        made = {name: value for name, value in values.items() if name in known}
        made["cells"] = [CellResult.from_dict(cell) for cell in made["cells"]]
        return cls(**made)

    def write(self, path: Path) -> None:
        """Write the document, whole or not at all."""
        write_atomic(path, json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def strict(value: Any) -> Any:
    """``value`` as strict JSON holds it. Keys become strings; not-a-number and infinities become None.

    A dataclass becomes an object of its fields.
    """
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list) and set(map(type, value)) == {float} and math.isfinite(sum(value)):
        return value.copy()  # most of a result is long lists of samples: no call for each number
    if isinstance(value, (list, tuple, set, frozenset)):
        return [strict(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: strict(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, np.ndarray):
        return strict(value.tolist())
    if isinstance(value, np.generic):
        return strict(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} {value!r} cannot stand in a result")


def load_result(path: Path) -> ResultDocument:
    """Read ``result.json`` (or the folder that holds it).

    Raises:
        ResultError: no such file, not JSON, or of another schema version; with the path and the reason.
    """
    made_by = ("run", "a result document")
    return read_document(
        path, "result.json", ("schema_version", SCHEMA_VERSION), made_by, ResultDocument.from_dict
    )


def read_document(
    path: Path, name: str, version: tuple[str, int], made_by: tuple[str, str], make: Callable[[Any], D]
) -> D:
    """What ``make`` makes of the JSON object in ``path`` (or in ``name`` inside that folder).

    Args:
        path: file or folder.
        name: of the file in a folder.
        version: key of the version, and the one accepted.
        made_by: of `bench`, the command that writes such a file, and what the file is called.
        make: raises KeyError or TypeError where the object is of another kind.

    Raises:
        ResultError: no such file, not JSON, of another version or kind; with the path and the reason.
    """
    (field_name, accepted), (command, what) = version, made_by
    file = path / name if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultError(f"{file}: {error.strerror}; make one with: bench {command} --out DIR") from error
    except ValueError as error:
        raise ResultError(f"{file}: not a JSON document: {error}") from error
    found = values.get(field_name) if isinstance(values, dict) else None
    if found != accepted:
        raise ResultError(f"{file}: {field_name} is {found!r}; accepted: {accepted}")
    try:
        return make(values)
    except (KeyError, TypeError) as error:
        raise ResultError(f"{file}: not {what}: {error}") from error


def result_schema() -> dict[str, Any]:
    """The JSON Schema of a result file, as published beside this module."""
    text = files("harness").joinpath("result.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all, into a folder that is made where it is missing.

    Raises:
        OSError: the disk is full or refuses; the old file stands.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode("utf-8"))
