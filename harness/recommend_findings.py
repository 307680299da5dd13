"""A recommendation in sentences: which, why, what it gives up, what was left out and why, how sure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from harness.differences import SURE
from harness.limits import UNKNOWN, Limit, show, usd_per_1k
from harness.noise import shift
from harness.pairwise import FEWEST, OPEN, WORSE
from harness.pairwise_findings import about
from harness.power import queries_needed
from harness.provenance import on_one_machine
from harness.recommend import BASELINE, STAND_IN, Candidate, Closeness, Recommendation
from harness.render.format import count, interval, listed, megabytes, number, score, seconds, signed
from harness.summary import metric_title

__all__ = ["recommendation_sentences"]

#: Systems that a sentence names.
MOST_NAMED = 6
WORD = {
    "latency": "fastest",
    "cost": "cheapest",
    "memory": "smallest in memory",
    "throughput": "highest in throughput",
    "quality": "best in quality",
}


def recommendation_sentences(found: Recommendation) -> list[str]:
    """For people, the most important first."""
    if found.best is None:
        left_out = _never(found)
        return ["Nothing can be recommended: no cell was measured that may be.", *left_out]
    chosen = found.chosen
    head = [*_chosen(found, chosen), *_given_up(found, chosen)] if chosen else _nothing(found)
    return [*head, *_by_limit(found), *_by_margin(found), *_never(found), *_how_sure(found)]


def _name(one: Candidate) -> str:
    return one.row.label


def _margins(found: Recommendation) -> str:
    return " and ".join(f"{margin:g} {metric_title(name)}" for name, margin in found.margins.items())


def _figures(one: Candidate, usd_per_hour: float | None) -> str:
    usd = usd_per_1k(one.row, usd_per_hour)
    charge = f"{show(usd, number)} USD for 1,000 queries" if usd else "no charge for queries"
    return ", ".join(
        (
            f"p95 {show(one.row.speed('p95_s'), seconds)}",
            f"peak memory {show(one.row.speed('peak_rss_bytes'), megabytes)}",
            "its price for queries is not measured" if usd is None else charge,
        )
    )


def _chosen(found: Recommendation, chosen: Candidate) -> list[str]:
    value = chosen.row.cell.metrics[found.metric]
    n = len(found.document.dataset.get("query_ids", ()))
    own = (
        f"{metric_title(found.metric)} {score(value.mean)} (95 % interval "
        f"{interval(value.low, value.high)}, {count(n, 'judged query', 'judged queries')})"
    )
    first = f"Recommended: {_name(chosen)}: {own}, {_figures(chosen, found.usd_per_hour)}."
    kept = ", and keep every limit" if found.limits else ""
    many = len(found.ranked)
    best = found.best
    assert best is not None
    if many > 1:
        itself = "the best itself and " if chosen is best else ""
        why = (
            f"It is {itself}the {WORD[found.prefer]} ({found.figure}) of the {many} that are not worse "
            f"than the best by more than {_margins(found)}{kept}."
        )
    elif _is_alone(found):
        why = "No other system was measured that may be recommended: there was no choice."
    elif chosen is best:
        also = " and keeps every limit" if found.limits else ""
        why = f"It is the best{also}; no other that does is shown to be within {_margins(found)} of it."
        why = why if found.limits else why.replace(" that does", "")
    else:
        why = f"It alone is not worse than the best by more than {_margins(found)}, and keeps every limit."
    return [first, why]


def _is_alone(found: Recommendation) -> bool:
    return sum(not one.never for one in found.candidates) == 1


def _given_up(found: Recommendation, chosen: Candidate) -> list[str]:
    best = found.best
    if best is None or chosen is best:
        return []
    out = []
    for one in chosen.closeness:
        gap = one.difference
        if gap is None:
            continue
        upper = f"at most {score(max(0.0, gap.upper))} at 95 %" if gap.upper is not None else UNKNOWN
        out.append(
            f"Against the best, {_name(best)} ({score(best.row.cell.mean(one.metric))}), it "
            f"{'gains' if gap.mean < 0 else 'gives up'} {score(abs(gap.mean))} {metric_title(one.metric)} "
            f"(95 % interval of what is given up {signed(gap.low)} to {signed(gap.high)}; {upper}, "
            f"margin {one.margin:g})."
        )
    out.append(f"The best has {_figures(best, found.usd_per_hour)}.")
    return out


def _nothing(found: Recommendation) -> list[str]:
    """Which limit binds, the nearest candidate, and what keeps the limits but is not close."""
    close, best, near = found.close, found.best, found.nearest
    assert best is not None
    assert near is not None
    within = f"within {_margins(found)} of the best"
    whom = f"none of the {len(close)} systems {within} keeps every limit"
    if len(close) == 1:
        whom = f"the only system {within} breaks a limit"
    out = [f"Nothing is acceptable: {whom}."]
    for limit in found.binding:
        values = [value for one in close for held, value in one.broken if held == limit]
        known = [value for value in values if value is not None]
        end = (min if limit.is_most else max)(known, default=None)
        lowest = "least" if limit.is_most else "most"
        hint = f": {limit.figure.measured_by}" if end is None and limit.figure.measured_by else ""
        out.append(
            f"{limit.option} binds: it leaves out every one of them ({limit.figure.name} "
            f"{show(end, limit.figure.form)}{f' at {lowest}' if end is not None else ' of any'}){hint}."
        )
    if not found.binding:
        out.append("No limit alone binds: each of them leaves out some.")
    missed = "; ".join(_missed(limit, value) for limit, value in near.broken)
    out.append(f"Nearest: {_name(near)} ({score(near.mean)}): {missed}.")
    kept = [one for one in found.candidates if not one.never and not one.broken and not one.is_close]
    if kept:
        other = max(kept, key=lambda one: one.mean)
        worst = next(each for each in other.closeness if not each.ok)
        gap = worst.difference
        may = f", which may be worse than the best by up to {score(gap.upper)}" if gap and gap.upper else ""
        out.append(
            f"Of those that keep every limit, {_name(other)} ({score(other.mean)}) is the best{may}: "
            f"--margin {worst.metric}=NUMBER above that accepts it."
        )
    return out


def _missed(limit: Limit, value: float | None) -> str:
    excess = limit.excess(value)
    more = f", {100 * excess:,.0f} % beyond" if value is not None and 0.005 <= excess < 100 else ""
    return f"{limit.figure.name} {show(value, limit.figure.form)} against {limit.option}{more}"


def _by_limit(found: Recommendation) -> list[str]:
    """One sentence for each limit: whom it leaves out of those that may be recommended, with the value."""
    out = []
    for limit in found.limits:
        broken = [
            f"{_name(one)} ({show(value, limit.figure.form)})"
            for one in found.candidates
            for held, value in one.broken
            if held == limit
        ]
        if broken:
            out.append(f"Left out by {limit.option} ({limit.figure.name}): {listed(broken, MOST_NAMED)}.")
    return out


def _by_margin(found: Recommendation) -> list[str]:
    out = []
    for name, margin in found.margins.items():
        judged = [
            (one, each)
            for one in sorted(found.candidates, key=lambda one: -one.mean)
            if not one.never
            for each in one.closeness
            if each.metric == name
        ]
        title = metric_title(name)
        if worse := [_gap(one, each) for one, each in judged if each.verdict == WORSE]:
            out.append(f"Worse than the best by more than {margin:g} {title}: {listed(worse, MOST_NAMED)}.")
        if still_open := [(one, each) for one, each in judged if each.verdict == OPEN]:
            named = listed([_gap(one, each) for one, each in still_open], MOST_NAMED)
            more = _would_show(found, [one for one, _ in still_open], name, margin)
            out.append(f"Not shown to be within {margin:g} {title} of the best: {named}{more}.")
    return out


def _gap(one: Candidate, each: Closeness) -> str:
    gap = each.difference
    if gap is None or gap.upper is None:
        return f"{_name(one)} ({UNKNOWN})"
    if gap.n < FEWEST:  # a bound of so few queries says nothing
        return f"{_name(one)} ({score(one.row.cell.mean(each.metric))})"
    return f"{_name(one)} ({score(one.row.cell.mean(each.metric))}; behind by at most {score(gap.upper)})"


def _would_show(found: Recommendation, rows: Sequence[Candidate], metric: str, margin: float) -> str:
    """How many queries would show that one is close, were it equal in truth."""
    import numpy as np

    assert found.best is not None
    needed = 0
    best = found.best.row.cell.metrics[metric].per_query
    for one in rows:
        own = one.row.cell.metrics[metric].per_query if metric in one.row.cell.metrics else []
        gaps = [a - b for a, b in zip(best, own) if a is not None and b is not None]
        if len(gaps) > 1:
            sd = float(np.std(gaps, ddof=1))
            needed = max(needed, FEWEST, queries_needed(margin, sd, 2 * SURE) or 0)
    n = len(found.document.dataset.get("query_ids", ()))
    return f"; {about(needed)} queries would show it of each that is equal in truth" if needed > n else ""


def _never(found: Recommendation) -> list[str]:
    """What is not recommended whatever the limits, by reason."""
    left = sorted(
        ((one.never, _name(one)) for one in found.candidates if one.never), key=lambda pair: pair[0]
    )
    out = []
    for reason, pairs in groupby(left, key=lambda pair: pair[0]):
        names = listed([name for _, name in pairs], MOST_NAMED)
        if reason in (BASELINE, STAND_IN):
            out.append(f"Never recommended: {names} ({reason}).")
        else:
            out.append(f"Not considered: {names}: {reason.rstrip('.')}.")
    best, above = found.best, [one for one in found.candidates if one.never in (BASELINE, STAND_IN)]
    top = max(above, key=lambda one: one.mean, default=None)
    if best is not None and top is not None and top.mean > best.mean:
        out.append(f"Beware: {_name(top)} scores {score(top.mean)}, above all that may be recommended.")
    return out


def _how_sure(found: Recommendation) -> Iterable[str]:
    if not _is_alone(found):
        yield from _tested(found)
    if not on_one_machine(found.document, *(one.row.cell for one in found.ranked)):
        yield (
            "The acceptable systems were measured on several machines: their times are not compared, so that "
            f"they are ordered by {found.figure}."
        )
    yield from _speed(found)
    lost = found.chosen.row.cell.counts.get("n_failed", 0) if found.chosen else 0
    if lost and found.chosen:
        yield f"{_name(found.chosen)}: {count(lost, 'query', 'queries')} failed and count 0."


def _tested(found: Recommendation) -> Iterable[str]:
    n = len(found.document.dataset.get("query_ids", ()))
    if n < FEWEST:
        yield (
            f"How sure: {count(n, 'judged query is', 'judged queries are')} too few to show of any system "
            "that it is close to the best; "
            f"{FEWEST} are the least."
        )
    else:
        yield (
            "How sure: a system that is worse by more than the margin passes this test in at most 5 % of "
            f"runs like this one ({n} queries); each was tested on its own."
        )


def _speed(found: Recommendation) -> Iterable[str]:
    """Whether the lead in time over the next acceptable one is more than noise."""
    if found.prefer != "latency" or len(found.ranked) < 2:
        return
    first, second = found.ranked[:2]
    level = 95.0 if found.figure == "p95" else 50.0
    name = f"{found.figure}_s"
    moved = shift(first.row.cell.total_s, second.row.cell.total_s, level, aligned=True)
    if moved is None:
        return
    both = f"{show(first.row.speed(name), seconds)} against {show(second.row.speed(name), seconds)}"
    verb = "is more than" if moved.beyond_noise else "is within"
    yield f"Its lead in {found.figure} over {_name(second)} ({both}) {verb} the noise of this run."
