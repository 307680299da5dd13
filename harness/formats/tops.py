"""The first few documents of every query of a run file, without reading the rest of each list."""

from __future__ import annotations

from pathlib import Path

from harness.formats.reading import DataError

__all__ = ["read_tops"]


def read_tops(path: Path, depth: int = 10) -> dict[str, tuple[str, ...]]:
    """Query id → the first ``depth`` document ids, both escaped as the file holds them.

    For files of :func:`harness.formats.trec.write_run`: a query's lines stand together, best first, and
    columns are parted by one blank. The end of a list is looked for where the one before would have ended,
    then by doubling steps, so that lists of 100 cost little more than lists of 10.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or a line has too few columns.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path, None, f"{error}; accepted: the run files that bench run wrote") from error
    if lines and not lines[-1]:
        lines.pop()
    out: dict[str, tuple[str, ...]] = {}
    start = length = 0
    while start < len(lines):
        query_id = lines[start].partition(" ")[0]
        end = _end_of(lines, start, query_id + " ", length)
        length = end - start
        found = []
        for number in range(start, min(start + depth, end)):
            fields = lines[number].split(" ", 3)
            if len(fields) < 4:
                raise DataError(path, number + 1, f"{len(fields)} columns; accepted: six, parted by a blank")
            found.append(fields[2])
        out[query_id] = out.get(query_id, ()) + tuple(found)
        start = end
    return out


def _end_of(lines: list[str], start: int, head: str, length: int) -> int:
    """The first line after ``start`` that does not begin with ``head``; ``length`` is tried first."""
    likely = start + length
    inside = start < likely <= len(lines) and lines[likely - 1].startswith(head)
    if inside and (likely == len(lines) or not lines[likely].startswith(head)):
        return likely
    known, step = start, 1
    while known + step < len(lines) and lines[known + step].startswith(head):
        known, step = known + step, step * 2
    other = min(known + step, len(lines))
    while other - known > 1:
        middle = (known + other) // 2
        if lines[middle].startswith(head):
            known = middle
        else:
            other = middle
    return other
