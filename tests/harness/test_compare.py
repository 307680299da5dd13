"""O40: two results side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from harness.compare import (
    CANNOT_BE_TOLD,
    IMPROVED,
    NOT_COMPARABLE,
    OK,
    REGRESSED,
    CellPair,
    Comparison,
    compare,
)
from harness.render.diff import diff_lines
from harness.results import CellResult, ResultDocument

Factory = Callable[..., ResultDocument]
E5 = "e5-small/cpu/q4/flat/hybrid/-"


def cell(document: ResultDocument, cell_id: str = E5) -> CellResult:
    found = document.cell(cell_id)
    assert found is not None
    return found


def pair(comparison: Comparison, label: str = "e5-small · hybrid") -> CellPair:
    return next(p for p in comparison.cells if p.label == label)


def lower(target: CellResult, by: float, every: int = 1) -> None:
    """Take ``by`` off each ``every``-th value of all metrics."""
    for found in target.metrics.values():
        found.per_query = [
            v - by if v is not None and not i % every else v for i, v in enumerate(found.per_query)
        ]
        found.mean = float(np.mean([v for v in found.per_query if v is not None]))


def timed(target: CellResult, median_s: float, spread: float = 0.0, seed: int = 1) -> None:
    """Give ``target`` 200 latencies of that median and relative spread."""
    target.total_s = (median_s * np.random.default_rng(seed).lognormal(0, spread, 200)).tolist()
    for name, q in (("p50_s", 50), ("p95_s", 95)):
        target.speed[name] = float(np.percentile(target.total_s, q))


def test_equal_results_are_ok(factory: Factory) -> None:
    found = compare(factory(), factory())
    assert found.verdict == OK
    assert {p.verdict for p in found.cells} == {OK}
    assert found.only_old == found.only_new == found.notes == ()
    assert not any(change.reported for p in found.cells for change in p.changes)


@pytest.mark.parametrize("part", ["corpus", "queries", "qrels"])
def test_other_data_is_not_comparable(factory: Factory, part: str) -> None:
    old, new = factory(), factory()
    new.dataset["hash"][part] = "9" * 64
    found = compare(old, new)
    assert found.verdict == NOT_COMPARABLE
    assert [m.field for m in found.mismatches] == [f"data set: hash of {part}"]
    assert not any(p.changes for p in found.cells)
    assert any(f"not comparable: data set: hash of {part}: " in line for line in diff_lines(found))


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 10), ("analyser", "raw"), ("rrf_k", 30.0), ("weights", [2.0, 1.0]), ("lexical", "bm25s")],
)
def test_other_settings_are_not_comparable(factory: Factory, name: str, value: object) -> None:
    old, new = factory(), factory()
    new.spec[name] = value
    found = compare(old, new)
    assert found.verdict == NOT_COMPARABLE
    (mismatch,) = found.mismatches
    assert (mismatch.field, mismatch.old, mismatch.new) == (f"setting {name}", old.spec[name], value)


def test_an_unrecorded_setting_shows_in_the_digest(factory: Factory) -> None:
    new = factory()
    new.spec_digest = "other"
    assert [m.field for m in compare(factory(), new).mismatches] == ["digest of the settings"]


def test_other_judged_queries_are_not_comparable(factory: Factory) -> None:
    found = compare(factory(40), factory(39))
    assert "data set: judged queries" in [m.field for m in found.mismatches]


@pytest.mark.parametrize("name", ["providers", "seed", "repeats", "warmup", "metrics"])
def test_settings_that_move_no_figure_do_not_matter(factory: Factory, name: str) -> None:
    new = factory()
    new.spec[name] = 5 if name != "metrics" else ["ndcg@10"]
    new.spec_digest = "other"
    assert compare(factory(), new).verdict == OK


def edit_fingerprint(target: CellResult) -> None:
    assert target.fingerprint is not None
    target.fingerprint |= {"revision": "2", "digest": "other"}


def edit_tokeniser(target: CellResult) -> None:
    target.settings["bm25"]["analyser"] = "nfkc-casefold"


def edit_tie_rule(target: CellResult) -> None:
    target.settings["tie_rule"] = "score descending, then order of the corpus"


def edit_digest(target: CellResult) -> None:
    assert target.fingerprint is not None
    target.fingerprint |= {"digest": "other"}


def edit_away(target: CellResult) -> None:
    target.fingerprint = None


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (edit_fingerprint, "fingerprint revision"),
        (edit_tokeniser, "settings bm25.analyser"),
        (edit_tie_rule, "settings tie_rule"),
        (edit_digest, "fingerprint digest"),
        (edit_away, "fingerprint provider"),
    ],
)
def test_a_cell_of_another_identity_is_not_comparable(
    factory: Factory, edit: Callable[[CellResult], None], field: str
) -> None:
    new = factory()
    edit(cell(new))
    found = compare(factory(), new)
    assert found.verdict == pair(found).verdict == NOT_COMPARABLE
    assert pair(found).mismatches[0].field == field
    assert not pair(found).changes
    assert pair(found, "bm25").changes  # the others are compared
    assert any(field in line for line in diff_lines(found))


def test_sizes_and_rounds_do_not_forbid_a_comparison(factory: Factory) -> None:
    new = factory()
    cell(new).settings["rounds"] = 7
    cell(new).settings["bm25"]["n_terms"] = 12
    assert compare(factory(), new).verdict == OK


def test_what_a_check_measured_is_no_setting(factory: Factory) -> None:
    old, new = factory(), factory()
    cell(old).settings["self_check"] = {"min_cosine": 0.99999, "least": 0.999, "passed": True}
    cell(new).settings["self_check"] = {"min_cosine": 0.99998, "least": 0.999, "passed": True}
    cell(new).settings["replayed"] = ["embed"]
    assert compare(old, new).verdict == OK


def test_cells_in_one_result_only_are_listed(factory: Factory) -> None:
    old, new = factory(), factory()
    del new.cells[0]
    old.cells = [c for c in old.cells if c.key.cell_id != E5]
    found = compare(old, new)
    assert (found.only_old, found.only_new) == (("bm25",), ("e5-small · hybrid",))
    assert found.only_old_measured == ("bm25",)
    lines = diff_lines(found)
    assert "only in the old result: bm25" in lines
    assert "only in the new result: e5-small · hybrid" in lines
    assert found.verdict == OK


def test_nothing_in_common_is_not_comparable(factory: Factory) -> None:
    new = factory()
    new.cells = []
    found = compare(factory(), new)
    assert found.verdict == NOT_COMPARABLE
    assert any("no cell stands in both results" in line for line in diff_lines(found))


def test_a_loss_of_quality_is_reported_with_its_interval(factory: Factory) -> None:
    new = factory()
    lower(cell(new), 0.02)
    change = pair(compare(factory(), new)).change("ndcg@10")
    assert change is not None
    assert change.delta == pytest.approx(-0.02)
    assert (change.low, change.high) == (pytest.approx(-0.02), pytest.approx(-0.02))
    assert change.verdict == REGRESSED
    assert change.reported
    better = pair(compare(new, factory())).change("ndcg@10")
    assert better is not None
    assert better.verdict == IMPROVED


def test_a_loss_in_few_queries_is_reported_but_not_told(factory: Factory) -> None:
    new = factory()
    lower(cell(new), 0.3, every=20)
    found = compare(factory(), new)
    change = pair(found).change("ndcg@10")
    assert change is not None
    assert change.verdict == CANNOT_BE_TOLD
    assert change.reported
    assert found.verdict == CANNOT_BE_TOLD


@pytest.mark.parametrize(("by", "reported"), [(5e-7, False), (2e-6, True)])
def test_rounding_is_no_change(factory: Factory, by: float, reported: bool) -> None:
    new = factory()
    lower(cell(new), by)
    change = pair(compare(factory(), new)).change("ndcg@10")
    assert change is not None
    assert change.reported is reported


def test_a_null_is_missing_and_never_a_number(factory: Factory) -> None:
    """O37 through the diff."""
    new = factory()
    cell(new).metrics["ndcg@10"].mean = math.nan
    cell(new).speed["p95_s"] = math.inf
    cell(new).speed["peak_rss_bytes"] = np.int64(410_000_000)  # type: ignore[assignment]
    cell(new).metrics["map@100"].per_query = [math.nan] * 40
    found = compare(factory(), new)
    for name in ("ndcg@10", "p95_s"):
        change = pair(found).change(name)
        assert change is not None
        assert (change.missing, change.verdict, change.delta) == ("new", CANNOT_BE_TOLD, None)
    unpaired = pair(found).change("map@100")
    assert unpaired is not None
    assert (unpaired.delta, unpaired.low, unpaired.verdict) == (0.0, None, OK)
    assert "nan" not in "\n".join(diff_lines(found)).lower()
    assert any("no value in the new result" in line for line in diff_lines(found))
    assert pair(compare(new, factory())).change("ndcg@10").missing == "old"  # type: ignore[union-attr]


def test_a_metric_that_neither_has_is_no_change(factory: Factory) -> None:
    old, new = factory(), factory()
    del cell(old).metrics["ndcg@10"], cell(new).metrics["ndcg@10"]
    assert pair(compare(old, new)).change("ndcg@10") is None


def test_latency_within_its_noise_is_not_reported(factory: Factory) -> None:
    """O40: 8 % higher with 15 % spread."""
    old, new = factory(), factory()
    timed(cell(old), 0.050, spread=0.15)
    timed(cell(new), 0.054, spread=0.15, seed=2)
    found = compare(old, new)
    change = pair(found).change("p50_s")
    assert change is not None
    assert change.verdict == CANNOT_BE_TOLD
    assert not change.reported
    assert found.verdict == OK
    assert "speed: no change beyond the noise" in diff_lines(found)


def test_latency_beyond_its_noise_is_reported(factory: Factory) -> None:
    old, new = factory(), factory()
    timed(cell(old), 0.050, spread=0.05)
    timed(cell(new), 0.075, spread=0.05, seed=2)
    found = compare(old, new)
    change = pair(found).change("p95_s")
    assert change is not None
    assert change.verdict == found.verdict == REGRESSED
    assert change.low is not None
    assert change.low > 0.2
    assert any(line.startswith("latency p95") for line in diff_lines(found))


def test_percentiles_without_samples_cannot_be_told(factory: Factory) -> None:
    new = factory()
    cell(new).total_s = []
    cell(new).speed["p95_s"] = 99.0
    change = pair(compare(factory(), new)).change("p95_s")
    assert change is not None
    assert (change.verdict, change.reported) == (CANNOT_BE_TOLD, False)


@pytest.mark.parametrize(
    ("name", "factor", "verdict"),
    [
        ("docs_per_s", 0.8, CANNOT_BE_TOLD),
        ("docs_per_s", 0.7, REGRESSED),
        ("docs_per_s", 1.3, IMPROVED),
        ("peak_rss_bytes", 1.04, CANNOT_BE_TOLD),
        ("peak_rss_bytes", 1.2, REGRESSED),
        ("peak_rss_bytes", 0.8, IMPROVED),
        ("peak_rss_bytes", 1.0, OK),
    ],
)
def test_figures_measured_once(factory: Factory, name: str, factor: float, verdict: str) -> None:
    new = factory()
    value = cell(new).speed[name]
    assert value is not None
    cell(new).speed[name] = value * factor
    change = pair(compare(factory(), new)).change(name)
    assert change is not None
    assert change.verdict == verdict


def test_a_throughput_measured_in_no_time_says_little(factory: Factory) -> None:
    new = factory()
    cell(new).speed["embed_s"] = 0.2
    cell(new).speed["docs_per_s"] = 1.0
    change = pair(compare(factory(), new)).change("docs_per_s")
    assert change is not None
    assert (change.relative, change.verdict) == (-0.9, CANNOT_BE_TOLD)


def test_equal_work_on_a_day_when_everything_is_slower(factory: Factory) -> None:
    """All calls move together: the samples of a run agree, and yet nothing has changed."""
    old, new = factory(), factory()
    timed(cell(old), 0.05, spread=0.01)
    timed(cell(new), 0.0575, spread=0.01, seed=2)
    assert compare(old, new).verdict == OK


@pytest.mark.parametrize("name", ["cpu_model", "cpus_usable", "machine_fingerprint"])
def test_another_machine_forbids_times_but_not_quality(factory: Factory, name: str) -> None:
    new = factory()
    new.environment[name] = "other"
    lower(cell(new), 0.02)
    timed(cell(new), 3.0)
    found = compare(factory(), new)
    assert [m.field for m in found.speed_mismatches] == [name]
    assert found.verdict == REGRESSED
    assert pair(found).change("p95_s") is None
    assert pair(found).change("ndcg@10") is not None
    assert any(f"times and memory are not comparable: {name}" in line for line in diff_lines(found))


def test_other_threads_forbid_times(factory: Factory) -> None:
    new = factory()
    new.spec["threads"] = 1
    new.spec_digest = "other"
    found = compare(factory(), new)
    assert [m.field for m in found.speed_mismatches] == ["threads"]
    assert found.mismatches == ()


def test_a_cell_that_fails_now_has_regressed(factory: Factory) -> None:
    """Its dtype is unknown now, and it is still the same cell."""
    old, new = factory(), factory()
    place = new.cells.index(cell(new))
    new.cells[place] = CellResult(replace(cell(new).key, dtype="-"), "failed", reason="out of memory")
    found = compare(old, new)
    assert found.only_old == found.only_new == ()
    assert pair(found).verdict == found.verdict == REGRESSED
    assert any("e5-small · hybrid: ok → failed: out of memory" in line for line in diff_lines(found))
    assert compare(new, old).verdict == IMPROVED


def test_other_software_is_noted(factory: Factory) -> None:
    new = factory()
    new.environment["packages"] = {"numpy": "2.5", "torch": "3"}
    new.environment["git"] = None
    new.status = "interrupted"
    assert compare(factory(), new).notes == (
        "package numpy: 2.4.6 / 2.5",
        "package torch: absent / 3",
        "revision: ffffffffffff / unknown",
        "the new result is not complete: interrupted",
    )


@pytest.mark.parametrize("which", ["weights", "tokenizer"])
def test_other_weights_or_another_tokenizer_are_not_comparable(factory: Factory, which: str) -> None:
    old, new = factory(), factory()
    cell(old).runtime = {"hashes": {"weights": "w", "tokenizer": "t"}}
    cell(new).runtime = {"hashes": {"weights": "w", "tokenizer": "t"} | {which: "x"}}
    found = pair(compare(old, new))
    assert found.verdict == NOT_COMPARABLE
    assert [m.field for m in found.mismatches] == [f"hash of the {which}"]


def test_a_result_from_before_hashes_were_recorded_still_compares(factory: Factory) -> None:
    new = factory()
    cell(new).runtime = {"hashes": {"weights": "w"}}
    assert compare(factory(), new).verdict == OK


def test_other_code_is_a_note_alone(factory: Factory) -> None:
    old, new = factory(), factory()
    old.environment["code"], new.environment["code"] = "a" * 16, "b" * 16
    found = compare(old, new)
    assert found.verdict == OK
    assert f"code of this project: digest {'a' * 16} / {'b' * 16}" in found.notes


def test_a_setting_that_an_earlier_version_lacked_is_as_if_left_alone(factory: Factory) -> None:
    old, new = factory(), factory()
    for name in ("score_threshold", "audit_prefixes"):
        old.spec.pop(name, None)
    new.spec |= {"score_threshold": None, "audit_prefixes": False}
    assert compare(old, new).verdict == OK
    new.spec["score_threshold"] = 0.5
    (found,) = compare(old, new).mismatches
    assert (found.field, found.old, found.new) == ("setting score_threshold", None, 0.5)


def test_an_earlier_version_scored_bm25_with_numpy(factory: Factory) -> None:
    old, new = factory(), factory()
    cell(old).settings["bm25"] = {"engine": "bm25"}
    cell(new).settings["bm25"] = {"engine": "bm25", "scorer": "numpy"}
    assert pair(compare(old, new)).mismatches == ()
    cell(new).settings["bm25"] = {"engine": "bm25", "scorer": "numba"}
    (found,) = pair(compare(old, new)).mismatches
    assert (found.field, found.old, found.new) == ("settings bm25.scorer", "numpy", "numba")


def test_a_cell_without_bm25_has_no_scorer(factory: Factory) -> None:
    old, new = factory(), factory()
    for document in (old, new):
        cell(document).settings.pop("bm25", None)
    cell(new).settings["bm25"] = {"scorer": "numpy"}
    assert [m.field for m in pair(compare(old, new)).mismatches] == ["settings bm25.scorer"]
