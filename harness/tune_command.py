"""`bench tune`: the setting that a user's own judgements speak for, or that they cannot tell one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from harness.command import data_name
from harness.config import BASELINE, DEFAULT_METRICS, RunSpec
from harness.leg_lists import LegLists, legs_file
from harness.metrics import Metric
from harness.pairwise_findings import about
from harness.progress import reporter
from harness.queries_command import texts_of
from harness.render.format import interval, number, score, signed
from harness.results import NOT_FUSED, CellKey, ResultDocument, load_result
from harness.rows import MAIN_METRIC
from harness.runner import run
from harness.significance import mean_interval
from harness.summary import metric_title
from harness.thresholds import Thresholds, thresholds
from harness.tune_grid import DEFAULT, Floats
from harness.tuned_file import OWNED, write_search
from harness.tuning import Tuned, tune
from rag_core.errors import InvalidArgumentError
from rag_core.factory import SpecString

__all__ = ["TuneOptions", "tune_lines"]

#: Documents a leg that a run made for tuning keeps: the deepest pool that is tried.
DEPTH = 200
THRESHOLD = "score_threshold"


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """The options of `bench tune` as given; empty values stand for the defaults.

    Attributes:
        result: of a run that has hybrid cells; None measures ``data`` with ``provider`` first.
        data: the data set; beside a result, where its texts and judgements are.
        provider: spec string; beside a result, whose vectors where it has several.
        reranker: spec string, for the threshold.
        metric: to be raised.
        out: the ``rag.toml`` to write.
        folder: of the run that is made; default ``reports/<date>-<name>-tune``.
        seed: of partitions and intervals.
    """

    result: Path | None = None
    data: str = ""
    provider: str = ""
    reranker: str = ""
    metric: str = MAIN_METRIC
    out: Path = Path("rag.toml")
    folder: Path | None = None
    seed: int = 0


def tune_lines(options: TuneOptions, say: Callable[..., None]) -> list[str]:
    """Tune and write ``options.out`` where that pays; a table and sentences for people.

    Raises:
        InvalidArgumentError: neither a result nor data and a provider; too few queries; several providers
            in the result and none named; the file cannot be changed.
        DataError, ResultError: the result has no lists, or is none.
        UnknownNameError: no such metric.
    """
    metric = str(Metric.parse(options.metric))  # refused before anything is measured
    options = replace(options, metric=metric)
    result = options.result or _measured(options, say)
    document = load_result(result)
    vector = _chosen(document, options.provider)
    runs = (result if result.is_dir() else result.parent) / "runs"
    lists = LegLists.read(legs_file(runs, vector))
    dataset = texts_of(document, options.data)
    texts = {query.query_id: query.text for query in dataset.queries}
    judged = {query_id: texts[query_id] for query_id in document.dataset["query_ids"]}
    found = tune(lists, judged, dataset.relevance, options.metric, options.seed)
    threshold = _threshold(document, vector, options.seed)
    name = f"{dataset.name}, {vector.provider} on {vector.target}"
    lines = [
        f"{name}: {found.n_queries} judged queries, {len(found.default)} different; {found.n_settings} "
        f"settings on lists of {lists.depth} documents a leg",
        "",
        *_table(found, options),
        "",
        *_sentences(found, options.metric),
        *_threshold_sentence(threshold),
    ]
    return [*lines, _written(found, threshold, name, options)]


def _measured(options: TuneOptions, say: Callable[..., None]) -> Path:
    """The folder of a run that embeds once and keeps both lists."""
    if not (options.data and options.provider):
        raise InvalidArgumentError("nothing to tune on; accepted: a result, or --data with --provider")
    pipelines = ("vector", "bm25", "hybrid", *(("hybrid+rerank",) if options.reranker else ()))
    spec = RunSpec(
        options.data,
        (options.provider,),
        rerankers=(options.reranker,) if options.reranker else (),
        pipelines=pipelines,
        metrics=tuple(dict.fromkeys((options.metric, *DEFAULT_METRICS))),
        k=DEPTH,
        warmup=0,
        min_samples=1,
    )
    day = datetime.now(UTC).date().isoformat()
    folder = options.folder or Path("reports") / f"{day}-{data_name(options.data)}-tune"
    with reporter(say) as shown:
        run(spec, folder, on_event=shown)
    return folder


def _chosen(document: ResultDocument, provider: str) -> CellKey:
    """The vector leg's key of the hybrid cells that ``provider`` names, or of the only ones."""
    hybrids = [c.key for c in document.cells if c.status == "ok" and c.key.pipeline.startswith("hybrid")]
    asked = SpecString.parse(provider) if provider else None
    if asked is not None:
        label = str(replace(asked, target=""))
        hybrids = [k for k in hybrids if k.provider == label and asked.target in ("", k.target)]
    elif any(key.provider != BASELINE[0] for key in hybrids):
        hybrids = [key for key in hybrids if key.provider != BASELINE[0]]
    legs: dict[tuple[str, str, str], CellKey] = {}
    for key in hybrids:  # of several stores the first
        plain = replace(key, pipeline="vector", reranker=NOT_FUSED, fusion="")
        legs.setdefault((key.provider, key.target, key.dtype), plain)
    keys = list(legs.values())
    if len(keys) == 1:
        return keys[0]
    failed = "; ".join(cell.reason or cell.status for cell in document.cells if cell.status != "ok")
    if not keys:
        what = f" of {provider}" if provider else ""
        raise InvalidArgumentError(
            f"the result has no measured hybrid cell{what}{f' ({failed})' if failed else ''}; accepted: "
            "a run with the pipelines vector, bm25 and hybrid"
        )
    raise InvalidArgumentError(
        f"the result has the lists of {len(keys)} vector legs; accepted: --provider with one of "
        + ", ".join(f"{key.provider}@{key.target}" for key in keys)
    )


