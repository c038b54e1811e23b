"""Modules as functions of their state: what the state is, and how to leave no trace of a call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class State:
    """The entries of a state dict, sorted into weights and the rest.

    Attributes:
        weights: the tensors of real numbers by name, each once.
        left_out: for each other entry, why it is not a weight.
        aliases: for each further name of a weight, the name it has in `weights`.
    """

    weights: dict[str, Tensor]
    left_out: dict[str, str]
    aliases: dict[str, str]

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> "State":
        """Sort the entries of a state dict; a tensor under several names is one weight."""
        weights, left_out, aliases, names = {}, {}, {}, {}
        for name, entry in entries.items():
            if not isinstance(entry, Tensor) or not entry.is_floating_point():
                kind = entry.dtype if isinstance(entry, Tensor) else type(entry).__name__
                left_out[name] = f"{kind}, not real numbers"
                continue
            first = names.setdefault(_memory(entry), name)
            if first == name:
                weights[name] = entry
            else:
                aliases[name] = first
                left_out[name] = f"the same tensor as {first!r}"
        return cls(weights, left_out, aliases)


def _memory(tensor: Tensor) -> tuple:
    """What tied weights have in common, and no other tensors."""
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def call(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    convert: Callable[[Tensor], Tensor],
) -> list[Tensor]:
    """The tensors that a module returns with other weights, in evaluation mode.

    Args:
        module: the module, which is left as it was.
        weights: what takes the place of its weights; tied ones have one name.
        args: its positional arguments.
        kwargs: its keyword arguments.
        convert: applied to every tensor of the module that is not a weight.
    """
    constants = {name: convert(x) for name, x in module.named_buffers() if name not in weights}
    with torch.no_grad(), evaluating(module):
        for part in module.modules():
            attributes = vars(part)
            attributes |= {k: convert(v) for k, v in attributes.items() if isinstance(v, Tensor)}
        states = {**constants, **weights}
        outputs = torch.func.functional_call(module, states, tuple(args), dict(kwargs))
    return [x for x in pytree.tree_leaves(outputs) if isinstance(x, Tensor)]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, after which the module is exactly as before, also after exceptions.

    Every attribute of every part is put back: tensors, training flags, and what `forward` or a
    hook has set.
    """
    holders = [vars(part) for part in module.modules()]
    holders += [value for holder in holders for value in holder.values() if isinstance(value, dict)]
    saved = [dict(holder) for holder in holders]
    try:
        for part in module.modules():
            part.training = False
        yield
    finally:
        for holder, entries in zip(holders, saved, strict=True):
            holder.clear()
            holder.update(entries)
