"""Joining several rankings of the same query into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rag_core.errors import UnknownNameError
from rag_core.fusion.adaptive import adaptive
from rag_core.fusion.legs import Evidence, Fused, Leg
from rag_core.fusion.ranks import fuse_ranks, rrf
from rag_core.fusion.scores import convex, relative, zscore

__all__ = [
    "METHODS",
    "Evidence",
    "Fused",
    "Leg",
    "adaptive",
    "check_method",
    "convex",
    "fuse",
    "relative",
    "rrf",
    "zscore",
]

_BY_SCORES: Mapping[str, Callable[[Sequence[Leg], Sequence[float] | None], Fused]] = {
    "relative": relative,
    "zscore": zscore,
    "convex": convex,
    "adaptive": adaptive,
}
#: Names that :func:`fuse` takes; the first is the default everywhere.
METHODS = ("rrf", *_BY_SCORES)


def check_method(method: str) -> None:
    """Refuse a method that does not exist.

    Raises:
        UnknownNameError: ``method`` is none of :data:`METHODS`.
    """
    if method not in METHODS:
        raise UnknownNameError(f"fusion {method!r}; accepted: {', '.join(METHODS)}")


def fuse(
    legs: Sequence[Leg], method: str = "rrf", *, k: float = 60.0, weights: Sequence[float] | None = None
) -> Fused:
    """Fuse ``legs`` by the method of that name; an explanation comes with the list.

    Args:
        k: constant of ``rrf``; the others have none.
        weights: one per leg, see the method; None leaves the legs equal.

    Raises:
        UnknownNameError: no method of that name.
        InvalidArgumentError: bad ``k`` or ``weights``.
    """
    check_method(method)
    if method == "rrf":
        return fuse_ranks(legs, k, weights)
    return _BY_SCORES[method](legs, weights)
