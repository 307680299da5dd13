"""Numbers for people."""

from __future__ import annotations

import math

import pytest

from harness.render import format as f


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0, "0"),
        (0.123456, "0.123"),
        (0.0001234, "0.000123"),
        (1.0, "1.00"),
        (0.9996, "1.00"),
        (9.996, "10.0"),
        (99.96, "100"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (40, "40"),
        (-2.345, "-2.35"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_number(value: float | None, shown: str) -> None:
    assert f.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0.000"), (-0.0001, "0.000"), (0.25, "+0.250"), (-0.25, "−0.250"), (None, "–")]
)
def test_signed(value: float | None, shown: str) -> None:
    assert f.signed(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 %"),
        (0.0994, "+9.9 %"),
        (0.0996, "+10 %"),
        (-0.005, "−0.5 %"),
        (12.3, "+1,230 %"),
        (None, "–"),
    ],
)
def test_percent(value: float | None, shown: str) -> None:
    assert f.percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.5, "2.50 s"), (0.0123, "12.3 ms"), (0.0000123, "12.3 µs"), (0, "0 s"), (None, "–"), (math.inf, "–")],
)
def test_seconds(value: float | None, shown: str) -> None:
    assert f.seconds(value) == shown


def test_units() -> None:
    assert f.megabytes(410e6) == "410 MB"
    assert f.megabytes(2.5e9) == "2.50 GB"
    assert f.megabytes(None) == "–"
    assert f.rate(12.34) == "12.3"
    assert f.rate(12345.0) == "12.3 k"
    assert f.rate(2e6) == "2.00 M"
    assert f.rate(math.nan) == "–"
    assert f.milliseconds(0.0456) == "45.6"
    assert f.milliseconds(None) == "–"


def test_intervals_and_p_values() -> None:
    assert f.interval(0.1, 0.2) == "0.100–0.200"
    assert f.interval(-0.1, 0.2) == "−0.100 to +0.200"
    assert f.interval(None, 0.2) == f.interval(0.1, math.nan) == "–"
    assert f.p_value(0.0004) == "< 0.001"
    assert f.p_value(0.04) == "0.040"
    assert f.p_value(None) == "–"
    assert f.score(math.nan) == "–"


def test_a_figure_takes_its_unit_from_its_name() -> None:
    assert f.figure("p95_s", 0.01) == "10.0 ms"
    assert f.figure("docs_per_s", 10.0) == "10.0"
    assert f.figure("peak_rss_bytes", 1e6) == "1.00 MB"
    assert f.figure("ndcg@10", 0.5) == "0.500"


def test_words_of_sentences() -> None:
    assert f.corrected_p(0.0004) == "corrected p < 0.001"
    assert f.corrected_p(0.0123) == "corrected p = 0.012"
    assert f.with_bounds(0.1, -0.02, 0.22) == "+0.100 (−0.020 to +0.220)"
    assert f.count(1, "query", "queries") == "1 query"
    assert f.count(0, "query", "queries") == "0 queries"
    assert f.listed(["a", "b", "c"], 3) == "a, b, c"
    assert f.listed(["a", "b", "c", "d"], 3) == "a, b and 2 others"
