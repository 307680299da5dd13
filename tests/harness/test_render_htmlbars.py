"""Bars: sizes in percent of the width, words for those who cannot see them."""

from __future__ import annotations

import re

from harness.render.htmlbars import Segment, latency, losses, stacked, whisker
from harness.results import MetricResult, ResultDocument
from harness.rows import make_rows


def test_whisker_is_to_scale() -> None:
    html = whisker(MetricResult(0.4, 0.3, 0.5), 0.8)
    assert 'width="50.00%"' in html
    assert 'x1="37.50%" x2="62.50%"' in html
    assert whisker(None, 1.0) == whisker(MetricResult(None, None, None), 1.0) == ""


def test_without_an_interval_there_is_no_line() -> None:
    assert "<line" not in whisker(MetricResult(0.4, None, None), 1.0)


def test_segments_follow_each_other_and_are_named() -> None:
    html = stacked(
        [Segment("a<", "embed", 1, "1 ms"), Segment("b", "bm25", 0, "0"), Segment("c", "x", 3, "3 ms")], 8
    )
    assert re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', html) == [("0.00", "12.50"), ("12.50", "37.50")]
    assert 'aria-label="a&lt; 1 ms, c 3 ms"' in html
    assert "<title>a&lt;: 1 ms</title>" in html


def test_latency_is_the_fastest_first_without_what_failed(document: ResultDocument) -> None:
    html = latency(make_rows(document))
    labels = re.findall(r'class="bl"><bdi>([^<]*)', html)
    assert labels[0] == "bm25"
    assert labels[-1] == "e5-small · hybrid"
    assert len(labels) == 6
    assert html.index(">embed<") < html.index(">fusion<")
    assert latency([]) == ""


def test_losses_name_the_share_that_was_found(document: ResultDocument) -> None:
    document.cells[0].attribution = {
        "top": 10,
        "pool": 50,
        "relevant": 8,
        "lifted": 0,
        "fates": {"found": 6, "no_pool": 2},
    }
    html = losses(make_rows(document))
    assert "75 % found" in html
    assert 'aria-label="found 6, in no pool 2"' in html
    assert "pushed out" not in html
    assert losses(make_rows(document)[1:]) == ""
