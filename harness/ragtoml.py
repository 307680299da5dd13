"""A chosen system as a ``rag.toml`` that :mod:`rag_core` and the ``rag`` command load."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.metrics import Metric
from harness.recommend import Recommendation
from harness.render.format import interval, score
from harness.results import CellResult, ResultDocument, write_atomic
from harness.summary import metric_title
from rag_core.errors import InvalidArgumentError, RagCoreError
from rag_core.factory import SpecString

__all__ = ["check_writable", "rag_toml", "settings_of", "write_rag_toml"]

MARK = "# Written by: bench recommend"
NONE = "-"
#: Stands where BM25 alone answers: an index is built with an embedder, and this one costs nothing.
NO_VECTORS = "fake"
DEFAULT_TOP_K = 10
DEFAULT_BM25 = {"k1": 1.2, "b": 0.75}


def rag_toml(found: Recommendation, *, command: str, digest: str) -> str:
    """The file's text.

    Args:
        found: with a chosen system.
        command: that makes the file, for its header.
        digest: of the result's bytes, hexadecimal.
    """
    assert found.chosen is not None
    row = found.chosen.row
    cell = row.cell
    data = found.document.dataset
    body = _as_text(settings_of(cell, found.document, found.metric))
    value = cell.metrics[found.metric]
    lines = [
        f"{MARK}; content {_digest(body)}",
        f"# Command: {command}",
        f"# System: {row.label} ({cell.model})",
        f"# Data set: {found.document.name}, {data.get('n_documents')} documents, "
        f"n = {len(data.get('query_ids', ()))} judged queries",
        f"# {metric_title(found.metric)}: {score(value.mean)}, 95 % interval "
        f"{interval(value.low, value.high)}",
        f"# Result: of {found.document.created}, sha256 {digest}",
        *(f"# Note: {note}" for note in _notes(cell, found)),
    ]
    return "\n".join(_comment(line) for line in lines) + "\n\n" + body


def settings_of(cell: CellResult, document: ResultDocument, metric: str = "") -> dict[str, dict[str, Any]]:
    """Tables, keys and values of the ``rag.toml`` of ``cell``.

    Args:
        metric: its cut-off is how many documents an answer has; 10 without one.
    """
    key, spec = cell.key, document.spec
    languages: Sequence[str] = document.dataset.get("languages") or ()
    pipeline = key.pipeline.partition("+")[0]
    embedder = NO_VECTORS if pipeline == "bm25" else _pinned(key.provider, key.target)
    tables: dict[str, dict[str, Any]] = {
        "embedding": {"provider": embedder},
        # without a line the command would take whatever reranker is available
        "rerank": {"provider": "noop" if key.reranker == NONE else _pinned(key.reranker)},
        "index": {"store": "flat" if key.store == NONE else key.store},
        "search": {"top_k": (Metric.parse(metric).cutoff if metric else None) or DEFAULT_TOP_K},
    }
    if pipeline != "vector" and spec.get("analyser") == "raw":
        tables["index"]["analyser"] = "raw"
    elif pipeline != "vector" and languages:
        tables["index"]["languages"] = list(languages)
    if key.pipeline.endswith("+rrf"):
        tables["rerank"]["mix"] = "ranks"
    search = tables["search"]
    search["pipeline"] = pipeline
    search["candidate_pool"] = int(cell.settings.get("candidate_pool") or spec.get("candidate_pool") or 50)
    if pipeline == "hybrid":
        search |= {"fusion": key.fusion, "rrf_k": float(spec.get("rrf_k") or 60.0)}
        if spec.get("weights"):
            search["weights"] = [float(weight) for weight in spec["weights"]]
    return tables


def _as_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(
        f"[{table}]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in values.items())
        for table, values in tables.items()
    )


def _pinned(text: str, target: str = "") -> str:
    """The spec string with the target it was measured on; the folder of a model made absolute."""
    try:
        parsed = SpecString.parse(text)
    except RagCoreError:
        return text
    path = parsed.options.get("path", "")
    if path and Path(path).exists():
        parsed = replace(parsed, options={**parsed.options, "path": str(Path(path).absolute())})
    return str(replace(parsed, target=target or parsed.target))


def _notes(cell: CellResult, found: Recommendation) -> list[str]:
    """Where the measured search differs from what the file can say."""
    spec = found.document.spec
    notes = ["documents were measured whole; `rag ingest` cuts those of more than 256 tokens into chunks"]
    pipeline = cell.key.pipeline
    if pipeline == "bm25":
        notes.append(
            f"BM25 alone: no vector is searched; {NO_VECTORS!r} fills the index's vectors without a model"
        )
    if pipeline != "vector":
        for name, default in DEFAULT_BM25.items():
            if spec.get(name, default) != default:
                notes.append(f"BM25 was measured with {name} = {spec[name]}; an index uses {default}")
        if spec.get("lexical", "bm25") != "bm25":
            notes.append(f"BM25 was measured with the engine {spec['lexical']}; an index has its own")
        tags = found.document.dataset.get("query_tags") or {}
        if spec.get("analyser") != "raw" and any("lang" in tag for tag in tags.values()):
            notes.append("BM25 was told the language of each query; an index reads it off the text")
    if cell.settings.get("scope"):
        notes.append(
            f"each query was searched within its own {cell.settings['scope']}: rag search --where "
            f"{cell.settings['scope']}=VALUE"
        )
    return notes


def _toml(value: Any) -> str:
    """A TOML value; basic strings are escaped as JSON's are."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def check_writable(path: Path, force: bool) -> None:
    """Refuse a file that another hand wrote or edited; one that is as ``bench recommend`` left it may be
    replaced.

    Raises:
        InvalidArgumentError: naming the file and what to do.
    """
    if force or not path.exists():
        return
    if path.is_dir():
        raise InvalidArgumentError(
            f"{path} is a folder; accepted: the name of a file, such as {path}/rag.toml"
        )
    text = path.read_text(encoding="utf-8", errors="replace")
    first, _, rest = text.partition("\n")
    body = rest.partition("\n\n")[2]
    if first != f"{MARK}; content {_digest(body)}":
        raise InvalidArgumentError(
            f"{path} was written or changed by another hand and is left alone; write elsewhere with "
            "--out FILE, or replace it with --force"
        )


def write_rag_toml(path: Path, text: str, *, force: bool = False) -> None:
    """Write ``text`` whole or not at all.

    Raises:
        InvalidArgumentError: see :func:`check_writable`; or the folder cannot be written.
    """
    check_writable(path, force)
    try:
        write_atomic(path, text)
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be written: {error.strerror or error}") from error
