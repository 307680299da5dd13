from __future__ import annotations

from email.utils import formatdate

import pytest

from providers._pacing import Bucket, backoff_s, retry_after_s

NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    "headers, expected",
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "99999"}, 99999.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-10"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"retry-after": formatdate(NOW + 30)}, 30.0),
        ({"retry-after": "Fri, 99 Nov 2026 25:00:00 GMT"}, None),
    ],
)
def test_the_wait_that_an_answer_asks_for(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers, NOW) == expected


@pytest.mark.parametrize(
    "tries, most", [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 8.0), (999, 8.0)]
)
def test_back_off_has_full_jitter_and_an_end(tries: int, most: float) -> None:
    assert backoff_s(tries, 0.0) == 0.0
    assert backoff_s(tries, 0.5) == most / 2
    assert backoff_s(tries, 1.0) == most


@pytest.mark.parametrize("per_minute, amount", [(60, 1), (2000, 1), (3, 1), (100_000, 900)])
def test_no_minute_holds_more_than_the_limit(per_minute: int, amount: int) -> None:
    now = [0.0]
    bucket = Bucket(per_minute, lambda: now[0])
    sent: list[float] = []
    while now[0] < 240:
        now[0] += bucket.take(amount)
        sent.append(now[0])
        now[0] += 1e-3  # a request takes its time
    for start in sent:
        assert amount * sum(start <= at < start + 60 for at in sent) <= per_minute + 1e-6
    total = amount * sum(60 <= at < 240 for at in sent)
    assert total >= 0.6 * 3 * per_minute, "the limit is not used"


def test_what_was_not_used_comes_back() -> None:
    now = [0.0]
    bucket = Bucket(600, lambda: now[0])
    assert bucket.take(60) == 0
    assert bucket.take(90) == pytest.approx(10.0)
    bucket.give_back(90)
    assert bucket.take(9) == pytest.approx(1.0)
    bucket.give_back(-18)
    assert bucket.take(0) == pytest.approx(3.0)


def test_more_than_a_minutes_limit_waits_for_a_minute_and_no_longer() -> None:
    bucket = Bucket(600, lambda: 0.0)
    assert bucket.take(10**9) == pytest.approx(60.0)
