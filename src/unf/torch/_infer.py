"""`infer`: the weight space of a PyTorch module."""

import dataclasses
from typing import Any

import jax
import torch
from torch import nn

from .. import graph
from ..spec import SpecError, WeightSpace
from ._modules import State, evaluating
from ._trace import TraceError, tensors, to_struct, trace_directly, trace_exported


def infer(module: nn.Module, *inputs: Any, **kwargs: Any) -> WeightSpace:
    """The weight space of a module, found from its computation graph.

    Its leaves are the tensors of real numbers in the module's state dict, by name: parameters
    and buffers, so running statistics permute with their channels. Tied weights are one leaf,
    with the first of their names. Other entries, such as counters, are left out;
    `space.notes.left_out` lists them. The order of the inputs and outputs is fixed. The module
    is traced in evaluation mode, and left as it was.

    >>> import torch, unf.torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    >>> space = unf.torch.infer(net, torch.zeros(1, 8))
    >>> space
    WeightSpace(8 leaves, 548 weights; hidden=32; fixed in=8, out=4)
      0.bias          hidden
      0.weight        hidden [in]
      1.bias          hidden
      1.running_mean  hidden
      1.running_var   hidden
      1.weight        hidden
      3.bias          [out]
      3.weight        [out] hidden
    >>> space.notes.left_out
    {'1.num_batches_tracked': 'torch.int64, not real numbers'}

    Args:
        module: the module; tensors on the meta device are enough.
        *inputs: its arguments. Only shapes and dtypes of tensors matter.
        **kwargs: its keyword arguments.

    Raises:
        TraceError: if the module cannot be traced, naming the line that is at fault.
        SpecError: if it has no weights.
    """
    if not isinstance(module, nn.Module):
        raise SpecError(
            "not a PyTorch module",
            expected="infer(module, *inputs), with a torch.nn.Module",
            got=f"a {type(module).__name__}",
            remedy="for a JAX function, use unf.infer(fn, params, *inputs)",
        )
    state = State.of(module.state_dict(keep_vars=True))
    if not state.weights:
        raise SpecError("the module has no weights", got=f"entries {list(state.left_out)}")
    shapes = {name: to_struct(x) for name, x in state.weights.items()}
    arguments = [to_struct(x) for x in tensors((inputs, kwargs))]
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        try:
            function = trace_directly(module, inputs, kwargs)
            space = graph.infer(function, shapes, *arguments)
        except TraceError as error:
            _check_runs(module, inputs, kwargs)
            if error.needs_values:
                raise
            try:
                function = trace_exported(module, state, inputs, kwargs)
                space = graph.infer(function, shapes, *arguments)
            except Exception:
                raise error from error.__cause__
    notes = dataclasses.replace(space.notes, left_out=state.left_out)
    return dataclasses.replace(space, notes=notes)


def _check_runs(module: nn.Module, inputs: tuple, kwargs: dict[str, Any]) -> None:
    """Raise PyTorch's own error if the module does not run with these inputs at all."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), evaluating(module):
            module(*inputs, **kwargs)
    except Exception as error:
        shapes = [tuple(x.shape) for x in tensors((inputs, kwargs))]
        error.add_note(
            f"unf.torch.infer called the module with tensors of shapes {shapes}; does the module "
            "take these?"
        )
        raise
