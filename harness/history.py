"""Results of many runs in one folder, in the order of their dates; what cannot be read is named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.results import ResultDocument, ResultError, load_result
from harness.rows import clean

__all__ = ["History", "Night", "read_history"]

FILE = "result.json"


@dataclass(frozen=True, slots=True)
class Night:
    """One run: where its result lies, as seen from the folder that was asked for, and what it holds."""

    where: str
    document: ResultDocument

    @property
    def date(self) -> str:
        """The day of the run, UTC."""
        return self.moment.date().isoformat()

    @property
    def moment(self) -> datetime:
        """When the run began."""
        return _moment(self.document.created)


@dataclass(frozen=True, slots=True)
class History:
    """Every run below a folder, the oldest first, and (file, reason) of each that cannot be used."""

    nights: tuple[Night, ...]
    unreadable: tuple[tuple[str, str], ...] = ()

    def of(self, name: str) -> tuple[Night, ...]:
        """The runs on the data set of that name."""
        return tuple(night for night in self.nights if night.document.name == name)

    @property
    def names(self) -> list[str]:
        """The data sets, in the order of their first run."""
        return list(dict.fromkeys(night.document.name for night in self.nights))


def read_history(folder: Path) -> History:
    """Read every ``result.json`` below ``folder``; folders whose names begin with a dot are left out.

    Raises:
        ResultError: no such folder, or no result in it can be read; with the path and the reasons.
    """
    if not folder.is_dir():
        raise ResultError(f"{folder}: no such folder; make results with: bench run --out {folder}/DATE")
    nights, unreadable = [], []
    for file in sorted(folder.rglob(FILE)):
        where = file.relative_to(folder).parent
        if any(part.startswith(".") for part in where.parts):
            continue
        try:
            document = clean(load_result(file))
            _moment(document.created)
            nights.append(Night(where.as_posix(), document))
        except ResultError as error:
            unreadable.append((str(file), str(error).removeprefix(f"{file}: ")))
        except (AttributeError, TypeError, ValueError) as error:  # JSON of the right version, wrong within
            unreadable.append((str(file), f"not a result document: {error}"))
    if not nights:
        reasons = "; ".join(f"{file}: {reason}" for file, reason in unreadable[:3])
        raise ResultError(
            f"{folder}: no readable {FILE} in any folder below"
            + (f" ({len(unreadable)} unreadable: {reasons})" if reasons else "")
            + f"; make results with: bench run --out {folder}/DATE"
        )
    nights.sort(key=lambda night: (night.moment, night.where))
    return History(tuple(nights), tuple(unreadable))


def _moment(created: str) -> datetime:
    try:
        found = datetime.fromisoformat(created)
    except (TypeError, ValueError):
        raise ResultError(f"created is {created!r}; accepted: a date as 2026-11-30T03:17:00Z") from None
    if found.tzinfo is None:
        raise ResultError(f"created is {created!r}; accepted: a date with its zone, as 2026-11-30T03:17:00Z")
    return found
