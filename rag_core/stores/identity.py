"""Whose vectors a store holds: vectors of two embedders never meet.

The stores that leave their rows to a database keep ``store.json`` beside it, written when the database is
there: a folder without it holds no store, whatever else a crash left in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rag_core.errors import IdentityMismatchError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.stores.files import replace_file

__all__ = ["IDENTITY_FILE", "check_identity", "read_identity", "refuse_existing", "write_identity"]

FORMAT = 1
IDENTITY_FILE = "store.json"
#: Files that tell that a folder holds a store of some kind.
MARKS = (IDENTITY_FILE, "manifest.json")


def check_identity(store: object, stored: Fingerprint, wanted: Fingerprint | None) -> None:
    """Refuse ``wanted`` when the store was built by another embedder; None skips the check.

    Raises:
        IdentityMismatchError: names both embedders, what differs and how to rebuild.
    """
    if wanted is None or wanted == stored:
        return
    raise IdentityMismatchError(
        f"{store} was built with {stored}, but the embedder at hand is {wanted}; "
        f"they differ in {'; '.join(stored.differences(wanted))} (store / embedder). "
        f"Open it with {stored.provider!r}, or rebuild it: rag rebuild --provider {wanted.provider}"
    )


def refuse_existing(path: Path) -> None:
    """Raises StoreError where ``path`` holds a store of any kind."""
    if any((path / name).exists() for name in MARKS):
        raise StoreError(f"{path} already holds a store; open it, or delete the folder first")


def write_identity(path: Path, store: str, identity: Fingerprint, settings: Mapping[str, Any]) -> None:
    """Write ``store.json``, whole or not at all: the kind of store, its settings, the fingerprint."""
    content = {"format": FORMAT, "store": store, "settings": dict(settings), "identity": identity.as_dict()}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    replace_file(path / IDENTITY_FILE, lambda stream: stream.write(text.encode("utf-8")))


def read_identity(path: Path, store: str) -> tuple[Fingerprint, dict[str, Any]]:
    """Fingerprint and settings of the store of kind ``store`` in ``path``.

    Raises:
        StoreError: no store of that kind there, or the file is damaged.
    """
    file = path / IDENTITY_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise StoreError(f"{path}: store format {content['format']!r}; accepted: {FORMAT}")
        if content["store"] != store:
            raise StoreError(f"{path} holds a store of kind {content['store']!r}, not {store!r}")
        return Fingerprint.from_dict(content["identity"]), dict(content["settings"])
    except FileNotFoundError as error:
        raise StoreError(f"{path} holds no {store} store ({IDENTITY_FILE} is missing)") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{file} is damaged: {error}; rebuild the store") from error
