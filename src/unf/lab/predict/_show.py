"""Pictures of experiments: predicted against true success, and how training went."""

import os
from typing import Any

import numpy as np

from .._scores import summary
from ._run import Report

COLOURS = {
    "deepset": "tab:gray",
    "statnn": "tab:orange",
    "unf": "tab:green",
    "unf-plus": "tab:blue",
}


def draw_predictions(reports: list[Report], path: str | os.PathLike) -> None:
    """Predicted against true success of the test models, a panel for each report."""
    figure, axes = _panels(len(reports))
    for axis, report in zip(axes, reports, strict=True):
        axis.axline((0, 0), slope=1, color="0.6", linewidth=1, zorder=0)
        colour = COLOURS.get(report.method, "tab:purple")
        axis.scatter(report.true, report.predicted[0], s=9, c=colour, alpha=0.5, lw=0)
        high = max(report.true.max(), report.predicted[0].max()) * 1.05
        axis.set(xlim=(-0.02 * high, high), ylim=(-0.02 * high, high), aspect="equal")
        axis.set(xlabel="true success rate", ylabel="predicted from the weights")
        axis.set_title(f"{report.title}\nτ {summary(report.tau, 4)}", fontsize=11)
    figure.suptitle(
        f"{len(reports[0].true):,} test models; τ between two measurements {reports[0].cap:.4f}",
        fontsize=10,
    )
    figure.savefig(path)


def draw_curves(reports: list[Report], path: str | os.PathLike) -> None:
    """Training loss and validation tau after each epoch, mean and range over seeds."""
    figure, axes = _panels(2)
    for report in reports:
        colour = COLOURS.get(report.method, "tab:purple")
        for axis, series in zip(axes, (report.losses, report.valid_tau), strict=True):
            epochs = np.arange(1, len(series) + 1)
            axis.fill_between(epochs, series.min(1), series.max(1), color=colour, alpha=0.15, lw=0)
            axis.plot(epochs, series.mean(1), color=colour, marker=".", label=report.title)
    axes[0].set(xlabel="epoch", ylabel="training loss")
    axes[1].set(xlabel="epoch", ylabel="validation τ")
    axes[1].legend(fontsize=8.5, loc="lower right")
    figure.savefig(path)


def _panels(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * count, 4.2), layout="constrained", dpi=130)
    axes = figure.subplots(1, count, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes
