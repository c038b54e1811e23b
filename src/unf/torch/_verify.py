"""`verify`: checking a weight space by running the module in PyTorch itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import PRNGKeyArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..spec import SpecError, SymmetryReport, WeightSpace
from ..spec._signs import check_names
from ..spec._space import check_is_space
from ..spec._verify import compare
from ._arrays import to_numpy
from ._modules import State, call
from ._trace import tensors, with_tensors

_WIDE = {
    **dict.fromkeys([torch.float16, torch.bfloat16, torch.float32], torch.float64),
    torch.complex64: torch.complex128,
}


def verify(
    module: nn.Module,
    space: WeightSpace,
    *inputs: Any,
    key: PRNGKeyArray,
    randomize: bool = True,
    signs: Sequence[str] = (),
    **kwargs: Any,
) -> SymmetryReport:
    """Check in PyTorch that no permutation of `space` changes what the module returns.

    Like `unf.verify`: each name is permuted alone, with a cycle and with a transposition, on
    random weights. PyTorch runs the module in float64, also where the module casts to a lower
    precision, and in evaluation mode. Afterwards the module and PyTorch's random state are
    exactly as before, also after an exception.

    >>> import jax, torch, unf.torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    >>> x = torch.ones(1, 8)
    >>> report = unf.torch.verify(net, unf.torch.infer(net, x), x, key=jax.random.key(0))
    >>> report.broken
    ()

    Args:
        module: the module.
        space: the weight space to check, with leaves named as in the module's state dict.
        *inputs: the module's arguments.
        key: draws weights and rows.
        randomize: give every weight random values first; see `unf.verify`.
        signs: names whose neurons are to be flipped, too; see `unf.verify`.
        **kwargs: the module's keyword arguments.

    Raises:
        SymmetryError: naming the permutations that change the outputs.
        SpecError: if the space is not one of this module's weights.
    """
    check_is_space(space)
    weights = State.of(module.state_dict()).weights
    arrays = {leaf.path: _weight(weights, leaf.path) for leaf in space.leaves}
    space.flatten(arrays, channels=False)
    constants = {name: _widen(x) for name, x in weights.items() if name not in arrays}
    args, options = with_tensors((inputs, kwargs), [_widen(x) for x in tensors((inputs, kwargs))])

    run = _Runner(module, constants, args, options)
    names = check_names(signs, space.index_shapes)
    return compare(run, arrays, space, (), key, randomize, names)


@dataclass(frozen=True)
class _Runner:
    """The module with the weights given, run in PyTorch."""

    module: nn.Module
    constants: dict[str, Tensor]
    args: tuple
    kwargs: dict[str, Any]
    tolerance: float = float(np.sqrt(np.finfo(np.float64).eps))

    def __call__(self, params: dict[str, np.ndarray], *_: Any) -> list[np.ndarray]:
        states = {name: torch.from_numpy(np.array(x)) for name, x in params.items()}
        with torch.random.fork_rng(devices=[]), _Wide():
            torch.manual_seed(0)
            weights = {**self.constants, **states}
            outputs = call(self.module, weights, self.args, self.kwargs, _widen)
        return [to_numpy(x) for x in outputs]


def _weight(weights: dict[str, Tensor], name: str) -> np.ndarray:
    if name not in weights:
        raise SpecError(
            "the module has no such weight",
            path=name,
            expected=f"one of {list(weights)[:4]}, ...",
            remedy="find the space with unf.torch.infer(module, *inputs)",
        )
    return to_numpy(_widen(weights[name]))


def _widen(x: Tensor) -> Tensor:
    """A copy on the CPU, with real numbers in float64."""
    return x.detach().to("cpu", _WIDE.get(x.dtype, x.dtype), copy=True)


class _Wide(TorchDispatchMode):
    """Float64 wherever an operation asks for a lower precision, such as `x.float()`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = {k: _WIDE.get(v, v) if k == "dtype" else v for k, v in (kwargs or {}).items()}
        return func(*args, **wide)