def _threshold(document: ResultDocument, vector: CellKey, seed: int) -> tuple[str, Thresholds] | None:
    """The reranker of the first reranked cell that kept scores, and what they say."""
    for cell in document.cells:
        key = cell.key
        same = (key.provider, key.target, key.store) == (vector.provider, vector.target, vector.store)
        if cell.status == "ok" and same and key.reranker != NOT_FUSED:
            found = thresholds(cell, seed)
            if found is not None:
                return key.reranker, found
    return None


def _table(found: Tuned, options: TuneOptions) -> list[str]:
    choice = found.choice
    rows = [
        ("setting", metric_title(options.metric), "95 % interval"),
        ("vector alone", score(found.vector), ""),
        ("bm25 alone", score(found.bm25), ""),
        (f"default: {DEFAULT}", *_measure(found.default, options.seed)),
        ("tuned, on queries left out of the choice", *_measure(choice.held_out, options.seed)),
        (
            "gain",
            signed(choice.gain.mean),
            f"{signed(choice.gain.low)} to {signed(choice.gain.high)}",
        ),
    ]
    wide = max(len(row[0]) for row in rows)
    return [f"  {name:<{wide}}  {mean:>8}  {bounds:>16}".rstrip() for name, mean, bounds in rows]


def _measure(values: Floats, seed: int) -> tuple[str, str]:
    low, high = mean_interval(values, binary=False, seed=seed)
    return score(float(values.mean())), interval(low, high)


def _sentences(found: Tuned, metric: str) -> list[str]:
    gain, n = found.choice.gain, number(len(found.default))
    if found.sure:
        return [
            f"Take {found.setting}: choosing so gains {signed(gain.mean)} {metric_title(metric)} "
            f"({signed(gain.low)} to {signed(gain.high)}) on queries that took no part in the choice; "
            f"{found.choice.again:.0%} of the choices without a fifth of the queries took the same setting."
        ]
    if found.setting == DEFAULT:
        return [f"The default stays: no setting is better on these {n} queries."]
    more = f"; {about(found.needed)} would" if found.needed and found.needed > len(found.default) else ""
    return [
        f"The default stays: the tuned setting ({found.setting}) gains {signed(gain.mean)} "
        f"({signed(gain.low)} to {signed(gain.high)}), which {n} queries cannot tell{more}."
    ]


def _threshold_sentence(found: tuple[str, Thresholds] | None) -> list[str]:
    if found is None:
        return []
    reranker, said = found
    if said.separates and said.best is not None and said.low is not None and said.high is not None:
        return [
            f"Threshold for the scores of {reranker}: {said.best.threshold:.4g} ({said.low:.4g} to "
            f"{said.high:.4g}): {said.reason}."
        ]
    return [f"No threshold for the scores of {reranker}: {said.verdict}: {said.reason}."]


def _written(found: Tuned, threshold: tuple[str, Thresholds] | None, name: str, options: TuneOptions) -> str:
    """Write what is sure; says what was written, and what not."""
    values = found.setting.as_search() if found.sure else {}
    owned: tuple[str, ...] = OWNED if found.sure else ()
    gain = found.choice.gain
    notes = []
    if found.sure:
        notes.append(
            f"bench tune: {name}, {len(found.default)} queries, {options.metric}: gain {signed(gain.mean)} "
            f"({signed(gain.low)} to {signed(gain.high)})"
        )
    if threshold is not None and threshold[1].separates and threshold[1].best is not None:
        values = {**values, THRESHOLD: threshold[1].best.threshold}
        notes.append(f"bench tune: {THRESHOLD} for the scores of {threshold[0]} alone")
    if not values:
        return f"Nothing is written: {options.out} stays as it is."
    write_search(options.out, values, notes, owned)
    return f"Wrote {', '.join(values)} into [search] of {options.out}."
