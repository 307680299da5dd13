"""Margins of non-inferiority: by how much of a metric a system may be worse and still do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from harness.metrics import Metric
from harness.results import ResultDocument
from rag_core.errors import InvalidArgumentError

__all__ = ["parse_margins", "with_margins"]


def parse_margins(texts: Iterable[str]) -> dict[str, float]:
    """``{"ndcg@10": 0.01}`` for ``["ndcg@10=0.01"]``, names in the form that results use.

    Raises:
        InvalidArgumentError: not ``metric=number``, a number that is not above 0 and below 1, or two margins
            for one metric.
        UnknownNameError: no such metric.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        try:
            margin = float(value) if sign else math.nan
        except ValueError:
            margin = math.nan
        if not 0 < margin < 1:
            raise InvalidArgumentError(
                f"margin {text!r}; accepted: metric=number with a number above 0 and below 1, "
                "for example ndcg@10=0.01"
            )
        metric = str(Metric.parse(name.strip()))
        if found.setdefault(metric, margin) != margin:
            raise InvalidArgumentError(f"margins {found[metric]} and {margin} for {metric}; accepted: one")
    return found


def with_margins(document: ResultDocument, texts: Iterable[str]) -> ResultDocument:
    """``document`` judged by ``texts`` instead of its own margins; the same one where there are none.

    Raises:
        InvalidArgumentError, UnknownNameError: as :func:`parse_margins`.
    """
    given = list(texts)
    if not given:
        return document
    parse_margins(given)
    return replace(document, spec={**document.spec, "margins": given})
