"""Fail when `rag_core` or `providers` fall below 90 % of lines or 85 % of branches covered by the tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

LINES, BRANCHES = 90.0, 85.0
PACKAGES = ("rag_core", "providers")


def shares(files: dict[str, dict[str, dict[str, int]]], package: str) -> tuple[float, float]:
    """Percent of lines and of branches of ``package`` that ran."""
    found = [entry["summary"] for name, entry in files.items() if Path(name).parts[0] == package]
    if not found:
        raise SystemExit(f"no coverage was recorded for {package}")
    total = {
        key: sum(summary[key] for summary in found)
        for key in found[0]
        if key.startswith(("num_", "covered_"))
    }
    lines = 100 * total["covered_lines"] / total["num_statements"]
    branches = 100 * total["covered_branches"] / max(1, total["num_branches"])
    return lines, branches


def main(path: str) -> int:
    """Print the shares; 1 when one is too low."""
    files = json.loads(Path(path).read_text(encoding="utf-8"))["files"]
    low = False
    for package in PACKAGES:
        lines, branches = shares(files, package)
        verdict = "ok" if lines >= LINES and branches >= BRANCHES else "TOO LOW"
        low |= verdict != "ok"
        shown = f"{lines:.1f} % of lines (>= {LINES}), {branches:.1f} % of branches (>= {BRANCHES})"
        print(f"coverage {package}: {shown}: {verdict}")
    return int(low)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
