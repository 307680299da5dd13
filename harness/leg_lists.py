"""The lists of both legs with their scores, as a run leaves them for `bench tune`.

Fusion is arithmetic on them. They stand in ``runs/<vector cell>.legs.json.gz``; the run files beside them
cannot serve: where two scores of a query are equal they hold ranks in their place.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.formats.reading import DataError
from harness.results import CellKey, file_name
from rag_core.fusion import Evidence, Leg
from rag_core.index_files import write_whole
from rag_core.types import Ranking

__all__ = ["COSINE_FLOOR", "LegLists", "legs_file"]

VERSION = 1
#: The least score that the vector leg could give any document.
COSINE_FLOOR = -1.0


@dataclass(frozen=True, slots=True)
class LegLists:
    """Both lists of each query that neither leg failed on.

    Attributes:
        depth: documents asked of each leg.
        vector, bm25: query id -> list, scores higher better.
        evidence: query id -> what the BM25 index knows of it; empty where the engine has none.
    """

    depth: int
    vector: Mapping[str, Ranking]
    bm25: Mapping[str, Ranking]
    evidence: Mapping[str, Evidence]

    def legs(self, query_id: str, depth: int) -> tuple[Leg, Leg]:
        """What a search with ``depth`` candidates a leg fuses, vectors first."""
        near, words = self.vector[query_id], self.bm25[query_id]
        return (
            Leg("vector", near.top(depth) if len(near) else near, depth=depth, floor=COSINE_FLOOR),
            Leg("bm25", words.top(depth) if len(words) else words, self.evidence.get(query_id), depth),
        )

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all; the same lists give the same bytes."""
        queries = {
            query_id: {
                "vector": [near.doc_ids, near.scores],
                "bm25": [self.bm25[query_id].doc_ids, self.bm25[query_id].scores],
                **({"evidence": asdict(self.evidence[query_id])} if query_id in self.evidence else {}),
            }
            for query_id, near in self.vector.items()
            if query_id in self.bm25
        }
        values = {"legs_version": VERSION, "depth": self.depth, "queries": queries}
        text = json.dumps(values, separators=(",", ":"))  # escaped: an id may hold what UTF-8 cannot
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, gzip.compress(text.encode(), compresslevel=3, mtime=0))

    @classmethod
    def read(cls, path: Path) -> LegLists:
        """The inverse of :meth:`write`.

        Raises:
            DataError: no such file, or not one of this kind; with the next command.
        """
        try:
            values = json.loads(gzip.decompress(path.read_bytes()))
            if values["legs_version"] != VERSION:
                raise DataError(path, None, f"version {values['legs_version']}; accepted: {VERSION}")
            queries = values["queries"]
            lists = {
                leg: {q: Ranking.from_scores(zip(*found[leg])) for q, found in queries.items()}
                for leg in ("vector", "bm25")
            }
            evidence = {
                q: Evidence(**found["evidence"]) for q, found in queries.items() if "evidence" in found
            }
            return cls(int(values["depth"]), lists["vector"], lists["bm25"], evidence)
        except FileNotFoundError as error:
            raise DataError(
                path, None, "no lists of both legs were kept; make them with: bench run --fresh, with the "
                "pipelines vector, bm25 and hybrid"
            ) from error  # fmt: skip
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise DataError(path, None, f"not lists of a run: {type(error).__name__}: {error}") from error


def legs_file(runs: Path, vector: CellKey) -> Path:
    """Where the lists of that vector cell and of BM25 stand."""
    return runs / f"{file_name(vector)}.legs.json.gz"
