"""Which form a JSON file may have, told from the keys in it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["json_file"]

#: Bytes looked at, at the start of a file; its keys occur long before.
LOOKED_BYTES = 8 << 20
OURS = {"dataset.json"}


def json_file(path: Path, *keys: bytes) -> Path | None:
    """``path``, or the one JSON file inside it, if all of ``keys`` occur in it; else None."""
    if path.is_dir():
        inside = [file for file in path.glob("*.json") if file.name not in OURS]
        if len(inside) != 1:
            return None
        path = inside[0]
    if path.suffix != ".json" or not path.is_file():
        return None
    if keys:
        with path.open("rb") as file:
            head = file.read(LOOKED_BYTES)
        if not all(key in head for key in keys):
            return None
    return path
