"""What a sweep found, in rows and sentences: which batch size, which variant, what failed to agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.render.format import milliseconds, number, p_value, rate, score, signed
from harness.sweep_result import Depth, Point, PoolResult, SweepDocument, VariantResult
from rag_core.factory import SpecString

__all__ = [
    "Row",
    "agreement_word",
    "best_point",
    "caveats",
    "overlapping",
    "piece_names",
    "rows",
    "sentences",
    "short_label",
    "variant_names",
]

MAIN = "ndcg@10"
#: 1 - cosine of one fp32 computation done in two orders is below 1e-11, that of a rounded model above 1e-6.
FP32_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """A point with the variant it belongs to, and the variant's name among the others."""

    name: str
    variant: VariantResult
    point: Point


def short_label(text: str) -> str:
    """A spec string as people read it: paths by their last part, options as ``name=value``."""
    parsed = SpecString.parse(text)
    parts = [parsed.name + (f":{_last(parsed.model)}" if parsed.model else "")]
    parts += [f"{name}={_last(value)}" for name, value in parsed.options.items() if name != "dtype"]
    return " ".join(parts)


def _last(value: str) -> str:
    return value.rstrip("/").rpartition("/")[2] or value


def variant_names(document: SweepDocument) -> dict[str, str]:
    """Label → ``e5-small · cpu · fp32``; the label itself where that would stand twice."""
    names = {
        v.label: " · ".join(part for part in (short_label(v.group), v.target, v.dtype) if part)
        for v in document.variants
    }
    shown = list(names.values())
    return {label: name if shown.count(name) == 1 else label for label, name in names.items()}


def piece_names(document: SweepDocument) -> dict[str, str]:
    """Label → short name of every reranker; the label itself where that would stand twice."""
    names = {r.label: short_label(r.label) for r in document.rerankers}
    shown = list(names.values())
    return {label: name if shown.count(name) == 1 else label for label, name in names.items()}


def rows(document: SweepDocument) -> list[Row]:
    """Every point in the order of the document."""
    names = variant_names(document)
    return [Row(names[v.label], v, point) for v in document.variants for point in v.points]


def best_point(points: Sequence[Point]) -> Point | None:
    """The fastest point that ran and agrees."""
    able = [point for point in points if point.agrees and point.passages_per_s]
    return max(able, key=lambda point: point.passages_per_s or 0.0, default=None)


def overlapping(best: Point, points: Sequence[Point]) -> list[Point]:
    """The other points whose rounds reach the slowest round of ``best``: not told apart from it."""
    low = best.passages_per_s_low or 0.0
    return [p for p in points if p is not best and p.agrees and (p.passages_per_s_high or 0.0) >= low]


def agreement_word(row: Row) -> str:
    """``same``, ``equivalent``, ``DIFFERS``, ``not compared`` or ``failed``."""
    if row.point.status != "ok":
        return row.point.status
    found = row.point.agreement
    if not found:
        return "not compared"
    return "DIFFERS" if found["verdict"] == "differs" else str(found["verdict"])


def sentences(document: SweepDocument) -> list[str]:
    """The verdict first, then what qualifies it."""
    said = [*_speed(document), *_parity(document), *_pool(document)]
    said += [f"{name}: {v.status}: {v.reason}" for name, v in _broken(document)]
    return said or ["Nothing was measured."]


def caveats(document: SweepDocument) -> list[str]:
    """What the figures hold for."""
    spec, machine = document.spec, document.environment
    cpus = machine.get("cpus_usable")
    where = f"{machine.get('cpu_model') or 'this machine'}, {cpus} CPU{'s' if cpus != 1 else ''}"
    said = []
    measured = next((row.point.n_texts for row in rows(document) if row.point.n_texts), 0)
    if measured:
        said.append(
            f"Holds for {measured} texts of {document.name} on {where}, median of {spec['rounds']} rounds; "
            "longer texts or another machine move the best batch size."
        )
        said.append("Memory is the process's peak so far: it includes the smaller batch sizes.")
    inexact = [row for row in rows(document) if row.variant.dtype != "fp32"]
    alone = dict.fromkeys(row.name for row in inexact if (row.point.agreement or {}).get("itself"))
    if alone:
        said.append(
            f"No fp32 variant was measured beside {', '.join(alone)}: agreement is with its own batch size "
            "1, and says nothing about the number format."
        )
    twins = dict.fromkeys(row.name for row in inexact if _is_fp32_in_disguise(row))
    if twins:
        said.append(
            f"{', '.join(twins)}: the vectors are those of fp32 to the last digits; the dtype may not have "
            "taken effect."
        )
    if document.pool and document.rerankers:
        said.append(
            f"Candidate pool frozen: {document.pool['provider']} fused with {document.pool['lexical']}, "
            f"{document.pool['n_queries']} judged queries; times are single calls. The best "
            "depth was chosen on the same queries, so its gain is an optimistic estimate."
        )
    return said


