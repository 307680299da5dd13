"""The values of a trend: one figure of one system from run to run, and where it changed."""

from __future__ import annotations

from dataclasses import dataclass

from harness.compare import CANNOT_BE_TOLD, NOT_COMPARABLE, OK, REGRESSED, SPEED, Change, Comparison, worst
from harness.history import Night
from harness.results import CellKey

__all__ = ["ABSENT", "ChangePoint", "Point", "Track", "Trend"]

ABSENT = "absent"


@dataclass(slots=True)
class Point:
    """A figure of a system in one run.

    Attributes:
        status: ``ok``, ``failed`` or ``skipped`` as recorded, ``absent`` where the run has no such cell.
        value: None where it was not measured.
        low, high: 95 % interval of a metric's mean.
        obstacle: fields that forbid comparing the run with the one before it.
        change: against the run before (a metric), or the runs before (a figure of speed).
        shared: logarithm of the factor by which all systems together were slower than before.
        rank_p: of Mann and Whitney's test on the raw latencies of the same runs.
    """

    status: str = ABSENT
    value: float | None = None
    low: float | None = None
    high: float | None = None
    obstacle: str = ""
    change: Change | None = None
    rank_p: float | None = None
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A run from which on the figure is another one.

    ``is_creep``: no single run did it; the sum of small steps since run ``since`` did.
    """

    night: int
    change: Change
    is_creep: bool = False
    since: int = 0


@dataclass(slots=True)
class Track:
    """One figure of one system through all runs.

    Attributes:
        label: what the system is called.
        key: its identity.
        figure: a metric, or a key of :data:`harness.compare.SPEED`.
        points: one per run.
        change_points: in the order of the runs.
        first: the newest run against the first that it can be compared with, or against the given reference.
        first_night: that run's place; None for the given reference, and where there is none.
        first_obstacle: fields that forbid comparing with the given reference.
    """

    label: str
    key: CellKey
    figure: str
    points: list[Point]
    change_points: list[ChangePoint]
    first: Change | None = None
    first_night: int | None = None
    first_obstacle: str = ""

    @property
    def is_speed(self) -> bool:
        """Whether this is a figure of speed or memory."""
        return self.figure in SPEED

    @property
    def newest(self) -> Point:
        """The newest run's."""
        return self.points[-1]

    @property
    def before(self) -> Change | None:
        """The newest run against what was before it."""
        return self.newest.change

    @property
    def verdict(self) -> str:
        """Of the newest run against the one before and against the first; the worse of both."""
        if self.newest.status != OK:
            lost = self.newest.status != ABSENT and any(point.status == OK for point in self.points)
            return REGRESSED if lost else CANNOT_BE_TOLD
        if self.newest.obstacle or self.first_obstacle:
            return NOT_COMPARABLE
        found = [change.verdict for change in (self.before, self.first) if change is not None]
        return worst(found) if found else CANNOT_BE_TOLD


@dataclass(frozen=True, slots=True)
class Trend:
    """All runs on one data set.

    Attributes:
        name: of the data set.
        nights: the runs, the oldest first.
        tracks: one per system and figure, by system.
        reference: what ``first`` stands for, in words.
        latest: the newest run against the reference of the gates; None with one run and no reference.
    """

    name: str
    nights: tuple[Night, ...]
    tracks: tuple[Track, ...]
    reference: str
    latest: Comparison | None = None

    @property
    def verdict(self) -> str:
        """The worst of the tracks; another machine alone makes times untold, not the runs incomparable."""
        return worst(
            CANNOT_BE_TOLD if track.is_speed and track.verdict == NOT_COMPARABLE else track.verdict
            for track in self.tracks
            if any(point.status == OK for point in track.points)  # what never ran has no trend
        )
