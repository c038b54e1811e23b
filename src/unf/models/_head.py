"""The multilayer perceptron at the end of invariant models."""

from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray

from ..nn import resolve_activation


def make_head(
    features: int, out_size: int, width: int, layers: int, activation: Any, key: PRNGKeyArray
) -> eqx.nn.MLP:
    """An MLP of that many linear layers."""
    if layers < 1:
        raise ValueError(f"mlp_layers is {layers}; expected at least 1")
    act = resolve_activation(activation)
    return eqx.nn.MLP(features, out_size, width, depth=layers - 1, activation=act, key=key)


def head_config(head: eqx.nn.MLP) -> dict[str, int]:
    """The models' arguments that a head follows from."""
    return {
        "out_size": int(head.out_size),
        "mlp_width": head.width_size,
        "mlp_layers": head.depth + 1,
    }
