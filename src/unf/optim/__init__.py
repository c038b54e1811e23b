"""Learned optimizers: Optax transformations with a neural functional inside (§4.2)."""

from ._store import load, origin, save, trained
from ._theta import FORMS, Form, Theta, init_theta
from ._transformation import learned_optimizer

__all__ = [
    "FORMS",
    "Form",
    "Theta",
    "init_theta",
    "learned_optimizer",
    "load",
    "origin",
    "save",
    "trained",
]
