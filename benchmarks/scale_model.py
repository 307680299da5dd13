"""What 100 GPUs and a billion passages need, on paper: the tables of docs/scale.md.

    python benchmarks/scale_model.py                       # print them
    python benchmarks/scale_model.py --set gpus=8 --set passages=2e8
    python benchmarks/scale_model.py --write               # put them into docs/scale.md

Inputs are in ``scale_model.json``, each with its source; those of the index come from the largest IVF-PQ
cell of ``reports/store_scale.json``, which ``store_scale.py`` measured. The formulas are those of
:func:`model`, one line each; docs/scale.md says what they leave out.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store_scale_plot import table

ROOT = Path(__file__).resolve().parents[1]
INPUTS, MEASURED, PAGE = (
    ROOT / "benchmarks" / "scale_model.json",
    ROOT / "reports" / "store_scale.json",
    ROOT / "docs" / "scale.md",
)
STORE = "lancedb?index=ivf_pq"
FROM_REPORT = {
    "bytes_per_row": ("bytes_per_vector", "bytes", "vectors, ids, metadata and index on disk"),
    "index_cpu_s": ("build_cpu_s", "s", "processor time to write and index all rows of the cell"),
    "query_cpu_s": ("query_cpu_s", "s", "processor time of a query"),
    "query_p50_s": ("p50_s", "s", "a query, p50"),
    "query_p95_s": ("p95_s", "s", "the same, p95"),
    "recall": ("recall", "", "share of the exact top 10"),
    "measured_rows": ("rows", "rows", "rows of the cell"),
}


def read_inputs() -> dict[str, dict[str, Any]]:
    """Name -> value, unit, kind (asked, measured, public, assumed) and source."""
    inputs: dict[str, dict[str, Any]] = json.loads(INPUTS.read_text(encoding="utf-8"))
    cells = json.loads(MEASURED.read_text(encoding="utf-8"))["cells"]
    cell = max((c for c in cells if c["store"] == STORE), key=lambda c: int(c["rows"]))
    for name, (field, unit, what) in FROM_REPORT.items():
        inputs[name] = {
            "value": cell[field],
            "unit": unit,
            "kind": "measured",
            "source": f"`benchmarks/store_scale.py`, LanceDB IVF-PQ, {cell['rows']:,} rows: {what}",
        }
    return inputs


def model(x: Mapping[str, float]) -> list[tuple[str, str, float, str]]:
    """Lines of the result: name, formula, value, unit."""
    rate = x["gpus"] * x["passages_per_gpu_s"] * x["gpu_utilisation"]
    embed_s = x["passages"] / rate
    stored = x["passages"] * (x["bytes_per_row"] + x["text_bytes"])
    index_cpu_s = x["passages"] * x["index_cpu_s"] / x["measured_rows"]
    shards = math.ceil(x["passages"] / x["rows_per_shard"])
    per_query_s = shards * x["query_cpu_s"]
    cores = math.ceil(x["queries_per_s"] * per_query_s / x["core_utilisation"])
    return [
        ("embedding rate", "gpus × passages_per_gpu_s × gpu_utilisation", rate, "passages/s"),
        ("time to embed", "passages / rate", embed_s / 3600, "h"),
        ("GPU cost", "gpus × time × usd_per_gpu_s", x["gpus"] * embed_s * x["usd_per_gpu_s"], "USD"),
        (
            "the same on CPUs as measured",
            "passages / cpu_passages_per_s, in years of one 2-core machine",
            x["passages"] / x["cpu_passages_per_s"] / (365.25 * 86400),
            "years",
        ),
        (
            "the same from a service",
            "passages × tokens_per_passage × usd_per_million_tokens / 10⁶",
            x["passages"] * x["tokens_per_passage"] * x["usd_per_million_tokens"] / 1e6,
            "USD",
        ),
        ("stored", "passages × (bytes_per_row + text_bytes)", stored / 1e12, "TB"),
        (
            "object store",
            "stored in GB × usd_per_gb_month",
            stored / 1e9 * x["usd_per_gb_month"],
            "USD/month",
        ),
        ("written while embedding", "stored / time to embed", stored / embed_s / 1e6, "MB/s"),
        ("indexing", "passages × index_cpu_s / measured_rows", index_cpu_s / 3600, "core hours"),
        ("shards", "passages / rows_per_shard, rounded up", shards, ""),
        (
            "bytes a shard",
            "rows_per_shard × (bytes_per_row + text_bytes)",
            x["rows_per_shard"] * (x["bytes_per_row"] + x["text_bytes"]) / 1e9,
            "GB",
        ),
        ("searches a query (fan-out)", "shards", shards, ""),
        ("processor time a query", "shards × query_cpu_s", per_query_s, "core s"),
        ("cores to search", "queries_per_s × that / core_utilisation", cores, "cores"),
        ("nodes to search", "cores / cores_per_node, rounded up", math.ceil(cores / x["cores_per_node"]), ""),
        (
            "quantile a shard must keep for the query's p50",
            "0.5 ^ (1 / shards)",
            0.5 ** (1 / shards),
            "",
        ),
        ("… for the query's p95", "0.95 ^ (1 / shards)", 0.95 ** (1 / shards), ""),
        ("recall@10 over all shards", "recall", x["recall"], ""),
    ]


def shown(value: float) -> str:
    """Three significant digits, four for shares close to 1; thousands apart."""
    if 0.9 < value < 1:
        return f"{value:.4f}"
    if value >= 1000 or float(value).is_integer():
        digits = value if float(value).is_integer() and value < 1e5 else float(f"{value:.3g}")
        return f"{digits:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def tables(inputs: Mapping[str, Mapping[str, Any]]) -> str:
    """Both tables in Markdown."""
    lines = ["| input | value | kind | source |", "|---|---|---|---|"]
    for name, one in inputs.items():
        value = f"{shown(float(one['value']))} {one['unit']}".strip()
        lines.append(f"| `{name}` | {value} | {one['kind']} | {one['source']} |")
    lines += ["", "| result | value | formula |", "|---|---|---|"]
    results = model({name: float(one["value"]) for name, one in inputs.items()})
    lines += [f"| {name} | {f'{shown(value)} {unit}'.strip()} | {formula} |"
              for name, formula, value, unit in results]  # fmt: skip
    return "\n".join(lines)


def placed(page: str, name: str, made: str) -> str:
    """``page`` with ``made`` between the marker ``name`` and the next end."""
    head, marker, rest = page.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    return f"{head}{marker}{made}\n{end}{tail}"


def whole_page(page: str) -> str:
    """``page`` with the model's tables and that of the stores as they are now."""
    measured = table(json.loads(MEASURED.read_text(encoding="utf-8")))
    page = placed(page, "model", tables(read_inputs()))
    return placed(page, "stores", f"```text\n{measured}\n```")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another input")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    inputs = read_inputs()
    for one in options.set:
        name, _, value = one.partition("=")
        if name not in inputs:
            parser.error(f"no input {name!r}; accepted: {', '.join(inputs)}")
        try:
            inputs[name] = {**inputs[name], "value": float(value), "kind": "given", "source": "--set"}
        except ValueError:
            parser.error(f"{name} is {value!r}; accepted: a number")
    if options.write:
        PAGE.write_text(whole_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(tables(inputs))


if __name__ == "__main__":
    main()
