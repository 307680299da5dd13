"""Ids and metadata of the exact store's rows: mapped, looked up by hash, rewritten without being parsed.

A million rows as Python objects take several hundred megabytes; here they take what is read of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rag_core.packed import PackedStrings, let_go, packed
from rag_core.stores.arrayfile import map_arrays, write_parts

__all__ = ["Change", "FlatRows"]

#: Bytes copied, and rows whose metadata are parsed, at a time.
COPIED_BYTES, PARSED_ROWS = 1 << 22, 8192
#: Forms of metadata whose answer to a filter is remembered: rows of one file or topic share theirs.
REMEMBERED = 1 << 16
Array = NDArray[Any]
Test = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Change:
    """How new rows follow from old ones: first those kept, in their order, then those added.

    Attributes:
        kept: old rows that stay, ascending int64; None for all.
        replaced: new row number -> position in what is given, of kept rows that change.
        added: positions in what is given of the rows that follow.
    """

    kept: Array | None = None
    replaced: Mapping[int, int] = field(default_factory=dict)
    added: Sequence[int] = ()

    def count(self, n_old: int) -> int:
        """Rows there will be."""
        return (n_old if self.kept is None else len(self.kept)) + len(self.added)


class FlatRows:
    """``ids[row]`` and the JSON of ``metadata[row]``; see :meth:`find`.

    The file holds the blob (uint8) and the offsets (int64) of the ids and of the metadata, then the hashes
    of the ids in ascending order (uint64) and the row of each (int64).
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        """``arrays`` as the file holds them; ValueError where they do not belong together."""
        names = ("id blob", "id offsets", "metadata blob", "metadata offsets", "hashes", "rows")
        if len(arrays) != len(names):
            raise ValueError(f"{len(arrays)} arrays where {len(names)} belong")
        self._arrays = list(arrays)
        blob, offsets, metadata, metadata_offsets, self._hashes, self._places = arrays
        sizes = {len(offsets) - 1, len(metadata_offsets) - 1, len(self._hashes), len(self._places)}
        if len(sizes) != 1 or int(offsets[-1]) != blob.size or int(metadata_offsets[-1]) != metadata.size:
            raise ValueError("ids, metadata and hashes of different numbers of rows")
        self.ids = PackedStrings(blob, offsets)
        self.metadata = PackedStrings(metadata, metadata_offsets)

    @classmethod
    def of(cls, ids: Sequence[str], metadata: Sequence[str]) -> FlatRows:
        """Rows in memory; ``metadata`` as JSON texts."""
        encoded = [doc_id.encode() for doc_id in ids]
        hashes = _hashes(encoded)
        order = np.argsort(hashes, kind="stable")
        fields = [text.encode() for text in metadata]
        return cls([*packed(encoded), *packed(fields), hashes[order], order.astype(np.int64)])

    @classmethod
    def open(cls, path: Path) -> FlatRows:
        """Map what :meth:`write` wrote. OSError, ValueError: the file is missing or damaged."""
        return cls(map_arrays(path))

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, ids: Sequence[str]) -> Array:
        """The row of each id, int64 ``(n,)``; -1 where there is none."""
        found = np.full(len(ids), -1, np.int64)
        if not len(self) or not ids:
            return found
        wanted = _hashes([doc_id.encode("utf-8", "surrogatepass") for doc_id in ids])
        at = np.searchsorted(self._hashes, wanted)
        for position, doc_id in enumerate(ids):
            place, key = int(at[position]), wanted[position]
            while place < len(self) and self._hashes[place] == key:
                row = int(self._places[place])
                if self.ids[row] == doc_id:
                    found[position] = row
                    break
                place += 1  # another id of the same hash
        return found

    def matching(self, test: Test) -> NDArray[np.bool_]:
        """Which rows have metadata that satisfy ``test``, bool ``(n,)``."""
        blob, offsets, n = self._arrays[2], self._arrays[3], len(self)
        mask, known = np.zeros(n, np.bool_), dict[bytes, bool]()
        for start in range(0, n, PARSED_ROWS):
            ends = offsets[start : start + PARSED_ROWS + 1].tolist()
            text, base = blob[ends[0] : ends[-1]].tobytes(), ends[0]
            forms = [text[a - base : b - base] for a, b in pairwise(ends)]
            new = [form for form in dict.fromkeys(forms) if form not in known]
            known.update(zip(new, map(test, json.loads(b"[" + b",".join(new) + b"]"))))
            mask[start : start + len(forms)] = [known[form] for form in forms]
            if len(known) > REMEMBERED:
                known.clear()
        return mask

    def write(self, stream: IO[bytes], change: Change, ids: Sequence[str], metadata: Sequence[str]) -> None:
        """Write the rows that ``change`` makes of these and of ``ids`` and ``metadata``, JSON texts."""
        blob, offsets, fields, field_offsets, _, _ = self._arrays
        added = [ids[position].encode() for position in change.added]
        _splice(stream, blob, offsets, change, {}, added)
        new = {row: metadata[position].encode() for row, position in change.replaced.items()}
        _splice(
            stream,
            fields,
            field_offsets,
            change,
            new,
            [metadata[position].encode() for position in change.added],
        )
        hashes, places = self._hashes, self._places
        n_kept = len(self)
        if change.kept is not None:
            moved = np.full(len(self), -1, np.int64)
            moved[change.kept] = np.arange(len(change.kept))
            places = moved[places]
            hashes, places = hashes[places >= 0], places[places >= 0]
            n_kept = len(change.kept)
        hashes = np.concatenate([hashes, _hashes(added)])
        places = np.concatenate([places, np.arange(n_kept, n_kept + len(added))])
        order = np.argsort(hashes, kind="stable")
        write_parts(stream, hashes.shape, np.uint64, [hashes[order]])
        write_parts(stream, places.shape, np.int64, [places[order]])
        let_go(self._places)  # one mapping holds all arrays


