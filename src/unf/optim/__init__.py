"""Learned optimizers: Optax transformations with a neural functional inside (§4.2)."""

from ._form import CODE, DECAYS, FORMS, NORMALIZED, PAPER, TIME_SCALES, Form
from ._store import load, origin, save, trained
from ._theta import FEATURES, KINDS, Theta, init_theta
from ._transformation import LearnedState, learned_optimizer

__all__ = [
    "CODE",
    "DECAYS",
    "FEATURES",
    "FORMS",
    "KINDS",
    "NORMALIZED",
    "PAPER",
    "TIME_SCALES",
    "Form",
    "LearnedState",
    "Theta",
    "init_theta",
    "learned_optimizer",
    "load",
    "origin",
    "save",
    "trained",
]
