"""Evaluating a function in float64, whatever precision it was written for.

Permuting weights reorders sums, which changes an output by a rounding error. A network that
casts to float32 inside rounds to 1e-7, and an error as small as that cannot be told from it. So
every equation of the network's jaxpr is evaluated with its operands, results and casts widened to
float64. An operation that refuses, such as a bit cast or a call into another language, runs as it
is written, and its precision is remembered.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from .._jaxprs import inlined_body


class Widened:
    """`fn(params, *inputs)`, evaluated in float64.

    Attributes:
        precision: the coarsest relative rounding error of any operation on the way. It is known
            after the first call.
    """

    def __init__(self, fn: Callable[..., PyTree], params: PyTree, inputs: tuple):
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(params, *inputs)
        self.precision = float(np.finfo(np.float64).eps)
        self._treedef = jax.tree.structure(shapes)
        self._run = jax.jit(lambda *leaves: self._evaluate(closed, leaves))

    @property
    def tolerance(self) -> float:
        """The largest relative change that may be rounding: the square root of the precision."""
        return float(np.sqrt(self.precision))

    def __call__(self, params: PyTree, *inputs: Any) -> PyTree:
        """The outputs, those with a floating point in float64."""
        with jax.enable_x64(True):
            outputs = self._run(*map(widen, jax.tree.leaves((params, inputs))))
        return jax.tree.unflatten(self._treedef, outputs)

    def _evaluate(self, jaxpr: Any, operands: Sequence[Any]) -> list[Any]:
        consts = ()
        if isinstance(jaxpr, jex.ClosedJaxpr):
            jaxpr, consts = jaxpr.jaxpr, jaxpr.consts
        environment = dict(zip(jaxpr.constvars, map(widen, consts), strict=True))
        for var, x in zip(jaxpr.invars, operands, strict=True):
            environment[var] = _cast(x, _wide(var.aval.dtype))

        def read(var: Any) -> Any:
            if isinstance(var, jex.Literal):
                aval: Any = var.aval
                return np.asarray(var.val, _wide(aval.dtype))
            return environment[var]

        for eqn in jaxpr.eqns:
            results = self._equation(eqn, [read(var) for var in eqn.invars])
            environment.update(zip(eqn.outvars, results, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[Any]) -> list[Any]:
        body = inlined_body(eqn)
        if body is not None:
            return self._evaluate(body, operands)
        if eqn.primitive.name == "reduce_precision":
            return operands
        given = [var.aval.dtype for var in eqn.invars]
        wanted = [var.aval.dtype for var in eqn.outvars]
        if all(_wide(dtype) == dtype for dtype in (*given, *wanted)):
            return _bind(eqn, operands, eqn.params)
        expected = [(var.aval.shape, _wide(var.aval.dtype)) for var in eqn.outvars]
        params = self._widen_params(eqn.params)
        if params is not None and _results(eqn, operands, params) == expected:
            return _bind(eqn, operands, params)
        for dtype in given if wanted else ():
            if _wide(dtype) != dtype:
                self.precision = max(self.precision, float(jnp.finfo(dtype).eps))
        narrow = [_cast(x, dtype) for x, dtype in zip(operands, given, strict=True)]
        return [
            _cast(x, _wide(dtype))
            for x, dtype in zip(_bind(eqn, narrow, eqn.params), wanted, strict=True)
        ]

    def _widen_params(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """An equation's parameters with types and inner jaxprs widened; None if that fails."""
        if any(isinstance(x, jex.Jaxpr) for x in jax.tree.leaves(params)):
            return None

        def new(x: Any) -> Any:
            if isinstance(x, jex.ClosedJaxpr):
                shapes = [_widened_shape(var.aval) for var in x.jaxpr.invars]
                return jax.make_jaxpr(lambda *args: self._evaluate(x, args))(*shapes)
            return _wide(x) if isinstance(x, np.dtype) else x

        return jax.tree.map(new, params)


def widen(x: Any) -> Any:
    """An array with its floating-point entries in float64; a random key stays as it is.

    The result is a NumPy array, so that drawing and permuting it compiles nothing.
    """
    if jnp.issubdtype(getattr(x, "dtype", np.int64), jax.dtypes.extended):
        return x
    if isinstance(x, Tracer):
        return _cast(x, _wide(x.dtype))
    x = np.asarray(x)
    return x.astype(_wide(x.dtype))


def _wide(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if jnp.issubdtype(dtype, jnp.complexfloating) else dtype


def _widened_shape(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, _wide(aval.dtype))


def _cast(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else jax.lax.convert_element_type(x, dtype)


def _bind(eqn: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    results = eqn.primitive.bind(*operands, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _results(eqn: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any] | None:
    """The shapes and types that an equation would return; None if it refuses."""
    try:
        found = jax.eval_shape(lambda *args: _bind(eqn, args, params), *operands)
    except Exception:  # operations refuse in any way
        return None
    return [(x.shape, x.dtype) for x in found]
