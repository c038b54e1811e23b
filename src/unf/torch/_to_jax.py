"""`to_jax`: a PyTorch module as a JAX function of its weights."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
from torch import nn

from ._arrays import to_numpy
from ._modules import State
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
        module: the module. Its weights are copied.
        *inputs: its arguments. Tensors are examples: `fn` takes arrays in their place, in order,
            also of other sizes if the module does and does not need `torch.export` to be traced.
            Other arguments, such as None, stay as they are.
        **kwargs: its keyword arguments, whose tensors follow those of `inputs`.

    Returns:
        The function, which returns an array, or a list of all if the module returns several
        tensors; and the weights by name, those of other modules of this kind too.

    Raises:
        TraceError: if the module cannot be traced, naming the line that is at fault.
        SpecError: if it has no weights.
    """

    def use(function: Function, *arguments: Any) -> Function:
        jax.eval_shape(function, *arguments)
        return function

    count = len(tensors((inputs, kwargs)))
    _, function = trace(module, inputs, kwargs, use)

    def fn(params: dict[str, Array], *arrays: Any) -> Any:
        if len(arrays) != count:
            raise TypeError(f"expected params and {count} arrays, got params and {len(arrays)}")
        with jax.numpy_rank_promotion("allow"):
            outputs = function(params, *map(jnp.asarray, arrays))
        return outputs[0] if len(outputs) == 1 else outputs

    weights = State.of(module.state_dict()).weights
    return fn, {name: jnp.array(to_numpy(x)) for name, x in weights.items()}