def _hashes(encoded: Sequence[bytes]) -> NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(one, digest_size=8).digest() for one in encoded)
    return np.frombuffer(digests, "<u8")


def _splice(
    stream: IO[bytes],
    blob: Array,
    offsets: Array,
    change: Change,
    replaced: Mapping[int, bytes],
    added: Sequence[bytes],
) -> None:
    """Write the blob and the offsets of strings that ``change`` makes of old and new ones."""
    lengths, starts = np.diff(offsets), offsets[:-1]
    if change.kept is not None:
        lengths, starts = lengths[change.kept], starts[change.kept]
    sources = lengths.copy()
    for row, text in replaced.items():
        lengths[row] = len(text)
    total = int(lengths.sum()) + sum(map(len, added))

    def parts() -> Iterator[Array]:
        # runs of strings that stand one after the other are copied whole
        breaks = np.flatnonzero(starts[1:] != starts[:-1] + sources[:-1]) + 1
        single = np.fromiter(replaced, np.int64, len(replaced))
        edges = np.unique(np.concatenate([[0, len(starts)], breaks, single, single + 1]))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist()):
            if first in replaced:
                yield np.frombuffer(replaced[first], np.uint8)
                continue
            stop = int(starts[last - 1] + sources[last - 1])
            for at in range(int(starts[first]), stop, COPIED_BYTES):
                yield blob[at : min(stop, at + COPIED_BYTES)]
                let_go(blob)
        if added:
            yield np.frombuffer(b"".join(added), np.uint8)

    write_parts(stream, (total,), np.uint8, parts())
    made = np.zeros(len(lengths) + len(added) + 1, np.int64)
    np.cumsum(np.concatenate([lengths, np.fromiter(map(len, added), np.int64, len(added))]), out=made[1:])
    write_parts(stream, made.shape, np.int64, [made])