def _is_fp32_in_disguise(row: Row) -> bool:
    found = row.point.agreement or {}
    return not found.get("itself", True) and (found.get("min_cosine") or 0.0) > 1 - FP32_ROUNDING


def _speed(document: SweepDocument) -> list[str]:
    names = variant_names(document)
    found = [(v, best) for v in document.variants if (best := best_point(v.points))]
    if not found:
        measured = any(p.status == "ok" for v in document.variants for p in v.points)
        return ["No setting can be recommended: none agrees with its reference."] if measured else []
    found.sort(key=lambda pair: -(pair[1].passages_per_s or 0.0))
    variant, best = found[0]
    said = [_batch_sentence(names[variant.label], variant, best)]
    if len(found) > 1:
        other, second = found[1]
        factor = (best.passages_per_s or 0.0) / (second.passages_per_s or 1.0)
        first = f"Of {len(found)} variants that agree, {names[variant.label]} is fastest"
        if overlapping(best, [second]):
            said.append(f"{first}, but not told apart from {names[other.label]}: their rounds overlap.")
        else:
            said.append(
                f"{first}: {number(factor, 3)} times {names[other.label]} ({rate(second.passages_per_s)} "
                f"passages/s at batch size {second.name})."
            )
    return said


def _batch_sentence(name: str, variant: VariantResult, best: Point) -> str:
    speed = (
        f"{rate(best.passages_per_s)} passages/s ({rate(best.passages_per_s_low)} to "
        f"{rate(best.passages_per_s_high)})"
    )
    if best.batch_size is None:
        return f"{name} with its own batching embeds {speed}."
    others = [point for point in variant.points if point.agrees and point is not best]
    near = overlapping(best, others)
    if others and len(near) == len(others):
        return f"The batch size makes no difference that can be told for {name}: {speed} at {best.name}."
    said = f"Batch size {best.name} is fastest for {name}: {speed}."
    one = next((p for p in others if p.batch_size == 1 and p not in near), None)
    if one is not None:
        factor = (best.passages_per_s or 0.0) / (one.passages_per_s or 1.0)
        said += f" Batch size 1 is {number(factor, 3)} times slower ({rate(one.passages_per_s)} passages/s)."
    if near:
        sizes = ", ".join(point.name for point in near)
        said += f" Not told apart from it: {sizes} (their rounds overlap)."
    return said


def _parity(document: SweepDocument) -> list[str]:
    failed = [row for row in rows(document) if agreement_word(row) == "DIFFERS"]
    grouped: dict[str, list[Row]] = {}
    for row in failed:
        grouped.setdefault(row.name, []).append(row)
    said = []
    for name, mine in grouped.items():
        sizes = ", ".join(row.point.name for row in mine)
        found = mine[0].point.agreement or {}
        said.append(
            f"Not recommended, failed the check against {found['reference']}: {name} at batch size {sizes}: "
            f"{found.get('reason') or 'its vectors differ'}."
        )
    return said


def _pool(document: SweepDocument) -> list[str]:
    names = piece_names(document)
    said = []
    for result in document.rerankers:
        able = [depth for depth in result.depths if depth.difference]
        if result.status == "ok" and able:
            said.append(_depth_sentence(names[result.label], result, able))
    return said


def _depth_sentence(name: str, result: PoolResult, depths: Sequence[Depth]) -> str:
    best = max(depths, key=lambda depth: depth.after.get(MAIN) or 0.0)
    change = best.difference or {}
    evidence = (
        f"{signed(change.get('mean'))} on {score(best.before.get(MAIN))}, 95 % interval "
        f"{signed(change.get('low'))} to {signed(change.get('high'))}, p {p_value(change.get('p_value'))}"
    )
    took = f"{milliseconds(best.p50_s)} ms a query"
    if (change.get("high") or 0.0) < 0:
        return f"{name} makes the order worse at every depth; least so at {best.depth}: nDCG@10 {evidence}."
    if (change.get("low") or 0.0) <= 0:
        return (
            f"{name} cannot be told from no reranking; at its best depth, {best.depth}: nDCG@10 {evidence}."
        )
    return (
        f"{name} is best at a pool of {best.depth}: nDCG@10 {evidence}, {took} "
        f"(a perfect order of that pool: {score(best.oracle.get(MAIN))})."
    )


def _broken(document: SweepDocument) -> list[tuple[str, VariantResult | PoolResult]]:
    names = {**variant_names(document), **piece_names(document)}
    pieces: list[VariantResult | PoolResult] = [*document.variants, *document.rerankers]
    return [(names[p.label], p) for p in pieces if p.status in ("failed", "skipped")]
