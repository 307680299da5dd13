"""The check that every store makes on opening: vectors of two embedders never meet."""

from __future__ import annotations

from rag_core.errors import IdentityMismatchError, InvalidArgumentError
from rag_core.fingerprint import Fingerprint

__all__ = ["check_identity", "check_k"]


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


def check_k(k: int) -> None:
    """Raises InvalidArgumentError unless ``k`` is at least 1."""
    if k < 1:
        raise InvalidArgumentError(f"k is {k}; accepted: a whole number from 1")
