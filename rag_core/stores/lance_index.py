"""The index of vectors of a LanceDB table: the kind that the number of rows asks for, and its upkeep.

Apart from the store, as another machine that reaches the table can do it as well: for a million rows it takes
minutes, and HNSW is built in memory, all vectors at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rag_core.extras import require

__all__ = [
    "BY_SIZE",
    "INDEXES",
    "KEPT_VERSIONS",
    "TABLE",
    "IndexKind",
    "Upkeep",
    "connect",
    "due",
    "index_for",
    "index_of",
    "package",
]

TABLE, INDEX = "rows", "vector_idx"
#: Rows outside the index, as a share of those in it, from which the index takes them in.
STALE_SHARE = 0.1
#: Rows taken in are a part of the index of their own, coded as the first rows taught, and a search looks into
#: all parts: from this many on the index is learned anew, from all rows. By then it has doubled.
MOST_PARTS = 8
#: Of fewer rows nothing can be learned: there are as many centres.
LEAST_ROWS = 256
#: What a scan reads ahead. LanceDB's own 2 GiB would take in all of a table that is joined or looked through.
READ_AHEAD_BYTES = 1 << 24
#: A reader may go on with the version it began with for this long.
KEPT_VERSIONS = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class IndexKind:
    """How one kind of index is built and asked.

    Attributes:
        config: class of ``lancedb.index``.
        reported: what LanceDB calls a built one.
        build: its arguments beside the distance.
        ask: calls on a query, name -> argument.
    """

    config: str
    reported: str
    build: Mapping[str, Any]
    ask: Mapping[str, int]


#: Rows from which the kind holds, with ``index=auto``.
BY_SIZE: Sequence[tuple[int, str]] = ((0, "flat"), (100_000, "hnsw_sq"), (2_000_000, "ivf_pq"))
#: At 100,000 x 384 in 1,000 clusters HNSW finds all of the exact top 10 in a hundredth of the time of
#: LanceDB's scan, IVF-PQ all of it (0.993 under a filter) in a twenty-sixth; building the index takes 16 to
#: 20 times as long as writing the rows. ``benchmarks/stores.py`` measures it.
INDEXES: Mapping[str, IndexKind | None] = {
    "flat": None,
    "hnsw_sq": IndexKind(
        "HnswSq", "IvfHnswSq", {"m": 20, "ef_construction": 300}, {"nprobes": 20, "ef": 200}
    ),
    "ivf_pq": IndexKind("IvfPq", "IvfPq", {}, {"nprobes": 40, "refine_factor": 20}),
}


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What an index lacks; called, it sees to that, wherever the table can be reached.

    Attributes:
        place: of the database: a folder, or an address.
        kind: of the index afterwards.
        dim: width of the vectors.
        is_learned: whether it is built from all rows; else it takes in those it lacks, and small files are
            joined.
    """

    place: str
    kind: str
    dim: int
    is_learned: bool

    def __str__(self) -> str:
        return f"the index {self.kind} of the vectors in {self.place}"

    def __call__(self) -> None:
        """Do it.

        Raises:
            MissingExtraError: LanceDB is not installed here.
            OSError, RuntimeError, ValueError: whatever LanceDB says.
        """
        table = connect(self.place).open_table(TABLE)
        made = INDEXES[self.kind]
        if made is None or not self.is_learned:
            table.optimize(cleanup_older_than=KEPT_VERSIONS)
            return
        learned = {"num_sub_vectors": sub_vectors(self.dim)} if self.kind == "ivf_pq" else {}
        kinds = require("store 'lancedb'", "lancedb.index", "lancedb")
        config = getattr(kinds, made.config)(distance_type="cosine", **made.build, **learned)
        table.create_index("vector", config=config, replace=True)


def due(table: Any, place: str, setting: str, has: str, *, is_untidy: bool) -> Upkeep | None:
    """What the index of ``table`` lacks, None for nothing.

    Args:
        table: of ``place``, open.
        setting: the store's option ``index``.
        has: kind of the index there is.
        is_untidy: whether there are many small files.
    """
    n_rows = int(table.count_rows())
    kind, dim = index_for(setting, n_rows), table.schema.field("vector").type.list_size
    if INDEXES[kind] is None or n_rows < LEAST_ROWS:
        return Upkeep(place, has, dim, is_learned=False) if is_untidy else None
    stats = None if kind != has else table.index_stats(INDEX)
    is_stale, parts = False, 1
    if stats is not None:
        is_stale = stats.num_unindexed_rows > STALE_SHARE * stats.num_indexed_rows
        parts = stats.num_indices or 1
    is_learned = kind != has or (is_stale and parts >= MOST_PARTS)
    return Upkeep(place, kind, dim, is_learned) if is_learned or is_stale or is_untidy else None


def index_for(setting: str, n_rows: int) -> str:
    """The kind of index for ``n_rows``: ``setting`` itself, or by size where it is ``auto``."""
    if setting != "auto":
        return setting
    return [kind for least, kind in BY_SIZE if n_rows >= least][-1]


def index_of(table: Any) -> str:
    """The kind of index that an open table has; ``flat`` for none."""
    made = {found.index_type for found in table.list_indices()}
    kinds = [name for name, kind in INDEXES.items() if kind is not None and kind.reported in made]
    return (kinds or ["flat"])[0]


def sub_vectors(dim: int) -> int:
    """Parts of a vector that are coded apart: the most that divide it with at least 8 columns each."""
    return next(parts for parts in range(max(1, dim // 8), 0, -1) if dim % parts == 0)


def package() -> Any:
    """LanceDB, imported.

    Raises:
        MissingExtraError: it is not installed.
    """
    # else it warns of every table that is new; it reads both when it is imported
    os.environ.setdefault("LANCEDB_LOG", "error")
    os.environ.setdefault("LANCE_DEFAULT_IO_BUFFER_SIZE", str(READ_AHEAD_BYTES))
    return require("store 'lancedb'", "lancedb", "lancedb")


def connect(place: str) -> Any:
    """The database in ``place``; every call sees what other processes have committed."""
    return package().connect(place, read_consistency_interval=timedelta(0))
