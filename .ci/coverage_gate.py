"""Fail when `rag_core` or `providers` fall below 90 % of lines or 85 % of branches covered by the tests.

Modules that need torch, MLX, fastembed or Ray run in the second environment alone and are left out, unless
`--all` says that the coverage of both environments is given.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LINES, BRANCHES = 90.0, 85.0
PACKAGES = ("rag_core", "providers")
#: Modules whose lines need the second environment.
LOCAL = (
    "providers/_export.py",
    "providers/_mlx_bert.py",
    "providers/_rerank_open.py",
    "providers/_torch_bert.py",
    "providers/_torch_device.py",
    "providers/_torch_embed.py",
    "providers/_torch_linear.py",
    "providers/_torch_modules.py",
    "providers/fastembed.py",
    "providers/mlx.py",
    "providers/st.py",
    "rag_core/scale/ahead.py",
    "rag_core/scale/ray_engine.py",
    "rag_core/scale/shards.py",
    "rag_core/scale/work.py",
)

Files = dict[str, dict[str, dict[str, int]]]


def shares(files: Files, what: str) -> tuple[float, float]:
    """Percent of the lines and of the branches in ``files`` that ran."""
    found = [entry["summary"] for entry in files.values()]
    if not found:
        raise SystemExit(f"no coverage was recorded for {what}")
    total = {
        key: sum(summary[key] for summary in found)
        for key in found[0]
        if key.startswith(("num_", "covered_"))
    }
    lines = 100 * total["covered_lines"] / total["num_statements"]
    branches = 100 * total["covered_branches"] / max(1, total["num_branches"])
    return lines, branches


def main(path: str, *options: str) -> int:
    """Print the shares; 1 when one is too low."""
    files: Files = json.loads(Path(path).read_text(encoding="utf-8"))["files"]
    left_out = () if "--all" in options else LOCAL
    groups = {
        package: {
            name: entry
            for name, entry in files.items()
            if Path(name).parts[0] == package and name not in left_out
        }
        for package in PACKAGES
    }
    low = False
    for what, chosen in groups.items():
        lines, branches = shares(chosen, what)
        verdict = "ok" if lines >= LINES and branches >= BRANCHES else "TOO LOW"
        low |= verdict != "ok"
        shown = f"{lines:.1f} % of lines (>= {LINES}), {branches:.1f} % of branches (>= {BRANCHES})"
        print(f"coverage {what}: {shown}: {verdict}")
    return int(low)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
