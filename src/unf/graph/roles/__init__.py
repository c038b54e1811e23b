"""Roles of axes: how each parameter first meets activations, read off a jaxpr.

A value is an activation if it depends on an input, a function of weights if it depends on
parameters alone, and else a constant. Where a function of weights meets an activation, its axes
get roles, and these pass back through the operations that computed it, as far as the parameters.
The walk looks at each equation once and knows nothing about permutations.
"""

from ._walk import find_roles

__all__ = ["find_roles"]
