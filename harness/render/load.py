"""The section of ``report.md`` on many clients at once: throughput, latency, and what of it is waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.render.format import milliseconds, number, rate, seconds
from harness.rows import Row
from harness.tables import pipe_table

__all__ = ["levels_of", "load", "load_lines"]


def levels_of(row: Row) -> Sequence[Mapping[str, Any]]:
    """What was measured at each number of clients, fewest first; empty where nothing was."""
    return (row.cell.load or {}).get("levels", ()) if row.cell.status == "ok" else ()


def load(rows: Sequence[Row]) -> str:
    """A line for each system and number of clients; nothing where none was measured."""
    body = [
        [
            row.label,
            number(level["clients"]),
            number((row.cell.load or {})["workers"]),
            rate(level["queries_per_s"]),
            *(
                milliseconds(level[name])
                for name in ("p50_s", "p95_s", "p99_s", "waited_p50_s", "waited_p95_s", "service_p50_s")
            ),
            number(level["n"]),
            number(level["n_failed"]),
        ]
        for row in rows
        for level in levels_of(row)
    ]
    if not body:
        return ""
    columns = ["system", "clients", "workers", "queries/s", "p50 ms", "p95 ms", "p99 ms"]
    columns += ["waiting p50 ms", "waiting p95 ms", "service p50 ms", "answered", "failed"]
    said = "".join(f"- {line}\n" for line in load_lines(rows))
    return (
        "## Many clients at once\n\n"
        + pipe_table(columns, body, numeric=len(columns) - 1)
        + "\nA closed loop: each client submits its next query when the last one is answered. Latency runs "
        "from submission until the answer's values exist; waiting ends when a worker takes the query, and "
        "what is left is service, in which the workers share the CPUs.\n\n" + said
    )


def load_lines(rows: Sequence[Row]) -> list[str]:
    """A sentence for each system: what more clients bring, and what they cost."""
    out = []
    for row in rows:
        levels = levels_of(row)
        if not levels:
            continue
        first, last = levels[0], levels[-1]
        few = "client" if first["clients"] == 1 else "clients"
        line = f"{row.label}: {_said(first)} with {number(first['clients'])} {few}"
        if last is not first:
            line += f", {_said(last)} with {number(last['clients'])}"
            if last["waited_p50_s"] is not None and last["p50_s"]:
                share = 100 * min(1.0, last["waited_p50_s"] / last["p50_s"])
                line += f", of whose median latency {share:.0f} % is waiting for a worker"
        out.append(f"{line}.")
    return out


def _said(level: Mapping[str, Any]) -> str:
    return f"{rate(level['queries_per_s'])} queries/s and p95 {seconds(level['p95_s'])}"
