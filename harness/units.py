"""Durations, sizes and amounts as people type them: ``500ms``, ``1.5GiB``, ``$0.5``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from rag_core.errors import InvalidArgumentError

__all__ = ["parse_bytes", "parse_duration_s", "parse_usd"]

NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([^0-9.\s]*)", re.IGNORECASE)
SECONDS: Mapping[str, float] = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
BYTES: Mapping[str, float] = {
    "b": 1.0,
    **{f"{letter}b": 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
USD: Mapping[str, float] = {"": 1.0, "usd": 1.0}


def parse_duration_s(text: str, option: str) -> float:
    """Seconds of ``500ms``, ``0.5s``, ``2min``; a number without a unit is refused.

    Raises:
        InvalidArgumentError: naming ``option``, what was seen and what is accepted.
    """
    return _parse(text, option, SECONDS, "a number above 0 with us, ms, s or min, for example 500ms or 0.5s")


def parse_bytes(text: str, option: str) -> float:
    """Bytes of ``2GB`` (10⁹) or ``1.5GiB`` (2³⁰), in any case of the letters.

    Raises:
        InvalidArgumentError: as :func:`parse_duration_s`.
    """
    accepted = "a number above 0 with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, for example 2GB or 1.5GiB"
    return _parse(text, option, BYTES, accepted)


def parse_usd(text: str, option: str) -> float:
    """US dollars of ``0.5``, ``$0.5`` or ``0.5 USD``; 0 is accepted.

    Raises:
        InvalidArgumentError: as :func:`parse_duration_s`.
    """
    accepted = "an amount in US dollars from 0, for example 0.5, $0.5 or 0.5USD"
    return _parse(text.strip().removeprefix("$"), option, USD, accepted, text, or_zero=True)


def _parse(
    text: str, option: str, units: Mapping[str, float], accepted: str, seen: str = "", or_zero: bool = False
) -> float:
    found = NUMBER.fullmatch(text.strip())
    factor = units.get(found[2].lower()) if found else None
    value = float(found[1]) * factor if found and factor is not None else math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and not or_zero):
        raise InvalidArgumentError(f"{option} {seen or text!r}; accepted: {accepted}")
    return value
