"""The sentences of a recommendation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from harness.cost import Usage
from harness.limits import limits_of, minimum
from harness.recommend import recommend
from harness.recommend_findings import recommendation_sentences
from harness.results import CellResult, MetricResult, ResultDocument

E5_HYBRID, E5_VECTOR = "e5-small/cpu/q4/flat/hybrid/-", "e5-small/cpu/q4/flat/vector/-"


def cell(document: ResultDocument, cell_id: str) -> CellResult:
    found = document.cell(cell_id)
    assert found is not None
    return found


def sentences(document: ResultDocument, **options: object) -> list[str]:
    return recommendation_sentences(recommend(document, **options))  # type: ignore[arg-type]


def test_the_best_alone(document: ResultDocument) -> None:
    said = sentences(document)
    assert said[0] == (
        "Recommended: e5-small · hybrid: nDCG@10 0.796 (95 % interval 0.740–0.839, 40 judged queries), "
        "p95 52.3 ms, peak memory 410 MB, no charge for queries."
    )
    assert said[1] == "It is the best; no other is shown to be within 0.01 nDCG@10 of it."
    (worse,) = [line for line in said if line.startswith("Worse than the best")]
    assert worse.startswith(
        "Worse than the best by more than 0.01 nDCG@10: bm25 (0.513; behind by at most 0."
    )
    (still_open,) = [line for line in said if line.startswith("Not shown to be within 0.01 nDCG@10")]
    assert "e5-small · vector (0.781; behind by at most" in still_open
    assert "queries would show it of each that is equal in truth." in still_open
    assert "Never recommended: fake · hybrid (the baseline)." in said
    (failed,) = [line for line in said if "upside down" in line]
    assert failed.startswith("Not considered: broken · vector, broken · hybrid: RuntimeError")
    assert any(line.startswith("How sure: a system that is worse by more than the margin") for line in said)


def test_what_a_faster_one_gives_up(document: ResultDocument) -> None:
    vector = cell(document, E5_VECTOR)
    vector.total_s = [s / 2 for s in cell(document, E5_HYBRID).total_s]
    vector.speed["p95_s"] = 0.026
    said = sentences(document, margins=["ndcg@10=0.2"])
    assert said[0].startswith("Recommended: e5-small · vector")
    assert said[1] == (
        "It is the fastest (p95) of the 2 that are not worse than the best by more than 0.2 nDCG@10."
    )
    assert said[2].startswith(
        "Against the best, e5-small · hybrid (0.796), it gives up 0.015 nDCG@10 (95 % interval of "
        "what is given up −0."
    )
    assert said[2].endswith("margin 0.2).")
    assert said[3].startswith("The best has p95 52.3 ms")
    assert said[-1] == (
        "Its lead in p95 over e5-small · hybrid (26.0 ms against 52.3 ms) is more than the noise of this run."
    )


def test_a_lead_within_noise_is_told(document: ResultDocument) -> None:
    said = sentences(document, margins=["ndcg@10=0.2"])
    assert said[-1].endswith("is within the noise of this run.")


def test_each_limit_names_whom_it_leaves_out_with_the_value(document: ResultDocument) -> None:
    cell(document, E5_VECTOR).speed["p95_s"] = None
    said = sentences(document, limits=limits_of({"p95": "10ms", "rss": "350MB"}), margins=["ndcg@10=0.9"])
    assert said[1] == (
        "It is the fastest (p95) of the 3 that are not worse than the best by more than 0.9 nDCG@10, and "
        "keep every limit."
    )
    assert (
        "Left out by --max-p95 10ms (p95): e5-small · vector (not measured), e5-small · hybrid (52.3 ms)."
        in said
    )
    assert (
        "Left out by --max-rss 350MB (peak memory): e5-small · vector (410 MB), e5-small · hybrid (410 MB)."
        in said
    )


def test_nothing_acceptable_names_the_binding_limit_and_the_nearest(document: ResultDocument) -> None:
    said = sentences(document, limits=limits_of({"p95": "40ms", "rss": "1GB"}))
    assert said[0] == "Nothing is acceptable: the only system within 0.01 nDCG@10 of the best breaks a limit."
    assert said[1] == "--max-p95 40ms binds: it leaves out every one of them (p95 52.3 ms at least)."
    assert said[2] == "Nearest: e5-small · hybrid (0.796): p95 52.3 ms against --max-p95 40ms, 31 % beyond."
    assert said[3].startswith("Of those that keep every limit, bm25 (0.513) is the best, which may be worse")
    assert "--margin ndcg@10=NUMBER above that accepts it." in said[3]


def test_nothing_acceptable_of_several(document: ResultDocument) -> None:
    cell(document, E5_VECTOR).speed |= {"p95_s": 0.01, "peak_rss_bytes": 900e6}
    limits = limits_of({"p95": "20ms", "rss": "500MB"})
    said = sentences(document, limits=limits, margins=["ndcg@10=0.2"])
    assert (
        said[0]
        == "Nothing is acceptable: none of the 2 systems within 0.2 nDCG@10 of the best keeps every limit."
    )
    assert said[1] == "No limit alone binds: each of them leaves out some."
    cell(document, E5_VECTOR).speed["p95_s"] = None
    cell(document, E5_HYBRID).speed["p95_s"] = None
    said = sentences(document, limits=limits_of({"p95": "20ms"}), margins=["ndcg@10=0.2"])
    assert said[1] == "--max-p95 20ms binds: it leaves out every one of them (p95 not measured of any)."
    assert said[2] == "Nearest: e5-small · hybrid (0.796): p95 not measured against --max-p95 20ms."


def test_a_minimum_that_binds(document: ResultDocument) -> None:
    said = sentences(document, limits=[minimum("precision@5=0.95", ["precision@5"])])
    assert said[1].startswith(
        "--min precision@5=0.95 binds: it leaves out every one of them (Precision@5 0.7"
    )
    assert said[1].endswith(" at most).")


def test_too_few_queries(factory: Callable[..., ResultDocument]) -> None:
    said = sentences(factory(12), margins=["ndcg@10=0.9"])
    assert any("12 judged queries are too few to show of any system" in line for line in said)
    assert not any("behind by at most" in line for line in said)  # a bound of so few would claim too much


def test_a_baseline_above_all_is_told_and_nothing_measured(document: ResultDocument) -> None:
    cell(document, "fake/cpu/fp32/flat/hybrid/-").metrics["ndcg@10"] = MetricResult(1.0, 1.0, 1.0, [1.0] * 40)
    assert "Beware: fake · hybrid scores 1.000, above all that may be recommended." in sentences(document)
    document.cells = [one for one in document.cells if one.status != "ok"]
    assert sentences(document)[0] == "Nothing can be recommended: no cell was measured that may be."


def test_money_and_failed_queries(document: ResultDocument) -> None:
    best = cell(document, E5_HYBRID)
    best.cost = {"embed": asdict(Usage("s", "m", "embed", True, True, 0.1, query_units=20, queries=1))}
    best.counts["n_failed"] = 3
    said = sentences(document)
    assert "0.00200 USD for 1,000 queries." in said[0]
    assert said[-1] == "e5-small · hybrid: 3 queries failed and count 0."
    best.cost["embed"]["price_usd"] = None
    assert "its price for queries is not measured." in sentences(document)[0]


def test_nothing_that_finds_nothing_is_recommended(document: ResultDocument) -> None:
    for one in document.cells:
        for found in one.metrics.values():
            found.per_query = [0.0 for _ in found.per_query]
            found.mean = found.low = found.high = 0.0
    said = sentences(document)
    assert said[0] == "Nothing can be recommended: no cell was measured that may be."
    (found_nothing,) = [line for line in said if line.endswith(": no relevant document among its answers.")]
    assert "e5-small · hybrid" in found_nothing


def test_one_system_alone_was_no_choice(document: ResultDocument) -> None:
    document.cells = [cell(document, E5_VECTOR)]
    said = sentences(document)
    assert said[1] == "No other system was measured that may be recommended: there was no choice."
    assert not any(line.startswith("How sure") for line in said)


def test_a_limit_on_many_clients_names_what_measures_it(document: ResultDocument) -> None:
    said = sentences(document, limits=limits_of({"p95": "500ms@16"}))
    (binds,) = [line for line in said if "binds" in line]
    assert binds.endswith(
        "(p95 with 16 clients not measured of any): "
        "bench load RESULT --system NAME --concurrency 16 measures it."
    )
