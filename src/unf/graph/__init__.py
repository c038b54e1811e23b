"""The weight space of a network, read off its computation graph."""

from ._expressions import Uniform, fix, fixed_axis
from ._infer import infer
from ._interpreter import UnknownOperation
from ._registry import Equation, fix_everything, register_rule
from ._unification import unify
from ._values import Value

__all__ = [
    "Equation",
    "Uniform",
    "UnknownOperation",
    "Value",
    "fix",
    "fix_everything",
    "fixed_axis",
    "infer",
    "register_rule",
    "unify",
]
