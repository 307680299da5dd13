"""Shards and fragments: texts that wait for a worker, and the vectors it made, one Parquet file each.

A shard has the columns ``tag`` (16 bytes: digest of the text) and ``text`` (UTF-8; a lone surrogate stands as
Python encodes it). A fragment has ``tag`` and ``vector`` (float32, fixed width), and says in the metadata of
its file whose vectors they are and how many texts were embedded for it. Both appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_core import extras
from rag_core.index_files import write_whole
from rag_core.protocols import Vectors

__all__ = ["fragment_name", "read_fragment", "read_shard", "texts_embedded", "write_fragment", "write_shard"]

ABOUT = b"rag_core.fragment"
TAG_BYTES = 16


def write_shard(path: Path, tags: Sequence[bytes], texts: Sequence[str]) -> None:
    """Write ``texts`` under their ``tags``.

    Raises:
        OSError: the disk is full or refuses.
        MissingExtraError: pyarrow is not installed.
    """
    pa = _pyarrow()
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    table = pa.table({"tag": pa.array(tags, pa.binary(TAG_BYTES)), "text": pa.array(encoded, pa.binary())})
    _write(path, table)


def read_shard(path: Path) -> Iterator[tuple[bytes, str]]:
    """``(tag, text)`` of :func:`write_shard`, in its order."""
    table = _read(path)
    for tag, text in zip(table["tag"].to_pylist(), table["text"].to_pylist()):
        yield tag, text.decode("utf-8", "surrogatepass")


def fragment_name(tags: Sequence[bytes], identity: str) -> str:
    """Name of the fragment of these texts by the embedder whose fingerprint has the digest ``identity``."""
    return f"{hashlib.sha256(identity.encode() + b''.join(tags)).hexdigest()[:32]}.parquet"


def write_fragment(path: Path, tags: Sequence[bytes], vectors: Vectors, about: dict[str, Any]) -> None:
    """Write ``vectors``, float32 ``(n, dim)``, under ``tags``, and ``about`` as JSON.

    Raises:
        OSError: the disk is full or refuses.
        MissingExtraError: pyarrow is not installed.
    """
    pa = _pyarrow()
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).ravel())
    columns = {
        "tag": pa.array(tags, pa.binary(TAG_BYTES)),
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
    }
    table = pa.table(columns).replace_schema_metadata({ABOUT: json.dumps(about).encode()})
    _write(path, table)


def read_fragment(path: Path) -> tuple[list[bytes], Vectors]:
    """Tags, and vectors float32 ``(n, dim)``.

    Raises:
        OSError, ValueError, KeyError: the file is damaged.
        MissingExtraError: pyarrow is not installed.
    """
    table = _read(path).combine_chunks()
    width = table.schema.field("vector").type.list_size
    found = [chunk.flatten().to_numpy() for chunk in table["vector"].chunks]
    vectors = np.concatenate([np.zeros(0, np.float32), *found]).reshape(-1, width)
    return table["tag"].to_pylist(), vectors


def texts_embedded(path: Path) -> int:
    """Texts that were embedded for the fragment; -1 where there is no whole one."""
    try:
        metadata = _parquet().read_schema(path).metadata or {}
        return int(json.loads(metadata[ABOUT])["embedded"])
    except (OSError, ValueError, KeyError):
        return -1


def _write(path: Path, table: Any) -> None:
    sink = _pyarrow().BufferOutputStream()
    _parquet().write_table(table, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    write_whole(path, sink.getvalue().to_pybytes())


def _read(path: Path) -> Any:
    return _parquet().read_table(path, memory_map=False, page_checksum_verification=True)


def _pyarrow() -> Any:
    return require("pyarrow")


def _parquet() -> Any:
    return require("pyarrow.parquet")


def require(package: str) -> Any:
    """Import ``package``.

    Raises:
        MissingExtraError: it is not installed; names the extra.
    """
    return extras.require("engine 'ray'", package, "ray")
