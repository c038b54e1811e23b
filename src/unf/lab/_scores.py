"""How well predictions rank and fit the truth."""

import numpy as np
from jaxtyping import Float


def kendall_tau(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Kendall's rank correlation, tau-b; 0 if either is constant."""
    dx, dy = (np.sign(v[:, None] - v[None, :]) for v in (x, y))
    return float(np.sum(dx * dy) / max(np.linalg.norm(dx) * np.linalg.norm(dy), 1.0))


def r_squared(predicted: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> float:
    """The fraction of the truth's variance that is predicted; NaN if it has none."""
    variance = np.var(true)
    return float(1 - np.mean((predicted - true) ** 2) / variance) if variance else float("nan")


def standard_error(values: Float[np.ndarray, " n"]) -> float:
    """Of the mean; NaN for a single value."""
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def summary(values: Float[np.ndarray, " n"], digits: int = 3) -> str:
    """Mean ± standard error, or the value if there is but one."""
    error = f" ± {standard_error(values):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"
