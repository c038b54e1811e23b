"""Evaluating learned optimizers: fresh networks, tuned baselines, the paper's figure (§4.2)."""

from ._compare import TITLES, Comparison, compare, join, title
from ._evaluate import GRIDS, Curves, at_edge, evaluate, part_ends, tune
from ._pace import Pace
from ._setting import BUILT_IN, SMALL, make_task
from ._show import draw_comparisons

__all__ = [
    "BUILT_IN",
    "GRIDS",
    "SMALL",
    "TITLES",
    "Comparison",
    "Curves",
    "Pace",
    "at_edge",
    "compare",
    "draw_comparisons",
    "evaluate",
    "join",
    "make_task",
    "part_ends",
    "title",
    "tune",
]
