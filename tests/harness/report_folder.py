"""Run files and texts beside a result document, for the tests of the page; texts may be hostile."""

from __future__ import annotations

import json
from pathlib import Path

from harness.formats.trec import write_run
from harness.results import ResultDocument, file_name
from rag_core.types import Ranking, Run

#: What a document, a query or an id may hold.
HOSTILE = (
    "</script><script>document.title='broken'</script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "quotes \" ' ` and a \\ and ${x}",
    "line\u2028and paragraph\u2029separators",
    "half a pair: \ud83d",
    "שלום עולם \u202e desrever",
    "<!-- <script> -->",
    "a\x00b\x07c",
)


def make_folder(document: ResultDocument, folder: Path, noise_text: str = "Noise.") -> None:
    """``runs/`` with a list of up to five documents for each query, and ``runs/texts.json``.

    The first system finds each query's best document first, the others do so for every second query.
    """
    query_ids = document.dataset["query_ids"]
    for number, cell in enumerate(document.cells):
        if cell.status != "ok":
            continue
        rankings = {}
        for place, query_id in enumerate(query_ids):
            found = [f"noise {j}" for j in range(4)]
            found.insert(0 if number == 0 or place % 2 else 3, f"{query_id}-best")
            rankings[query_id] = Ranking.from_scores({d: float(-i) for i, d in enumerate(found)})
        write_run(Run("x", rankings), folder / "runs" / f"{file_name(cell.key)}.run")
    texts = {
        "hash": document.dataset["hash"],
        "queries": {q: f"text of {q}" for q in query_ids},
        "grades": {q: {f"{q}-best": 2, f"{q}-other": 1} for q in query_ids},
        "documents": {
            **{f"{q}-best": [f"Title of {q}", f"All about {q}."] for q in query_ids},
            **{f"noise {j}": ["", noise_text] for j in range(4)},
        },
    }
    (folder / "runs" / "texts.json").write_text(json.dumps(texts))


def make_hostile(document: ResultDocument, folder: Path) -> None:
    """As :func:`make_folder`, with :data:`HOSTILE` texts in queries, documents, reasons and warnings."""
    make_folder(document, folder)
    path = folder / "runs" / "texts.json"
    texts = json.loads(path.read_text())
    for place, query_id in enumerate(texts["queries"]):
        texts["queries"][query_id] = HOSTILE[place % len(HOSTILE)]
        texts["documents"][f"{query_id}-best"] = [HOSTILE[place % len(HOSTILE)]] * 2
    path.write_text(json.dumps(texts))
    document.cells[-1].reason = " ".join(HOSTILE)
    document.cells[-2].reason = HOSTILE[0]
    document.cells[0].warnings = list(HOSTILE)
    document.name = HOSTILE[1]
