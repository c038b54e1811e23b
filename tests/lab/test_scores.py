"""Scores are what SciPy says they are."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from unf.lab._scores import kendall_tau, r_squared, summary


@pytest.mark.parametrize("values", [[0.1, 0.4, 0.2, 0.9], [0.1, 0.1, 0.2, 0.9]])
def test_tau_is_that_of_scipy(values):
    x, y = np.array(values), np.array([0.3, 0.5, 0.5, 0.6])
    assert np.isclose(kendall_tau(x, y), kendalltau(x, y).statistic)
    assert kendall_tau(np.ones(4), y) == 0


def test_r_squared():
    true = np.array([0.0, 1.0, 2.0])
    assert r_squared(true, true) == 1
    assert r_squared(np.ones(3), true) == 0
    assert np.isnan(r_squared(true, np.ones(3)))


def test_summary():
    assert summary(np.array([0.5])) == "0.500"
    assert summary(np.array([0.4, 0.6])) == "0.500 ± 0.100"
