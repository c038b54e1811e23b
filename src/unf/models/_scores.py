"""How well predictions rank and fit the true values."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int


def kendall_tau(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Kendall's rank correlation (tau-b).

    0 if either argument is constant; NaN if one has NaN, or if there are fewer than two values.
    """
    from scipy.stats import kendalltau  # it takes a while to import

    if len(x) < 2 or np.isnan(x).any() or np.isnan(y).any():
        return float("nan")
    tau: Any = kendalltau(x, y)[0]
    return float(np.nan_to_num(tau))


def r_squared(predicted: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> float:
    """The fraction of the variance of the true values that is predicted; NaN if it is zero."""
    variance = np.var(true)
    return float(1 - np.mean((predicted - true) ** 2) / variance) if variance else float("nan")


def accuracy(probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, " n"]) -> float:
    """The fraction of examples whose most probable class is the true one; NaN for NaN."""
    if np.isnan(probabilities).any():
        return float("nan")
    return float(np.mean(np.argmax(probabilities, axis=1) == labels))
