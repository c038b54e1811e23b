"""`to_jax`: a PyTorch module as a JAX function of its weights."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from torch import nn

from ..nn._pointwise import check_leaves
from ..spec import SpecError
from ._arrays import to_numpy
from ._trace import Function, tensors, trace


def to_jax(
    module: nn.Module, *inputs: Any, **kwargs: Any
) -> tuple[Callable[..., Any], dict[str, Array]]:
    """A module as a JAX function `fn(params, *inputs)`, and its weights `params`.

    `params` has the leaves of `infer(module, *inputs)`, so whatever runs networks in JAX takes
    modules, too: alignment by activations, losses between networks, probes. The function
    computes what the module does in evaluation mode, without randomness, and can be compiled,
    mapped, and differentiated.

    >>> import torch, unf.torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    >>> fn, params = unf.torch.to_jax(net, torch.zeros(1, 8))
    >>> fn(params, jax.numpy.ones((5, 8))).shape
    (5, 4)

    Args:
        module: the module. Its weights are copied; whatever else it holds is read when the
            function is called or compiled.
        *inputs: its arguments. Tensors are examples: `fn` takes arrays in their place, in order,
            also of other sizes if the module does and does not need `torch.export` to be traced.
            Other arguments, such as None, stay as they are.
        **kwargs: its keyword arguments, whose tensors follow those of `inputs`.

    Returns:
        The function, which returns an array, or a list of all if the module returns several
        tensors; and the weights by name, those of other modules of this kind too.

    Raises:
        TraceError: if the module cannot be traced, naming the line that is at fault.
        SpecError: if it has no weights, or none with values.
    """

    def use(function: Function, *arguments: Any) -> Function:
        jax.eval_shape(function, *arguments)
        return function

    examples = [tuple(x.shape) for x in tensors((inputs, kwargs))]
    state, function = trace(module, inputs, kwargs, use)
    if unknown := [name for name, x in state.weights.items() if x.is_meta]:
        raise SpecError(
            "a weight on the meta device has no values",
            path=unknown[0],
            remedy="load the weights first; unf.torch.infer needs none",
        )
    params = {name: jnp.array(to_numpy(x)) for name, x in state.weights.items()}
    expected = _shapes(params)

    def fn(params: Mapping[str, Array], *arrays: Any) -> Any:
        if len(arrays) != len(examples):
            raise TypeError(
                f"expected params and {len(examples)} arrays, got params and {len(arrays)}"
            )
        remedy = "pass params of a module of this kind, without channels"
        check_leaves(_shapes(params), expected, "the weights are not the module's", remedy)
        given = [jnp.asarray(array) for array in arrays]
        try:
            with jax.numpy_rank_promotion("allow"):
                outputs = function(dict(params), *given)
        except Exception as error:
            shapes = [x.shape for x in given]
            error.add_note(
                f"the function was called with arrays of shapes {shapes}, and made with "
                f"{examples}; does the module take these?"
            )
            raise
        return outputs[0] if len(outputs) == 1 else outputs

    return fn, params


def _shapes(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"shape {tuple(np.shape(x))}" for name, x in sorted(params.items())}
