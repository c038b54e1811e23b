"""`infer`: the weight space of a PyTorch module."""

import dataclasses
from typing import Any

from torch import nn

from .. import graph
from ..spec import WeightSpace
from ._trace import trace


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
    state, space = trace(module, inputs, kwargs, graph.infer)
    notes = dataclasses.replace(space.notes, left_out=state.left_out)
    return dataclasses.replace(space, notes=notes)
