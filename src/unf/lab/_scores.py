"""How certain scores are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float


def leave_one_out_tau(
    predicted: Float[np.ndarray, "seeds n"], true: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Kendall's τ without each of the networks in turn, averaged over seeds."""
    dy = np.sign(true[:, None] - true[None, :])
    rows = []
    for x in predicted:
        dx = np.sign(x[:, None] - x[None, :])
        both, xx, yy = (m.sum() - 2 * m.sum(axis=1) for m in (dx * dy, dx * dx, dy * dy))
        rows.append(both / np.sqrt(np.maximum(xx * yy, 1.0)))
    return np.mean(rows, axis=0)


def jackknife_error(left_out: Float[np.ndarray, " n"]) -> float:
    """The standard error of a score, from its values without each network in turn.

    The score of a difference between two predictors is paired: give it the differences.
    """
    return float(np.sqrt((len(left_out) - 1) * np.var(left_out)))


def too_few(tests: int, error: float, measure: str = "τ") -> str:
    """A warning if there are few test networks, or the standard error over them is large."""
    if tests >= 200 and not error > 0.01:
        return ""
    values = "τ" if measure == "τ" else "accuracies"
    what = f"{values} that differ by less than {2 * error:.2f}" if error > 0.005 else "methods"
    return f"{tests:,} test networks are too few to tell apart {what}"


def standard_error(values: Float[np.ndarray, " n"]) -> float:
    """The standard error of the mean; NaN for a single value."""
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def summary(values: Float[np.ndarray, " n"], digits: int = 3) -> str:
    """Mean ± standard error, or the value itself if there is only one."""
    error = f" ± {standard_error(values):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def count(things: Sequence[Any], noun: str) -> str:
    """How many things there are, in words."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
