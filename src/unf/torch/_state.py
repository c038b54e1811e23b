"""State dicts to features and back."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from torch import Tensor, nn

from ..nn._pointwise import check_leaves
from ..spec import SpecError
from ._arrays import to_jax, to_numpy, to_torch
from ._modules import State

StateDict = Mapping[str, Any]
Features = dict[str, Float[Array, "..."]]


def features(state_dicts: StateDict | Iterable[StateDict]) -> Features:
    """Features of one network, or of several along a leading batch axis.

    Entry `name` has the shape of the state dict's entry and a trailing channel axis of size 1.
    The entries are those of `unf.torch.infer`'s spaces: tensors of real numbers, tied ones once.
    Features of one network share its memory where PyTorch and JAX allow it, so they change when
    PyTorch trains the network; several networks are copied once.

    >>> import torch, unf.torch
    >>> nets = [torch.nn.Linear(3, 4) for _ in range(10)]
    >>> unf.torch.features(nets[0].state_dict())["weight"].shape
    (4, 3, 1)
    >>> unf.torch.features(net.state_dict() for net in nets)["weight"].shape
    (10, 4, 3, 1)

    Raises:
        SpecError: if there are no state dicts, or they are of different networks.
    """
    if isinstance(state_dicts, Mapping):
        weights = State.of(_checked(state_dicts)).weights
        return {name: to_jax(x[..., None]) for name, x in weights.items()}
    rows = [State.of(_checked(each)).weights for each in state_dicts]
    if not rows:
        raise SpecError("no state dicts", expected="one, or an iterable of some")
    first = _shapes(rows[0])
    for i, row in enumerate(rows[1:], 2):
        message = f"state dict {i} is of another network than the first"
        check_leaves(_shapes(row), first, message, "make features of each kind of network apart")
    return {
        name: jnp.asarray(np.stack([to_numpy(row[name]) for row in rows])[..., None])
        for name in rows[0]
    }


def to_state_dict(
    features: Mapping[str, Any], *, like: Any
) -> dict[str, Any] | list[dict[str, Any]]:
    """The state dict with these weights, or a list of them for features with a batch axis.

    The inverse of `features`, which also accepts weights without a channel axis. Tensors share
    memory with the arrays where dtypes and devices allow it; `load_state_dict` copies them.

    >>> import torch, unf.torch
    >>> net = torch.nn.Linear(3, 4)
    >>> x = unf.torch.features(net.state_dict())
    >>> _ = net.load_state_dict(unf.torch.to_state_dict({k: 2 * v for k, v in x.items()}, like=net))

    Args:
        features: arrays by name.
        like: a module or state dict with the other entries (counters, further names of tied
            weights), and the dtypes and devices.

    Raises:
        SpecError: if names or shapes differ from those of `like`.
    """
    entries = _checked(like.state_dict() if isinstance(like, nn.Module) else like)
    state = State.of(entries)
    remedy = "pass features of this network, with one channel"
    ranks = {np.ndim(features[n]) - x.ndim for n, x in state.weights.items() if n in features}
    extra = ranks.pop() if len(ranks) == 1 else 1
    batch = len(next(iter(features.values()))) if extra == 2 else None
    before = () if batch is None else (batch,)
    after = () if extra == 0 else (1,)
    found = {name: f"shape {tuple(np.shape(x))}" for name, x in sorted(features.items())}
    expected = {
        name: f"shape {(*before, *x.shape, *after)}" for name, x in sorted(state.weights.items())
    }
    check_leaves(found, expected, "the features do not fit the state dict", remedy)
    weights = {n: to_torch(features[n]).to(x.device, x.dtype) for n, x in state.weights.items()}
    weights = {n: x[..., 0] if after else x for n, x in weights.items()}
    if batch is None:
        return _fill(entries, state, weights)
    return [_fill(entries, state, {n: x[i] for n, x in weights.items()}) for i in range(batch)]


def _fill(entries: StateDict, state: State, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """A state dict with new weights; tied ones stay tied."""
    return {n: weights.get(state.aliases.get(n, n), x) for n, x in entries.items()}


def _checked(state_dict: Any) -> StateDict:
    if isinstance(state_dict, Mapping) and all(isinstance(name, str) for name in state_dict):
        return state_dict
    raise SpecError(
        "not a state dict",
        expected="a mapping from names to tensors",
        got=f"a {type(state_dict).__name__}",
        remedy="pass module.state_dict()",
    )


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: f"shape {tuple(x.shape)}" for name, x in sorted(weights.items())}
