"""The specification of a network, read off its computation graph."""

from ._infer import infer
from ._interpreter import UnknownOperation
from ._registry import RULES, Equation, fix_everything, register_rule
from ._terms import Axis, Reason, Uniform, concat, fix, product
from ._unification import split, unify
from ._values import Value

__all__ = [
    "RULES",
    "Axis",
    "Equation",
    "Reason",
    "Uniform",
    "UnknownOperation",
    "Value",
    "concat",
    "fix",
    "fix_everything",
    "infer",
    "product",
    "register_rule",
    "split",
    "unify",
]
