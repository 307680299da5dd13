"""What a data set says about itself: ``dataset.toml`` (ours) or ``dataset.json``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.formats.reading import DataError, read_lines, shown

__all__ = ["Description", "read_description"]


@dataclass(frozen=True, slots=True)
class Description:
    """Name, licence and the like; all optional.

    Attributes:
        languages: codes such as ``en``; those of the documents come first.
        query_languages: the queries' own, where they differ.
        headline: ids of the queries shown first.
        scope: metadata field within which each query searches; None where nothing is said.
        split: which judgements to read; empty for ``test``.
        hashes: what the content hashed to when the description was written.
    """

    name: str = ""
    description: str = ""
    licence: str = ""
    languages: tuple[str, ...] = ()
    query_languages: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()
    scope: str | None = None
    split: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict)


def read_description(folder: Path) -> Description:
    """The description in ``folder``; an empty one where there is no file.

    Raises:
        DataError: the file is not TOML or JSON, or a value has another type than accepted.
    """
    for name, parse in (("dataset.toml", tomllib.loads), ("dataset.json", json.loads)):
        file = folder / name
        if file.is_file():
            text = "\n".join(read_lines(file))
            try:
                values = parse(text)
            except ValueError as error:
                raise DataError(file, None, f"not {name.rpartition('.')[2].upper()}: {error}") from error
            if not isinstance(values, dict):
                raise DataError(file, None, f"{shown(values)} is not an object; accepted: names with values")
            return _description(file, values)
    return Description()


def _description(file: Path, values: Mapping[str, Any]) -> Description:
    languages, query_languages = (
        _strings(file, values, "languages"),
        _strings(file, values, "query_languages"),
    )
    language = _string(file, values, "language")
    if language and not languages:
        # "es->en": queries in Spanish, documents in English
        asked, _, found = language.rpartition("->")
        languages, query_languages = (found.strip(),), (asked.strip(),) if asked else ()
    hashes = values.get("hashes", {})
    if not isinstance(hashes, dict):
        raise DataError(
            file, None, f"hashes is {shown(hashes)}; accepted: corpus, queries and qrels with a digest"
        )
    return Description(
        name=_string(file, values, "name"),
        description=_string(file, values, "description") or _string(file, values, "kind"),
        licence=_string(file, values, "licence") or _string(file, values, "license"),
        languages=tuple(dict.fromkeys(languages + query_languages)),
        query_languages=query_languages,
        headline=_strings(file, values, "headline"),
        scope=_string(file, values, "scope") if "scope" in values else None,
        split=_string(file, values, "split"),
        hashes={str(key): str(value) for key, value in hashes.items()},
    )


def _string(file: Path, values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise DataError(file, None, f"{key} is {shown(value)}; accepted: a string")
    return value


def _strings(file: Path, values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = values.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(file, None, f"{key} is {shown(value)}; accepted: a list of strings")
    return tuple(value)
