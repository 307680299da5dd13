from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from harness import resampling, significance
from harness.significance import (
    binomial_interval,
    bootstrap_interval,
    holm,
    mean_interval,
    paired_difference,
    regularised_beta,
)
from rag_core.errors import InvalidArgumentError

VALUES = np.random.default_rng(3).beta(0.4, 0.8, 80)


def test_interval_is_the_same_each_time_and_moves_with_the_seed():
    assert bootstrap_interval(VALUES) == bootstrap_interval(VALUES.tolist())
    assert bootstrap_interval(VALUES, seed=1) != bootstrap_interval(VALUES, seed=2)


def test_interval_holds_the_mean_and_widens_with_the_level():
    low, high = bootstrap_interval(VALUES)
    wide_low, wide_high = bootstrap_interval(VALUES, level=0.99)
    assert wide_low < low < VALUES.mean() < high < wide_high


def test_interval_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    expected = stats.bootstrap(
        (VALUES,), np.mean, method="BCa", n_resamples=20_000, rng=0
    ).confidence_interval
    found = bootstrap_interval(VALUES, resamples=20_000)
    # two resampling errors of about 1 % of the interval's width
    assert found == pytest.approx((expected.low, expected.high), abs=0.03 * (expected.high - expected.low))


def test_interval_covers_the_true_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        low, high = bootstrap_interval(generator.beta(1, 3, 50), level=0.9, resamples=400)
        hits += low <= 0.25 <= high
    assert 0.82 <= hits / 200 <= 0.96


def test_interval_in_blocks_has_the_same_size(monkeypatch):
    whole = bootstrap_interval(VALUES, resamples=4000)
    monkeypatch.setattr(resampling, "BLOCK", 1000)
    assert bootstrap_interval(VALUES, resamples=4000) == pytest.approx(whole, abs=0.01)


@pytest.mark.parametrize("values", [[0.5] * 9, [0.25], [0.0, 0.0], [1.0]])
def test_constant_values_have_no_spread(values):
    assert bootstrap_interval(values) == (values[0], values[0])


def test_percentiles_stand_in_where_the_correction_is_not_finite():
    # every resampled mean lies on one side: no finite bias
    data = np.array([0.2, 0.4, 0.9])
    assert resampling.bca_levels(data, np.full(100, 0.1), 0.95) == pytest.approx([0.025, 0.975])
    # bias and skewness so strong that the acceleration turns the scale round
    skewed = np.array([0.0] * 30 + [1.0])
    means = np.array([0.0] * 1 + [1.0] * 9999)
    assert resampling.bca_levels(-skewed, means - 0.5, 0.9999) == pytest.approx([0.00005, 0.99995])


