"""The sections of ``report.md`` on texts that were cut, roles and prompts, and the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.audit_findings import PrefixFinding, audited, prefix_findings
from harness.label_health import extremes, has_negatives, judged_gap, judged_mean
from harness.render.blocks import escape
from harness.render.format import MISSING, interval, number, p_value, score, share, signed
from harness.results import ResultDocument
from harness.rows import Row
from harness.significance import mean_interval
from harness.summary import metric_title
from harness.tables import pipe_table

__all__ = ["label_health", "texts_and_roles"]

#: Ids of queries that are named; the others are counted.
NAMED = 10


def texts_and_roles(document: ResultDocument, rows: Sequence[Row]) -> str:
    """What each provider read and what it was sent; nothing where no row tells."""
    chosen = audited(rows)
    if not chosen:
        return ""
    body = [[name, *_texts(row.cell.audit or {})] for name, row in chosen]
    columns = ["provider", "window", "documents cut", "document tokens lost", "queries cut"]
    columns += ["query tokens lost"]
    estimated = any((row.cell.audit or {})["estimated"] for _, row in chosen)
    about = " ≈: estimated from characters, rather too many than too few." if estimated else ""
    out = "## Texts cut and roles sent\n\n" + pipe_table(columns, body, numeric=5)
    out += (
        "\nOf all documents and queries of the data set, tokens counted by the provider itself, special "
        f"tokens and a document's prompt included; {MISSING}: nothing was lost.{about}\n\n"
    )
    roles = [[name, *_roles(row)] for name, row in chosen]
    out += pipe_table(["provider", "a query is sent as", "a document is sent as", "cosine"], roles, numeric=1)
    out += (
        "\nThe text stands at `{text}`; where that is missing, the role is a parameter of the request. "
        "Cosine: of a query's text sent in both roles, the least of four: 1 where the role changes nothing.\n"
    )
    compared = prefix_findings(document, rows)
    return out + (f"\n{_prefixes(compared)}" if compared else "")


def _texts(audit: Mapping[str, Any]) -> list[str]:
    window = number(audit["window"], 6) if audit["window"] else "none"
    if audit["windows"]:
        window += ", several"
    about = "≈ " if audit["estimated"] else ""
    out = [window]
    for part in ("documents", "queries"):
        found = audit[part]
        n, lost = max(found["n"], 1), found["lost"]
        cut = f"{found['cut']} of {found['n']}"
        out.append(f"{about}{cut} ({share(found['cut'] / n)})" if found["cut"] else cut)
        out.append(f"{about}{lost:,} ({share(lost / found['tokens'])})" if lost else MISSING)
    return out


def _roles(row: Row) -> list[str]:
    sent = row.cell.fingerprint or {}
    templates = [
        f"`{sent[name]}`" if sent.get(name) else MISSING for name in ("query_template", "document_template")
    ]
    cosine = (row.cell.audit or {})["role_cosine"]
    return [*templates, MISSING if cosine is None else f"{cosine:.3f}"]


def _prefixes(compared: Sequence[PrefixFinding]) -> str:
    body = []
    for one in compared:
        gap = one.versus
        bounds = (
            [signed(gap.mean), f"{signed(gap.low)} to {signed(gap.high)}", p_value(gap.adjusted)]
            if gap
            else []
        )
        body.append([one.name, one.change, score(one.before), score(one.after), *(bounds or [MISSING] * 3)])
    columns = ["provider", "change", "as sent", "changed", "Δ", "Δ 95 % interval", "corrected p"]
    lines = "".join(f"- {escape(one.sentence())}\n" for one in compared)
    return (
        f"### What the prompts are worth\n\n{lines}\n"
        + pipe_table(columns, body, numeric=5)
        + "\nnDCG@10 of exact vector search, paired by query; p values after Holm's correction. A service's "
        "role cannot be left out: there the queries were sent as documents.\n"
    )


def label_health(document: ResultDocument, rows: Sequence[Row], metric: str) -> str:
    """What the judgements can bear; nothing in a result that does not tell."""
    measured = [row for row in rows if row.ok and row.cell.judged_at_10]
    if not measured:
        return ""
    body = []
    for row in measured:
        known = [value for value in row.cell.judged_at_10 or () if value is not None]
        low, high = mean_interval(known, binary=False, seed=document.seed) if known else (None, None)
        body.append([row.label, score(judged_mean(row)), interval(low, high), str(len(known))])
    out = "## Label health\n\n"
    gap = judged_gap(document, rows)
    if gap:
        out += f"- {escape(gap.sentence())}\n"
    out += "".join(f"- {escape(line)}\n" for line in _extremes(document, rows, metric))
    out += "\n" + pipe_table(["system", "judged@10", "95 % interval", "queries"], body, numeric=3)
    out += (
        "\nJudged@10: the share of the first 10 that has a judgement of any grade; the rest counts as not "
        "relevant."
    )
    if not has_negatives(document):
        out += (
            " Here only relevant documents are judged, so that it equals precision@10 and cannot tell an "
            "unjudged answer from a wrong one."
        )
    return out + f" {_doubles(document)}\n"


def _doubles(document: ResultDocument) -> str:
    found = document.dataset.get("near_duplicates")
    if not found:
        return "Near-duplicates of relevant documents: `bench data describe`."
    if not found["pairs"]:
        return "No two documents have nearly the same text."
    return (
        f"{found['pairs']:,} pairs of documents have nearly the same text. "
        f"{found['relevant_without_their_double']:,} relevant documents, of {found['queries_concerned']:,} "
        "queries, have a double that is not judged relevant: a system that finds it gets nothing for it. "
        "`bench data describe` names some."
    )


def _extremes(document: ResultDocument, rows: Sequence[Row], metric: str) -> list[str]:
    found = extremes(document, rows, metric)
    if found.systems < 2:
        return []
    title = metric_title(metric)
    lines = []
    for what, value, ids in (("miss", 0, found.missed), ("solve", 1, found.solved)):
        named = f": {', '.join(ids[:NAMED])}" + (" …" if len(ids) > NAMED else "") if ids else ""
        lines.append(
            f"All {found.systems} systems, the baseline aside, {what} {len(ids)} of {found.queries} queries "
            f"({title} {value}){named}."
        )
    return lines
