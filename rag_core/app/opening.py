"""Opening an index from a command: what it was built with, and errors that name the command to type."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import cast

from rag_core.app.settings import recorded_chain
from rag_core.errors import IdentityMismatchError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.index import Index
from rag_core.protocols import EmbedProvider
from rag_core.service import EmbeddingService

__all__ = ["open_index", "recorded"]


def recorded(folder: Path) -> list[str]:
    """The spec strings of the chain that the index in ``folder`` was built with.

    Raises:
        StoreError: no index there.
    """

    def identity() -> Fingerprint:
        with closing(Index.open(folder, check_store=False)) as index:
            return index.identity

    if not Index.is_index(folder):
        raise StoreError(f"{folder} holds no index; make one: rag ingest FOLDER --index {folder}")
    return recorded_chain(folder, identity)


def open_index(folder: Path, service: EmbeddingService) -> Index:
    """:meth:`rag_core.index.Index.open`, whose refusal names the command that rebuilds this index."""
    try:
        return Index.open(folder, cast(EmbedProvider, service))
    except IdentityMismatchError as error:
        said = str(error).replace("rag rebuild --provider", f"rag rebuild --index {folder} --provider")
        if f"--index {folder}" not in said:
            said += f"; rebuild: rag rebuild --index {folder} --provider {service.name}"
        raise IdentityMismatchError(said) from error
