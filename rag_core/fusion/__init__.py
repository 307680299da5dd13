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
    "READ",
    "Evidence",
    "Fused",
    "Leg",
    "adaptive",
    "check_method",
    "convex",
    "fuse",
    "reading_depth",
    "relative",
    "rrf",
    "zscore",
]

ADAPTIVE = "adaptive"
_BY_SCORES: Mapping[str, Callable[[Sequence[Leg], Sequence[float] | None], Fused]] = {
    "relative": relative,
    "zscore": zscore,
    "convex": convex,
    ADAPTIVE: adaptive,
}
#: Names that :func:`fuse` takes; the first is the default everywhere.
METHODS = ("rrf", *_BY_SCORES)


#: Documents that ``adaptive`` reads of each list at least: the shape of a shorter one shows less.
READ = 200


def reading_depth(method: str, candidates: int) -> int:
    """How many documents to ask of each leg where the best ``candidates`` of the fused list go on.

    ``adaptive`` reads :data:`READ` at least, and its weights then decide how many of the candidates come from
    which leg. The others take ``candidates`` of each; so does a leg alone, for which any other name stands.
    """
    return max(candidates, READ) if method == ADAPTIVE else candidates


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
