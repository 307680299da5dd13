"""The `bench` command: parse, call, render. The only module that prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app", "main"]

OK, GATE_FAILED, USAGE, CELLS_FAILED, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    name="bench",
    help="Measure embedding providers, BM25, fusion and rerankers on your documents.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
data_app = typer.Typer(help="Look at data sets.", rich_markup_mode=None, no_args_is_help=True)
app.add_typer(data_app, name="data")

Many = list[str] | None


def main() -> None:
    """Run the command; errors of this project end it with status 2 and one readable line."""
    try:
        app()
    except Exception as error:
        from rag_core.errors import RagCoreError
        from rag_core.secrets import redact

        said = str(error)
        if isinstance(error, OSError) and error.filename:  # a full disk, a folder that may not be written
            said = f"{error.filename}: {error.strerror}; accepted: a path that can be read and written here"
        elif not isinstance(error, RagCoreError):
            raise
        print(f"bench: {redact(said)}", file=sys.stderr)
        sys.exit(USAGE)


@app.command()
def run(
    provider: Annotated[Many, typer.Option(help="Spec string, for example e5-small@cpu; repeatable.")] = None,
    data: Annotated[
        str, typer.Option(help="Name, folder or file of a data set; irds:ID or hf:OWNER/NAME.")
    ] = "",
    format: Annotated[
        str,
        typer.Option(help="Form of --data where it is not told: beir, tables, mteb, trec, locomo, squad."),
    ] = "",
    corpus: Annotated[
        Path | None, typer.Option(help="Table of documents, with --queries and --qrels.")
    ] = None,
    queries: Annotated[Path | None, typer.Option(help="Table of queries.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Table of judgements.")] = None,
    reranker: Annotated[Many, typer.Option(help="Spec string; repeatable.")] = None,
    store: Annotated[Many, typer.Option(help="Store, as flat or lancedb?index=hnsw_sq; repeatable.")] = None,
    pipeline: Annotated[
        Many, typer.Option(help="vector, bm25, hybrid, hybrid+rerank, hybrid+rerank+rrf; repeatable.")
    ] = None,
    metric: Annotated[Many, typer.Option(help="For example ndcg@10; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; default reports/<date>-<name>.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of keeping finished cells.")
    ] = False,
    baseline: Annotated[bool, typer.Option(help="Also run the baseline: fake + BM25, hybrid.")] = True,
    lexical: Annotated[
        str, typer.Option(help="BM25 engine: bm25, bm25?engine=numba, bm25s or rank_bm25.")
    ] = "bm25",
    analyser: Annotated[str, typer.Option(help="language (stems, stop words) or raw.")] = "language",
    k: Annotated[int, typer.Option(help="Documents judged per query.")] = 100,
    pool: Annotated[int, typer.Option(help="Documents each leg gives to the fusion.")] = 50,
    rrf_k: Annotated[float, typer.Option(help="Constant of reciprocal rank fusion.")] = 60.0,
    fusion: Annotated[
        str, typer.Option(help="Methods, one hybrid row each: rrf,relative,zscore,convex,adaptive.")
    ] = "rrf",
    weights: Annotated[str, typer.Option(help="Leg weights: vector,bm25; for example 2,1.")] = "",
    scope: Annotated[str, typer.Option(help="Metadata field within which each query searches.")] = "",
    warmup: Annotated[int, typer.Option(help="Queries run before the clock counts.")] = 3,
    repeats: Annotated[int, typer.Option(help="Times each query is timed.")] = 1,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for the CPUs really available.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    record: Annotated[
        str, typer.Option(help="Folder to keep the answers of services in, without keys.")
    ] = "",
    replay: Annotated[
        str, typer.Option(help="Folder that answers for services; needs no network and no key.")
    ] = "",
    max_usd: Annotated[float | None, typer.Option(help="Stop before services may have cost more.")] = None,
    usd_per_hour: Annotated[
        float | None, typer.Option(help="Price of this machine, to compare costs.")
    ] = None,
    margin: Annotated[
        Many, typer.Option(help="Less than the best that still does: ndcg@10=0.01; repeatable.")
    ] = None,
    score_threshold: Annotated[
        float | None, typer.Option(help="Reranked rows drop documents whose score is below it.")
    ] = None,
    audit_prefixes: Annotated[
        bool, typer.Option("--audit-prefixes", help="Also embed without prompts, and compare.")
    ] = False,
    engine: Annotated[str, typer.Option(help="Where to measure: local, or ray for a cluster.")] = "local",
    address: Annotated[str, typer.Option(help="Of the cluster; default RAY_ADDRESS, else one here.")] = "",
) -> None:
    """Measure providers on a data set. With no options: every local provider on the golden set."""
    from harness.command import RunOptions, run_command

    if corpus or queries or qrels:
        from harness.command import files_as_data

        data = files_as_data(data, corpus, queries, qrels)
    if format:
        from harness.datasets import with_format

        data = with_format(data, format)
    options = RunOptions(
        providers=tuple(provider or ()), rerankers=tuple(reranker or ()), stores=tuple(store or ("flat",)),
        pipelines=tuple(pipeline or ()), metrics=tuple(metric or ()), data=data, out=out, fresh=fresh,
        baseline=baseline, lexical=lexical, analyser=analyser, k=k, pool=pool, rrf_k=rrf_k, fusion=fusion,
        weights=weights, scope=scope, warmup=warmup, repeats=repeats, threads=threads, seed=seed,
        record=record, replay=replay, max_usd=max_usd, usd_per_hour=usd_per_hour,
        margins=tuple(margin or ()),
        score_threshold=score_threshold, audit_prefixes=audit_prefixes, engine=engine, address=address,
    )  # fmt: skip
    raise typer.Exit(run_command(options, print))


@app.command()
def sweep(
    provider: Annotated[Many, typer.Option(help="Spec string; repeatable.")] = None,
    data: Annotated[str, typer.Option(help="Name or folder of a data set.")] = "",
    batch_size: Annotated[str, typer.Option(help="Texts a call, for example 1,8,16,32,64.")] = "",
    dtype: Annotated[str, typer.Option(help="Number formats, for example fp32,int8.")] = "",
    target: Annotated[str, typer.Option(help="Targets, for example cpu,mlx.")] = "",
    candidate_pool: Annotated[str, typer.Option(help="Pool depths, for example 10,20,50.")] = "",
    reranker: Annotated[Many, typer.Option(help="Spec string, with --candidate-pool; repeatable.")] = None,
    texts: Annotated[int, typer.Option(help="Documents embedded in a timed round.")] = 256,
    rounds: Annotated[int, typer.Option(help="Timed rounds of every batch size.")] = 3,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for the CPUs really available.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder; default reports/<date>-<name>-sweep.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over.")] = False,
) -> None:
    """Change one setting and hold the rest still: batch size, dtype, target, candidate pool."""
    from harness.sweep_command import SweepOptions, sweep_command

    options = SweepOptions(
        providers=tuple(provider or ()), data=data, batch_size=batch_size, dtype=dtype, target=target,
        candidate_pool=candidate_pool, rerankers=tuple(reranker or ()), texts=texts, rounds=rounds,
        threads=threads, out=out, fresh=fresh,
    )  # fmt: skip
    raise typer.Exit(sweep_command(options, print))


@app.command()
def tune(
    result: Annotated[
        Path | None, typer.Argument(help="Folder of a run with hybrid rows; without it, --data is measured.")
    ] = None,
    data: Annotated[str, typer.Option(help="Name or folder of a data set.")] = "",
    provider: Annotated[str, typer.Option(help="Spec string; of a result, whose vectors.")] = "",
    reranker: Annotated[str, typer.Option(help="Spec string, for a score threshold.")] = "",
    metric: Annotated[str, typer.Option(help="What to raise.")] = "ndcg@10",
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("rag.toml"),
    folder: Annotated[
        Path | None, typer.Option(help="Of the run with --data; default reports/<date>-<name>-tune.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the partitions.")] = 0,
) -> None:
    """Choose fusion, weights, pool and threshold by nested cross-validation; write them where that pays."""
    from harness.progress import wrapped
    from harness.tune_command import TuneOptions, tune_lines

    options = TuneOptions(result, data, provider, reranker, metric, out, folder, seed)
    for line in tune_lines(options, print):
        print(line if line.startswith("  ") else wrapped(line))


@app.command()
def report(
    result: Annotated[Path, typer.Argument(help="result.json or its folder.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write; default beside the result.")] = None,
    margin: Annotated[
        Many, typer.Option(help="Less than the best that still does: ndcg@10=0.01; repeatable.")
    ] = None,
    texts: Annotated[bool, typer.Option(help="Show texts of queries and documents in report.html.")] = True,
) -> None:
    """Write the report of a result again: HTML, markdown, CSV and plots."""
    from harness.margins import with_margins
    from harness.results import load_result
    from harness.texts import report_again

    beside = result if result.is_dir() else result.parent
    document = with_margins(load_result(result), margin or ())
    for line in report_again(document, beside, out, texts=texts):
        print(line)


@app.command()
def show(
    result: Annotated[Path, typer.Argument(help="result.json or its folder.")],
    format: Annotated[str, typer.Option(help="table, tsv, json, md, csv or parquet.")] = "table",
    rows: Annotated[
        str, typer.Option(help="cells, or queries: a row per cell and query, csv and parquet.")
    ] = "cells",
    out: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
) -> None:
    """Print one row per cell, or write it for a notebook or a spreadsheet."""
    from harness.show_command import show_text

    print(show_text(result, format, rows, out), end="")


@app.command()
def queries(
    result: Annotated[Path, typer.Argument(help="result.json or its folder, with runs/ beside it.")],
    system: Annotated[str, typer.Option(help="The system to look at, for example e5-small/vector.")],
    against: Annotated[str, typer.Option(help="Shown beside it; BM25 where it was measured.")] = "",
    n: Annotated[int, typer.Option("--n", min=1, help="How many queries.")] = 10,
    metric: Annotated[str, typer.Option(help="Sort by this; default nDCG@10.")] = "",
    data: Annotated[str, typer.Option(help="Where the texts are; default the data set's name.")] = "",
) -> None:
    """The worst queries of a system with their texts, beside what another system found."""
    from harness.queries_command import query_lines

    print("\n".join(query_lines(result, system, against, n, metric, data)))


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="result.json or folder to compare with.")],
    new: Annotated[Path, typer.Argument(help="result.json or folder to judge.")],
    fail_on: Annotated[
        Many, typer.Option(help="Gate, for example ndcg@10:-0.01 or latency_p95:+10%.")
    ] = None,
    allow_other_machine: Annotated[
        bool, typer.Option("--allow-other-machine", help="Compare times although the machines differ.")
    ] = False,
    format: Annotated[str, typer.Option(help="text or md.")] = "text",
) -> None:
    """Compare two results. Exit 1 when a gate fails, 2 when they are not comparable."""
    from harness.diff_command import diff_text

    text, status = diff_text(old, new, fail_on or (), allow_other_machine, format)
    print(text, end="")
    raise typer.Exit(status)


@app.command()
def trend(
    folder: Annotated[Path, typer.Argument(help="Folder with results in folders below it.")],
    metric: Annotated[Many, typer.Option(help="Metric, or latency_p95, docs_per_s …; repeatable.")] = None,
    against: Annotated[Path | None, typer.Option(help="Result to hold the newest run against.")] = None,
    last: Annotated[int, typer.Option(help="Only so many of the newest runs; 0 for all.")] = 0,
    fail_on: Annotated[Many, typer.Option(help="Gate on the newest run, as of diff; repeatable.")] = None,
    format: Annotated[str, typer.Option(help="table, md or json.")] = "table",
    out: Annotated[
        Path | None, typer.Option(help="Folder for trend.md and the plot; default FOLDER.")
    ] = None,
    allow_other_machine: Annotated[
        bool, typer.Option("--allow-other-machine", help="Compare times although the machines differ.")
    ] = False,
) -> None:
    """Quality and speed from run to run, and where they changed. Exit 1 when a gate fails."""
    from harness.trend_command import trend_text

    text, status = trend_text(
        folder, figures=metric or (), against=against, last=last, fail_on=fail_on or (), format=format,
        out=out, allow_other_machine=allow_other_machine,
    )  # fmt: skip
    print(text, end="")
    raise typer.Exit(status)


@app.command()
def load(
    result: Annotated[Path, typer.Argument(help="result.json or its folder.")],
    system: Annotated[Many, typer.Option(help="As e5-small/hybrid; default the recommended one.")] = None,
    concurrency: Annotated[str, typer.Option(help="Clients at once.")] = "1,4,16",
    workers: Annotated[int, typer.Option(help="Threads that answer; 0 for one per usable CPU.")] = 0,
    seconds: Annotated[float, typer.Option(help="For one number of clients at most.")] = 10.0,
    threads: Annotated[int, typer.Option(help="CPU threads of a provider; 0 for all.")] = 0,
    data: Annotated[str, typer.Option(help="Where the texts are; default the data set's name.")] = "",
) -> None:
    """Ask systems of a result by many clients at once: throughput, latency, and what of it is waiting."""
    from harness.load_command import LoadOptions, load_command

    options = LoadOptions(result, system or (), concurrency, workers, seconds, threads, data)
    raise typer.Exit(load_command(options, print))


@app.command()
def recommend(
    result: Annotated[Path, typer.Argument(help="result.json or its folder.")],
    max_p50: Annotated[str, typer.Option(help="Median latency of a query at most, for example 50ms.")] = "",
    max_p95: Annotated[str, typer.Option(help="p95 at most, as 500ms; 500ms@16: with 16 clients.")] = "",
    max_p99: Annotated[str, typer.Option(help="99th percentile at most, for example 0.8s.")] = "",
    max_rss: Annotated[str, typer.Option(help="Peak memory at most, for example 2GB or 1.5GiB.")] = "",
    max_cold_start: Annotated[
        str, typer.Option(help="Import, load and first call of the models at most, for example 10s.")
    ] = "",
    max_usd_per_1k: Annotated[str, typer.Option(help="USD for 1,000 queries at most, as 0.5.")] = "",
    min: Annotated[Many, typer.Option(help="Mean at least: precision@5=0.88; repeatable.")] = None,
    margin: Annotated[
        Many, typer.Option(help="Less than the best that still does: ndcg@10=0.01; repeatable.")
    ] = None,
    metric: Annotated[str, typer.Option(help="What quality is; default nDCG@10.")] = "",
    prefer: Annotated[
        str,
        typer.Option(help="auto (cost where a service charges, else latency), latency, cost, memory, "
                     "throughput, quality."),
    ] = "auto",
    usd_per_hour: Annotated[float | None, typer.Option(help="Price of this machine.")] = None,
    out: Annotated[Path | None, typer.Option(help="File; default rag.toml beside the result.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file of another hand.")] = False,
) -> None:  # fmt: skip
    """Choose the fastest or cheapest system that is not worse than the best; write its rag.toml."""
    from harness.recommend_command import RecommendOptions, recommend_command

    most = {"p50": max_p50, "p95": max_p95, "p99": max_p99, "rss": max_rss, "cold-start": max_cold_start,
            "usd-per-1k": max_usd_per_1k}  # fmt: skip
    options = RecommendOptions(
        result, most, min or (), margin or (), metric, prefer, usd_per_hour, out, force
    )  # fmt: skip
    raise typer.Exit(recommend_command(options, print))


@app.command()
def providers(format: Annotated[str, typer.Option(help="text or md.")] = "text") -> None:
    """Every provider and reranker with its targets, and why one cannot run here."""
    from harness.command import provider_lines, provider_table

    print("\n".join(provider_table() if format == "md" else provider_lines()))


@app.command()
def export(
    model: Annotated[str, typer.Option(help="Folder, OWNER/NAME on the hub, or spec string.")],
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    dtype: Annotated[str, typer.Option(help="fp32, fp16, int8, q8, separated by commas.")] = "fp32,fp16,int8",
    opset: Annotated[int, typer.Option(help="Version of ONNX's operators.")] = 17,
) -> None:
    """Write a local torch model as ONNX files and compare each with the original."""
    from harness.export_command import export_lines

    print("\n".join(export_lines(model, out, dtype, opset)))


@data_app.command("list")
def data_list() -> None:
    """The shipped data sets."""
    from harness.datasets import list_datasets

    for info in list_datasets():
        print(f"{info.name:<10} {info.description}")


@data_app.command("check")
def data_check(data: Annotated[str, typer.Argument(help="Name, folder or file of a data set.")]) -> None:
    """Look for mistakes in a data set: dangling judgements, duplicates, empty texts, leaks."""
    from harness.command import check_lines

    lines, errors = check_lines(data)
    print("\n".join(lines))
    raise typer.Exit(GATE_FAILED if errors else OK)


@data_app.command("describe")
def data_describe(
    data: Annotated[str, typer.Argument(help="Name, folder or file of a data set.")],
    as_json: Annotated[bool, typer.Option("--json", help="All figures as one JSON object.")] = False,
    format: Annotated[str, typer.Option(help="Form of the data where it is not told.")] = "",
) -> None:
    """Sizes, lengths, languages, words shared with relevant documents, judgements, near-duplicates."""
    import json

    from harness.datasets import load_dataset, with_format
    from harness.describe import describe, description_lines

    facts = describe(load_dataset(with_format(data, format) if format else data))
    print(json.dumps(facts, ensure_ascii=False, indent=1) if as_json else "\n".join(description_lines(facts)))


@app.command("judge-run")
def judge_run(
    qrels: Annotated[
        Path, typer.Option(help="Judgements of TREC's four columns, or query, document, grade.")
    ],
    run: Annotated[list[Path], typer.Option(help="Run of TREC's six columns; repeatable.")],
    metric: Annotated[Many, typer.Option(help="For example ndcg@10; repeatable.")] = None,
    format: Annotated[str, typer.Option(help="json (an object a line for each run) or tsv.")] = "json",
    per_query: Annotated[bool, typer.Option("--per-query", help="Also the values of every query.")] = False,
) -> None:
    """Score run files made by any tool, as trec_eval -c does."""
    from harness.judge_command import judge_lines

    print("\n".join(judge_lines(qrels, run, metric or (), format, per_query)))


@app.command()
def doctor() -> None:
    """Where the packages come from, what this machine is, and what can run."""
    from harness.command import doctor_lines

    print("\n".join(doctor_lines()))
