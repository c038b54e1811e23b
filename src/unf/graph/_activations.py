"""The values within a network that carry the permutations of its weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._jaxprs import inlined_body
from ..spec._grammar import AxisSpec, names_in
from ._infer import read, trace
from ._values import INPUTS, Value

_PRODUCTS = ("dot_general", "conv_general_dilated")


@dataclass(frozen=True)
class Activation:
    """A value within a network that depends on inputs and carries permutations.

    Attributes:
        axes: its axes in the names of the weight space, with numbers for those of no parameter.
            An axis that the network splits into several is one here if nothing needs the parts.
        is_read: whether a matrix product or a convolution reads it.
    """

    axes: tuple[AxisSpec, ...]
    is_read: bool
    _number: int
    _value: Value

    def arrange(self, array: Any) -> Any:
        """The value as computed, with one dimension for each of its axes."""
        if self._value.order is not None:
            array = jnp.transpose(array, np.argsort(self._value.order).tolist())
        return array.reshape([expr.size for expr in self._value.exprs])


class Activations:
    """What `fn(params, *inputs)` computes on the way, outside of loops.

    Attributes:
        space: the weight space of the network, as `infer` finds it.
        found: all activations, in the order in which they are computed.
    """

    def __init__(self, fn: Callable[..., PyTree], params: PyTree, *inputs: Any):
        jaxpr, out_shapes = trace(fn, params, inputs)
        is_read: list[bool] = []

        def evaluate(*operands: Any) -> tuple[list[Any], list[Any]]:
            computed: list[Any] = []
            in_products: list[Any] = []
            outputs = _evaluate(jaxpr, operands, computed, in_products)
            computed = [x for x in computed if jnp.issubdtype(x.dtype, jnp.floating)]
            is_read[:] = [any(x is y for y in in_products) for x in computed]
            return outputs, computed

        self._evaluate = evaluate
        flat = jax.make_jaxpr(evaluate)(*jax.tree.leaves((params, inputs)))
        self.space, values = read(flat, out_shapes, params, inputs)
        self.found = [
            Activation(axes, is_read[number], number, value)
            for number, (value, axes) in enumerate(values)
            if axes is not None and value.sources & INPUTS and _permutes(axes)
        ]

    def compute(
        self, wanted: Sequence[Activation], networks: Sequence[PyTree], *inputs: Any
    ) -> list[list[np.ndarray]]:
        """For each network, the given activations, each with one dimension for each axis."""

        @jax.jit
        def run(*operands: Any) -> list[Any]:
            _, computed = self._evaluate(*operands)
            return [activation.arrange(computed[activation._number]) for activation in wanted]

        found = (run(*jax.tree.leaves((params, inputs))) for params in networks)
        return [[np.asarray(x) for x in of_network] for of_network in found]


def _permutes(axes: Sequence[AxisSpec]) -> bool:
    return any(not name.fixed for axis in axes for name in names_in(axis))


def _evaluate(
    jaxpr: Any, operands: Sequence[Any], computed: list[Any], in_products: list[Any]
) -> list[Any]:
    """The results of a jaxpr; the lists get all values on the way, and those that products read."""
    consts = ()
    if isinstance(jaxpr, jex.ClosedJaxpr):
        jaxpr, consts = jaxpr.jaxpr, jaxpr.consts
    environment: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    environment.update(zip(jaxpr.invars, operands, strict=True))

    def look_up(var: Any) -> Any:
        return var.val if isinstance(var, jex.Literal) else environment[var]

    for eqn in jaxpr.eqns:
        given = [look_up(var) for var in eqn.invars]
        body = inlined_body(eqn)
        if body is not None:
            results = _evaluate(body, given, computed, in_products)
        else:
            results = eqn.primitive.bind(*given, **eqn.params)
            results = list(results) if eqn.primitive.multiple_results else [results]
            computed += results
            if eqn.primitive.name in _PRODUCTS:
                in_products += given
        environment.update(zip(eqn.outvars, results, strict=True))
    return [look_up(var) for var in jaxpr.outvars]
