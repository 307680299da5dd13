"""`bench queries`: the worst queries of a system, with texts, beside what another system found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.datasets import Dataset, load_dataset
from harness.formats.reading import DataError, shown
from harness.formats.trec import escaped_id, read_run
from harness.metrics import Metric
from harness.render.format import score, signed
from harness.results import CellKey, CellResult, ResultDocument, file_name, load_result
from harness.rows import labels, main_metric
from harness.strata import lexical_cell
from harness.summary import metric_title
from rag_core.errors import InvalidArgumentError, UnknownNameError

__all__ = ["find_cell", "query_lines", "texts_of", "worst"]

#: Characters of a text that are shown.
EXCERPT = 160


def query_lines(
    result: Path, system: str, against: str = "", n: int = 10, metric: str = "", data: str = ""
) -> list[str]:
    """A paragraph for each of the ``n`` worst queries.

    It holds the query, both values, each system's top hit, and the relevant document with the highest
    grade (of equal ones the one that ``system`` ranks best) with its rank in both lists.

    Args:
        result: ``result.json`` or its folder; the run files stand in ``runs/`` beside it.
        system: as :func:`find_cell` takes it.
        against: likewise; empty for the BM25 cell, if that is another one.
        n: how many.
        metric: one of the run's; empty for its main metric.
        data: the data set of the run, for its texts; empty for its name.

    Raises:
        UnknownNameError: no such system or metric.
        InvalidArgumentError: a name fits several systems; the data is not that of the run.
        DataError, ResultError: a file cannot be read.
    """
    document = load_result(result)
    metric = str(Metric.parse(metric)) if metric else main_metric(document)
    cell = find_cell(document, system)
    other = find_cell(document, against) if against else lexical_cell(document)
    other = None if other is cell else other
    for one in (cell, other):
        if one is not None and metric not in one.metrics:
            raise UnknownNameError(
                f"{one.key.cell_id} has no metric {metric!r}; accepted: {', '.join(one.metrics)}"
            )
    dataset = texts_of(document, data)
    runs = (result if result.is_dir() else result.parent) / "runs"
    sides = [_Side.read(one, document, runs, metric) for one in (cell, other) if one is not None]
    chosen = worst(document, cell, other, metric, n)
    first = sides[0]
    lines = [
        f"{metric_title(metric)}, the {len(chosen)} lowest of {len(document.dataset['query_ids'])} queries: "
        + " against ".join(side.label for side in sides)
    ]
    queries = {query.query_id: query for query in dataset.queries}
    documents = {found.doc_id: found.indexed_text for found in dataset.documents}
    for place in chosen:
        query_id = document.dataset["query_ids"][place]
        lines += ["", f"{query_id}: {_excerpt(queries[query_id].text)}"]
        for side in sides:
            hit = side.top(query_id, documents)
            gap = side.values[place], first.values[place]
            versus = "" if side is first or None in gap else f" ({signed((gap[0] or 0) - (gap[1] or 0))})"
            lines.append(f"  {side.label} {score(side.values[place])}{versus}: {hit}")
        grades = {d: g for d, g in dataset.relevance[query_id].items() if g >= 1}
        best = min(grades, key=lambda d: (-grades[d], first.rank(query_id, d) or len(documents), d))
        where = ", ".join(f"{side.label} {_rank(side.rank(query_id, best))}" for side in sides)
        lines.append(
            f"  relevant {best} (grade {grades[best]}; {where}): {_excerpt(documents.get(best, ''))}"
        )
    return lines


def worst(
    document: ResultDocument, cell: CellResult, other: CellResult | None, metric: str, n: int
) -> list[int]:
    """Positions of the ``n`` queries with the lowest value of ``cell``.

    Of equal ones first those where ``other`` does best, then by query id. Queries without a value are
    left out.
    """
    values = cell.metrics[metric].per_query
    beside = other.metrics[metric].per_query if other is not None else []
    places = [place for place, value in enumerate(values) if value is not None]

    def order(place: int) -> tuple[float, float, str]:
        gain = beside[place] if place < len(beside) else None
        return values[place] or 0.0, -(gain or 0.0), document.dataset["query_ids"][place]

    return sorted(places, key=order)[:n]


def find_cell(document: ResultDocument, name: str) -> CellResult:
    """The measured cell of that id or label, or the one that has every part of ``name`` (by ``/``).

    ``e5-small/hybrid`` is the hybrid cell of e5-small.

    Raises:
        UnknownNameError: none fits. InvalidArgumentError: several do.
    """
    measured = [cell for cell in document.cells if cell.status == "ok"]
    named = labels([cell.key for cell in document.cells])
    for cell in measured:
        if name in (cell.key.cell_id, named[cell.key.cell_id]):
            return cell
    parts = {part.strip() for part in name.split("/") if part.strip()}
    fitting = [
        cell
        for cell in measured
        if parts and parts <= {getattr(cell.key, name) for name in CellKey.__slots__}
    ]
    if len(fitting) == 1:
        return fitting[0]
    accepted = ", ".join(cell.key.cell_id for cell in fitting or measured)
    if fitting:
        raise InvalidArgumentError(f"{name!r} fits {len(fitting)} systems; accepted: {accepted}")
    raise UnknownNameError(f"no measured system {name!r}; accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class _Side:
    """One system's values and lists: ``ids`` is escaped query id → escaped document ids, best first."""

    label: str
    values: Sequence[float | None]
    ids: dict[str, tuple[str, ...]]

    @classmethod
    def read(cls, cell: CellResult, document: ResultDocument, runs: Path, metric: str) -> _Side:
        path = runs / f"{file_name(cell.key)}.run"
        if not path.exists():
            raise DataError(
                path, None, "no such run file; accepted: the folder that bench run wrote, with its runs/"
            )
        found = read_run(path).rankings
        label = labels([one.key for one in document.cells])[cell.key.cell_id]
        ids = {query_id: ranking.doc_ids for query_id, ranking in found.items()}
        return cls(label, cell.metrics[metric].per_query, ids)

    def _list(self, query_id: str) -> tuple[str, ...]:
        escaped = escaped_id(query_id)
        return self.ids.get(escaped.replace("#", "%23", 1) if escaped.startswith("#") else escaped, ())

    def rank(self, query_id: str, doc_id: str) -> int | None:
        """From 1 on; None where the list lacks it."""
        found, wanted = self._list(query_id), escaped_id(doc_id)
        return found.index(wanted) + 1 if wanted in found else None

    def top(self, query_id: str, documents: dict[str, str]) -> str:
        """The first document with its text."""
        found = self._list(query_id)
        if not found:
            return "found nothing"
        doc_id = found[0]
        text = documents.get(doc_id)
        if text is None:  # an id with white space is escaped in the run
            doc_id, text = next(
                ((d, t) for d, t in documents.items() if escaped_id(d) == doc_id), (doc_id, "")
            )
        return f"{doc_id}: {_excerpt(text)}"


def texts_of(document: ResultDocument, data: str) -> Dataset:
    """The data set of the run: ``data``, else where the run found it, else the one of its name.

    Raises:
        InvalidArgumentError: it is not to be found, or has other documents, queries or judgements.
    """
    dataset = _loaded(document, data)
    recorded = document.dataset.get("hash", {})
    different = [part for part, digest in dataset.hashes.items() if recorded.get(part) != digest]
    if different:
        raise InvalidArgumentError(
            f"{shown(data or dataset.name)} is not the data of this run: other {', '.join(different)}; "
            "accepted: --data with the data set that was measured"
        )
    return dataset


def _loaded(document: ResultDocument, data: str) -> Dataset:
    if data:
        return load_dataset(data)
    name = str(document.dataset["name"])
    try:
        return load_dataset(str(document.spec.get("data") or name))
    except UnknownNameError as error:
        raise InvalidArgumentError(f"{error}; or name the data set of this run with --data") from error


def _rank(rank: int | None) -> str:
    return f"rank {rank}" if rank else "not found"


def _excerpt(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= EXCERPT else plain[: EXCERPT - 1].rstrip() + "…"
