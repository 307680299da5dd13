"""Writing what was tuned into ``[search]`` of a ``rag.toml``; everything else there stays as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.results import write_atomic
from rag_core.errors import InvalidArgumentError

__all__ = ["OWNED", "with_search", "write_search"]

#: Keys that are replaced, and removed where the tuned setting does not name them.
OWNED = ("pipeline", "fusion", "weights", "candidate_pool", "rrf_k")
HEADER = re.compile(r"^\s*\[\s*search\s*\]\s*(#.*)?$")
ANY_HEADER = re.compile(r"^\s*\[")


def write_search(path: Path, values: Mapping[str, Any], notes: Sequence[str], owned: Sequence[str]) -> None:
    """Set the keys of ``[search]`` in ``path``, which need not exist yet; whole or not at all.

    Args:
        values: keys and values.
        notes: comments that stand above them.
        owned: keys to remove where ``values`` has none.

    Raises:
        InvalidArgumentError: the file is not TOML, or writes ``[search]`` in a form that cannot be changed
            line by line; it is left as it was.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        tomllib.loads(before)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgumentError(f"{path} cannot be changed: {error}; accepted: another --out") from error
    write_atomic(path, with_search(before, values, notes, owned, str(path)))


def with_search(
    text: str, values: Mapping[str, Any], notes: Sequence[str], owned: Sequence[str], name: str = "rag.toml"
) -> str:
    """``text`` with those keys in ``[search]``.

    Raises:
        InvalidArgumentError: as :func:`write_search`.
    """
    lines, out, inside, placed = text.splitlines(), [], False, False
    new = [*(f"# {note}" for note in notes), *(f"{key} = {_toml(value)}" for key, value in values.items())]
    gone = {*owned, *values}
    for line in lines:
        if ANY_HEADER.match(line):
            inside = bool(HEADER.match(line))
        key = line.partition("=")[0].strip().strip("\"'")
        if inside and (key in gone or line.startswith("# bench tune")):
            continue
        out.append(line)
        if inside and HEADER.match(line):
            out += new
            placed = True
    if not placed:
        out += [*([""] if out and out[-1].strip() else []), "[search]", *new]
    made = "\n".join(out) + "\n"
    expected = tomllib.loads(text)
    kept = {key: value for key, value in expected.get("search", {}).items() if key not in gone}
    try:
        right = tomllib.loads(made) == {**expected, "search": {**kept, **values}}
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise InvalidArgumentError(
            f"{name} writes [search] in a form that is not changed line by line; accepted: a plain table "
            f"[search] with a key a line, or another --out. The tuned keys: {'; '.join(new[len(notes) :])}"
        )
    return made


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else repr(value)
