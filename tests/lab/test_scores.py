"""Scores are those of SciPy, and their standard errors those of repeated sampling."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from unf.lab._scores import jackknife_error, leave_one_out_tau, summary
from unf.models._scores import accuracy, kendall_tau, r_squared


@pytest.mark.parametrize("values", [[0.1, 0.4, 0.2, 0.9], [0.1, 0.1, 0.2, 0.9]])
def test_tau_is_that_of_scipy(values):
    x, y = np.array(values), np.array([0.3, 0.5, 0.5, 0.6])
    assert np.isclose(kendall_tau(x, y), kendalltau(x, y).statistic)
    assert kendall_tau(np.ones(4), y) == 0
    assert np.isnan(kendall_tau(np.array([np.nan, 1, 2, 3]), y))


def test_tau_without_each_network():
    rng = np.random.default_rng(0)
    x, y = np.round(rng.random((2, 9)), 1), np.round(rng.random(9), 1)
    expected = [
        np.mean([kendall_tau(np.delete(row, i), np.delete(y, i)) for row in x]) for i in range(9)
    ]
    np.testing.assert_allclose(leave_one_out_tau(x, y), expected)


def test_the_standard_error_is_the_deviation_over_samples():
    rng = np.random.default_rng(0)
    taus, errors = [], []
    for _ in range(200):
        y = rng.random(60)
        x = y + 0.3 * rng.normal(size=60)
        taus.append(kendall_tau(x, y))
        errors.append(jackknife_error(leave_one_out_tau(x[None], y)))
    assert np.mean(errors) == pytest.approx(np.std(taus), rel=0.15)


def test_r_squared():
    true = np.array([0.0, 1.0, 2.0])
    assert r_squared(true, true) == 1
    assert r_squared(np.ones(3), true) == 0
    assert np.isnan(r_squared(true, np.ones(3)))


def test_accuracy():
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    assert accuracy(probabilities, np.array([0, 1, 1])) == pytest.approx(2 / 3)
    assert np.isnan(accuracy(probabilities * np.nan, np.array([0, 1, 1])))


def test_summary():
    assert summary(np.array([0.5])) == "0.500"
    assert summary(np.array([0.4, 0.6])) == "0.500 ± 0.100"