@pytest.mark.parametrize("n", [1, 2, 7, 40, 1500])
def test_binomial_interval_agrees_with_scipy(n):
    stats = pytest.importorskip("scipy.stats")
    for successes in sorted({0, 1, n // 3, n // 2, n - 1, n}):
        for level in (0.9, 0.95, 0.99):
            expected = stats.binomtest(successes, n).proportion_ci(level, method="exact")
            found = binomial_interval(successes, n, level)
            assert found == pytest.approx((expected.low, expected.high), abs=1e-10)


def test_binomial_interval_of_textbook_values():
    assert binomial_interval(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1), abs=1e-12)
    assert binomial_interval(10, 10) == pytest.approx((0.025**0.1, 1.0), abs=1e-12)


def test_regularised_beta_of_closed_forms():
    for x in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert regularised_beta(x, 1, 1) == pytest.approx(x, abs=1e-14)
        assert regularised_beta(x, 3, 1) == pytest.approx(x**3, abs=1e-14)
        assert regularised_beta(x, 1, 4) == pytest.approx(1 - (1 - x) ** 4, abs=1e-14)


def test_mean_interval_is_exact_for_binary_values_only():
    values = [1.0] * 3 + [0.0] * 37
    assert mean_interval(values, binary=True) == binomial_interval(3, 40)
    assert mean_interval([1.0] * 20, binary=True)[0] < 0.9
    assert mean_interval(VALUES, binary=False, seed=4) == bootstrap_interval(VALUES, seed=4)
    with pytest.raises(InvalidArgumentError, match="neither 0 nor 1"):
        mean_interval([0.5], binary=True)


def test_paired_difference_of_equal_systems_is_nothing():
    found = paired_difference(VALUES, VALUES)
    assert (found.mean, found.low, found.high, found.p_value, found.n) == (0.0, 0.0, 0.0, 1.0, 80)


def test_paired_difference_turns_its_sign_with_the_order():
    other = np.clip(VALUES + np.random.default_rng(5).normal(0.05, 0.1, 80), 0, 1)
    ab, ba = paired_difference(VALUES, other), paired_difference(other, VALUES)
    assert ab.mean == pytest.approx(-ba.mean)
    assert ab.p_value == ba.p_value == paired_difference(VALUES, other).p_value
    assert ab.low < ab.mean < ab.high


def test_few_queries_are_tested_exactly():
    # all of n differences have one sign: 2 of 2**n patterns are as extreme
    found = paired_difference([0.5, 0.6, 0.7, 0.8, 0.9], [0.1, 0.2, 0.3, 0.3, 0.3])
    assert found.p_value == pytest.approx(2 / 2**5)
    values = np.array([0.3, -0.1, 0.2, 0.05, -0.02, 0.4])
    sums = [abs(sum(s * v for s, v in zip(signs, values))) for signs in itertools.product((1, -1), repeat=6)]
    expected = np.mean([s >= abs(values.sum()) - 1e-12 for s in sums])
    assert paired_difference(values, np.zeros(6)).p_value == pytest.approx(expected)


def test_random_patterns_agree_with_the_exact_test(monkeypatch):
    values = np.random.default_rng(8).normal(0.15, 0.4, 13)
    exact = paired_difference(values, np.zeros(13)).p_value
    monkeypatch.setattr(resampling, "EXACT_QUERIES", 0)
    sampled = paired_difference(values, np.zeros(13), permutations=20_000).p_value
    assert 0.01 < exact < 0.9
    assert sampled == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


def test_many_queries_agree_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(9).normal(0.03, 0.2, 150)
    expected = stats.permutation_test(
        (values, np.zeros(150)),
        lambda a, b: np.mean(a - b),
        permutation_type="samples",
        n_resamples=10_000,
        rng=1,
    ).pvalue
    assert paired_difference(values, np.zeros(150)).p_value == pytest.approx(expected, abs=0.03)


def test_a_clear_difference_never_has_p_value_0():
    clear = paired_difference(np.full(100, 0.9), np.linspace(0, 0.4, 100)).p_value
    assert 2**-99 <= clear < 1e-15  # all signs alike: the exact value is 2 in 2 ** 100
    assert paired_difference(np.full(5000, 0.9), np.zeros(5000)).p_value > 0


def test_the_bound_of_what_no_pattern_reached_is_never_below_the_exact_value():
    generator = np.random.default_rng(4)
    for n in (4, 9, 13):
        for _ in range(30):
            values = generator.normal(0.5, 0.6, n)
            assert significance._at_most(values) >= resampling.exact_p(values)


def test_p_values_under_no_difference_are_spread_evenly():
    generator = np.random.default_rng(21)
    p_values = [resampling.exact_p(generator.normal(0, 1, 12)) for _ in range(300)]
    assert np.mean(np.array(p_values) <= 0.1) == pytest.approx(0.1, abs=0.05)


def test_holm_is_monotone_and_capped():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bootstrap_interval([]), "at least one"),
        (lambda: bootstrap_interval([[0.1]]), "shape"),
        (lambda: bootstrap_interval([0.1, math.nan]), "not finite"),
        (lambda: bootstrap_interval([0.1, 0.2], level=1), "level is 1"),
        (lambda: bootstrap_interval([0.1, 0.2], resamples=10), "resamples is 10"),
        (lambda: binomial_interval(3, 2), "3 successes of 2"),
        (lambda: binomial_interval(0, 0), "0 successes of 0"),
        (lambda: binomial_interval(1, 2, 0), "level is 0"),
        (lambda: paired_difference([0.1], [0.1, 0.2]), "1 values against 2"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(InvalidArgumentError, match=words):
        call()
