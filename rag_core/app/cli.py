"""The `rag` command: parse, call, print. The only module of the package that prints answers."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

__all__ = ["app", "main"]

USAGE, INTERRUPTED = 2, 130

app = typer.Typer(
    name="rag",
    help="Index documents and search them by meaning and by words.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

Command = TypeVar("Command", bound=Callable[..., None])
IndexOption = Annotated[Path, typer.Option("--index", help="Folder of the index.")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings; default rag.toml of the current folder.")
]
ProviderOption = Annotated[str, typer.Option(help="Embedding provider, for example e5-small@cpu.")]
RerankerOption = Annotated[str, typer.Option(help="Reranker, for example minilm-l12.")]
NoRerank = Annotated[bool, typer.Option("--no-rerank", help="Leave the fused order as it is.")]
StoreOption = Annotated[str, typer.Option(help="Vector store; default flat.")]
MaxUsd = Annotated[float | None, typer.Option(help="Stop before services may have cost more.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Run the command; errors end it with status 2 and one readable line."""
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(INTERRUPTED)
    except Exception as error:
        from rag_core.errors import RagCoreError
        from rag_core.secrets import redact

        if isinstance(error, OSError) and not isinstance(error, RagCoreError):
            where = f"{error.filename}: " if error.filename else ""
            said = f"{where}{error.strerror or error}"
        elif isinstance(error, RagCoreError):
            said = str(error)
        else:
            raise
        tell(f"rag: {redact(said)}")
        sys.exit(USAGE)


def tell(line: str) -> None:
    """Say something that is no answer: on standard error."""
    print(line, file=sys.stderr, flush=True)


def interruptible(kept: str) -> Callable[[Command], Command]:
    """Ctrl-C ends the command with status 130, and says what is ``kept``."""

    def around(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, **options: Any) -> None:
            try:
                command(*args, **options)
            except KeyboardInterrupt:
                tell(f"rag: interrupted; {kept}")
                raise typer.Exit(INTERRUPTED) from None

        return run  # type: ignore[return-value]

    return around


@app.command()
@interruptible("what is embedded is kept. Go on with the same command.")
def ingest(
    folder: Annotated[Path, typer.Argument(help="Folder of documents, or one file.")],
    index: IndexOption,
    provider: ProviderOption = "",
    store: StoreOption = "",
    chunk_tokens: Annotated[int | None, typer.Option(help="Tokens of a chunk at most; default 256.")] = None,
    overlap: Annotated[int | None, typer.Option(help="Tokens that neighbours share; default 32.")] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove what the folder no longer has.")] = False,
    max_usd: MaxUsd = None,
    config: ConfigOption = None,
    engine: Annotated[str, typer.Option(help="Where to embed: local, or ray for a cluster.")] = "local",
    address: Annotated[str, typer.Option(help="Of the cluster; default RAY_ADDRESS, else one here.")] = "",
    workers: Annotated[int, typer.Option(help="Workers of the cluster; 0: one a node or device.")] = 0,
    worker_provider: Annotated[
        str, typer.Option(help="What workers load, for example e5-small@nvidia; default as --provider.")
    ] = "",
) -> None:
    """Bring an index up to date with a folder; unchanged text is not embedded again."""
    from rag_core.app import commands, settings, showing

    asked = settings.Asked(
        index, config, provider, store=store, chunk_tokens=chunk_tokens, overlap=overlap, prune=prune,
        max_usd=max_usd, engine=settings.Engine(engine, address, workers, worker_provider),
    )  # fmt: skip
    with showing.progress() as shown:
        report = commands.ingest(folder, asked, tell, shown)
    print("\n".join(showing.report_lines(report)))


@app.command()
@interruptible("the index answers as before. Go on with the same command.")
def rebuild(
    index: IndexOption,
    provider: ProviderOption = "",
    store: StoreOption = "",
    max_usd: MaxUsd = None,
    config: ConfigOption = None,
) -> None:
    """Embed all texts again: another provider, another store."""
    from rag_core.app import commands, settings, showing

    asked = settings.Asked(index, config, provider, store=store, max_usd=max_usd)
    with showing.progress() as shown:
        report = commands.rebuild(asked, tell, shown)
    print("\n".join(showing.report_lines(report)))


@app.command()
@interruptible("nothing was changed.")
def search(
    query: Annotated[str, typer.Argument(help="A question or key words.")],
    index: IndexOption,
    top_k: Annotated[int | None, typer.Option(help="Hits at most; default 10.")] = None,
    provider: ProviderOption = "",
    reranker: RerankerOption = "",
    no_rerank: NoRerank = False,
    where: Annotated[
        list[str] | None, typer.Option(help="Metadata filter: field=value, year>=2020, or JSON; repeatable.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Drop hits with a lower score.")] = None,
    as_json: AsJson = False,
    config: ConfigOption = None,
) -> None:
    """Search an index."""
    from rag_core.app import searching, settings, showing

    options = {"top_k": top_k, "score_threshold": threshold}
    asked = settings.Asked(index, config, provider, reranker, rerank=not no_rerank, search=options)
    with showing.progress():
        result = searching.search(query, where or [], asked)
    if as_json:
        print(json.dumps(showing.result_dict(query, result), ensure_ascii=False, indent=1))
        return
    print("\n".join(showing.result_lines(result)))
    for warning in result.warnings:
        tell("\n".join(showing.wrapped(f"warning: {warning}")))


@app.command()
@interruptible("nothing was changed.")
def providers(
    format: Annotated[str, typer.Option(help="text, or in markdown md, widths or prices.")] = "text",
) -> None:
    """List providers and rerankers, and why one cannot run here."""
    from rag_core import listing
    from rag_core.errors import InvalidArgumentError

    tables = {
        "text": listing.provider_lines,
        "md": listing.provider_table,
        "widths": listing.width_table,
        "prices": listing.price_table,
    }
    if format not in tables:
        raise InvalidArgumentError(f"--format is {format!r}; accepted: {', '.join(tables)}")
    print("\n".join(tables[format]()))


@app.command("serve-mcp")
@interruptible("the server has stopped.")
def serve_mcp(
    index: IndexOption,
    provider: ProviderOption = "",
    reranker: RerankerOption = "",
    no_rerank: NoRerank = False,
    rerank_timeout: Annotated[
        float | None, typer.Option(help="Seconds for the reranker, then the fused order; default 10.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve an index to a language model, over standard input and output."""
    from rag_core.app import searching, settings, showing

    options = {"rerank_timeout_s": rerank_timeout}
    asked = settings.Asked(index, config, provider, reranker, rerank=not no_rerank, search=options)
    with showing.progress() as shown:
        server = searching.mcp_server(asked, tell, shown)
    searching.serve(server)


@app.command()
@interruptible("nothing was changed.")
def stats(index: IndexOption, as_json: AsJson = False) -> None:
    """Say what an index holds and what it was built with."""
    from rag_core.app import commands, settings, showing

    found = commands.stats(settings.Asked(index))
    print(
        json.dumps(found, ensure_ascii=False, indent=1) if as_json else "\n".join(showing.stats_lines(found))
    )
