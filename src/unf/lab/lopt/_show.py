"""The paper's figure 2: training curves, a panel for each task."""

import os
from collections.abc import Sequence

import numpy as np

from .._scores import standard_error
from ._compare import TITLES, Comparison, title
from ._evaluate import part_ends

_COLORS = dict(zip(TITLES, ("C3", "C1", "C0", "C7", "C2", "k"), strict=True))
_PANELS = {
    "mlp": "MLP on {}",
    "cnn": "CNN on {}",
    "rnn": "RNN on {}",
    "transformer": "Transformer on {}",
}


def draw_comparisons(comparisons: Sequence[Comparison], path: str | os.PathLike) -> None:
    """Mean training loss with its standard error, a panel for each task.

    Args:
        comparisons: from `compare`.
        path: the picture.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(comparisons), figsize=(4.2 * len(comparisons), 3.6), squeeze=False
    )
    for axis, comparison in zip(axes[0], comparisons, strict=True):
        for name, curves in comparison.curves.items():
            _draw_curve(axis, name, curves.train, comparison.horizon)
        axis.set_title(_PANELS.get(comparison.task, "{}").format(comparison.dataset), fontsize=11)
        axis.set_xlabel("training step")
        _zoom(axis, comparison)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("training loss")
    lines = {line.get_label(): line for axis in axes[0] for line in axis.get_lines()}
    order = [title(name) for name in TITLES if title(name) in lines]
    order += [label for label in lines if label not in order]
    figure.legend(
        [lines[label] for label in order], order, loc="lower center", ncols=len(order), fontsize=9,
        frameon=False,
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_curve(axis, name: str, curves: np.ndarray, horizon: int) -> None:
    ends = part_ends(horizon)
    steps = (ends + np.append(0, ends[:-1])) / 2
    smooth = np.apply_along_axis(_smoothed, 1, curves)
    mean = smooth.mean(axis=0)
    error = np.array([standard_error(column) for column in smooth.T])
    color = _COLORS.get(name)
    dashed = "--" if name in ("adam", "sgdm-tuned") else "-"
    (line,) = axis.plot(steps, mean, dashed, color=color, label=title(name), linewidth=1.4)
    axis.fill_between(steps, mean - error, mean + error, color=line.get_color(), alpha=0.25)


def _smoothed(curve: np.ndarray, width: int = 5) -> np.ndarray:
    """Moving means; near the ends over what there is."""
    weights = np.ones(min(width, len(curve)))
    counts = np.convolve(np.ones(len(curve)), weights, "same")
    return np.convolve(curve, weights, "same") / counts


def _zoom(axis, comparison: Comparison) -> None:
    """Show the later part well: the first steps and diverged runs would flatten the rest."""
    parts = [curves.train.mean(axis=0) for curves in comparison.curves.values()]
    parts = [part for part in parts if np.isfinite(part).all()]
    low = min((float(part.min()) for part in parts), default=0.0)
    high = max((float(part[len(part) // 20]) for part in parts), default=0.0)
    if high > low:
        axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
