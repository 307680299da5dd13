"""Results of many runs as a trend: each system's quality and speed from run to run, and where it changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.compare import CANNOT_BE_TOLD, IMPROVED, OK, REGRESSED, SPEED, Change, Comparison, compare_clean
from harness.history import Night
from harness.results import CellKey, ResultDocument
from harness.rows import labels, main_metric
from harness.trend_pairs import UNKNOWN, Pairs, identity
from harness.trend_speed import TREND_SURE, follow_speed
from harness.trend_tracks import ChangePoint, Point, Track, Trend

__all__ = ["DEFAULT_SPEED", "default_figures", "trend"]

DEFAULT_SPEED = "p95_s"
CHANGED = (REGRESSED, IMPROVED)
LOST = ("failed", "skipped")


def trend(
    nights: Sequence[Night],
    figures: Sequence[str] = (),
    *,
    against: ResultDocument | None = None,
    allow_other_machine: bool = False,
) -> Trend:
    """The trend of runs on one data set.

    Quality is paired by query with the run before, and with the run since which it has not changed, so that
    small steps in one direction are not each excused. Speed: :mod:`harness.trend_speed`. A change counts
    where its p value, corrected for the systems tested beside it, is below 0.01.

    Args:
        nights: at least one, the oldest first.
        figures: metrics and keys of :data:`harness.compare.SPEED`; the main metric and p95 where none.
        against: the result that the newest run is held against, as :func:`harness.rows.clean` made it; else
            the first run that each system can be compared with.
        allow_other_machine: compare times although the machines differ.
    """
    documents = [night.document for night in nights]
    figures = tuple(figures) or default_figures(documents[-1])
    metrics = [name for name in figures if name not in SPEED]
    everything = [*documents, *([against] if against else [])]
    reference = len(documents) if against else None
    pairs = Pairs(everything, metrics, allow_other_machine=allow_other_machine)
    names = _labels(documents)
    made: dict[str, list[Track]] = {}
    for figure in figures:
        tracks = [_track(names[key], key, figure, pairs, len(documents)) for key in names]
        made[figure] = [t for t in tracks if any(p.value is not None or p.status in LOST for p in t.points)]
        if figure in SPEED:
            follow_speed(made[figure], pairs, len(documents), reference)
        else:
            _follow_quality(made[figure], pairs, len(documents), reference)
    order = {key: place for place, key in enumerate(names)}
    tracks = sorted((t for found in made.values() for t in found), key=lambda t: order[t.key])
    return Trend(
        name=documents[-1].name,
        nights=tuple(nights),
        tracks=tuple(tracks),
        reference=f"{against.name} of {against.created}" if against else "the first comparable run",
        latest=_latest(documents, against, tracks, metrics, allow_other_machine),
    )


def default_figures(document: ResultDocument) -> tuple[str, ...]:
    """What a trend shows where nothing is asked for: the main metric and p95."""
    return main_metric(document), DEFAULT_SPEED


def _labels(documents: Sequence[ResultDocument]) -> dict[CellKey, str]:
    """Every system of any run, those of the newest run first: its identity and its name."""
    keys: dict[CellKey, CellKey] = {}
    for document in reversed(documents):
        for cell in document.cells:
            known = keys.setdefault(identity(cell.key), cell.key)
            if known.dtype == UNKNOWN:
                keys[identity(cell.key)] = cell.key
    found = labels(list(keys.values()))
    return {same: found[key.cell_id] for same, key in keys.items()}


def _track(label: str, key: CellKey, figure: str, pairs: Pairs, n_nights: int) -> Track:
    points = []
    for night in range(n_nights):
        cell = pairs.cell(night, key)
        if cell is None:
            points.append(Point())
        elif cell.status != OK:
            points.append(Point(cell.status))
        elif figure in SPEED:
            points.append(Point(OK, cell.speed.get(figure)))
        else:
            found = cell.metrics.get(figure)
            points.append(Point(OK, found.mean, found.low, found.high) if found else Point(OK))
    return Track(label, key, figure, points, [])


def _follow_quality(tracks: Iterable[Track], pairs: Pairs, n_nights: int, reference: int | None) -> None:
    for track in tracks:
        measured = [night for night in range(n_nights) if track.points[night].value is not None]
        first = since = before = None
        for night in measured:
            point = track.points[night]
            if before is not None:
                point.obstacle = pairs.obstacle(before, night, track.key, is_speed=False)
            if before is None or since is None or point.obstacle:
                first = since = before = night
                continue
            point.change = _quality(pairs, before, night, track)
            total = point.change if since == before else _quality(pairs, since, night, track)
            for change, is_creep in ((point.change, False), (total, True)):
                if change is not None and change.verdict in CHANGED:
                    track.change_points.append(ChangePoint(night, change, is_creep, since))
                    since = night
                    break
            before = night
        if not measured or measured[-1] != n_nights - 1:
            continue
        if reference is not None:
            has_cell = pairs.cell(reference, track.key) is not None
            track.first_obstacle = (
                pairs.obstacle(reference, n_nights - 1, track.key, is_speed=False)
                if has_cell
                else "no such cell"
            )
            if not track.first_obstacle:
                track.first = _quality(pairs, reference, n_nights - 1, track)
        elif first is not None and first != n_nights - 1:
            track.first, track.first_night = _quality(pairs, first, n_nights - 1, track), first


def _quality(pairs: Pairs, old: int, new: int, track: Track) -> Change | None:
    """The paired change of the track's metric; sure only below the trend's own p value."""
    pair = pairs.cells(old, new, track.key)
    found = pair.change(track.figure) if pair else None
    if found is None or found.p_value is None or found.verdict not in CHANGED:
        return found
    return found if found.p_value < TREND_SURE else replace(found, verdict=CANNOT_BE_TOLD)


def _latest(
    documents: Sequence[ResultDocument],
    against: ResultDocument | None,
    tracks: Sequence[Track],
    metrics: Sequence[str],
    allow_other_machine: bool,
) -> Comparison | None:
    """The newest run against ``against``, else the one before it, as gates are evaluated on it.

    Changes of speed are those that the history tells, not what two runs alone can tell.
    """
    old = against or (documents[-2] if len(documents) > 1 else None)
    if old is None:
        return None
    speed = [track for track in tracks if track.is_speed]
    names = list(dict.fromkeys(track.figure for track in speed))
    made = compare_clean(
        old, documents[-1], metrics=metrics, speed=names, allow_other_machine=allow_other_machine
    )
    told = {(t.key, t.figure): t.first if against else t.before for t in speed}
    cells = []
    for pair in made.cells:
        key = identity(pair.new.key)
        changes = (told.get((key, change.name)) or change for change in pair.changes)
        cells.append(replace(pair, changes=tuple(changes)))
    return replace(made, cells=tuple(cells))
