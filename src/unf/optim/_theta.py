"""What is meta-learned: three scalars and the network f (§4.2, appendix B)."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..nn import NFNLinear, PointwiseLinear, UNFLinear, pointwise_coefficients
from ..spec import SpecError, WeightSpace
from ._form import DECAYS, PAPER, TIME_SCALES, Form

KINDS = ("sgdm", "deepset", "nfn", "unf")
"""Kinds of f: none at all, a pointwise MLP, and one with an equivariant last layer."""
WEIGHT_FEATURES = 2 + len(DECAYS)
FEATURES = WEIGHT_FEATURES + len(TIME_SCALES)
"""Channels that f reads: weight, gradient, six momenta, eleven of time."""


class Theta(eqx.Module):
    """The coefficients θ of a learned optimizer; `learned_optimizer` turns them into one.

    The update is W ← W − α (m^γ₀ + β f(W, g, {m^γᵢ}, t)), with α, β and 1 − γ₀ stored as
    logarithms.

    Attributes:
        scalars: log_alpha, log_beta (not for "sgdm") and log_forget, the logarithm of 1 − γ₀.
        trunk: the pointwise layers of f.
        head: its last layer.
        kind: one of `KINDS`.
        form: what it accumulates and reads.
        space: the weight space of an equivariant head.
    """

    scalars: dict[str, Float[Array, ""]]
    trunk: tuple[PointwiseLinear, ...]
    head: PointwiseLinear | NFNLinear | UNFLinear | None
    kind: str = eqx.field(static=True)
    form: Form = eqx.field(static=True)
    space: WeightSpace | None = eqx.field(static=True)

    @property
    def alpha(self) -> Float[Array, ""]:
        """The learning rate."""
        return jnp.exp(self.scalars["log_alpha"])

    @property
    def beta(self) -> Float[Array, ""]:
        """The weight of the network's part."""
        return jnp.exp(self.scalars["log_beta"])

    @property
    def gamma(self) -> Float[Array, ""]:
        """The decay of the nominal momentum."""
        return 1 - jnp.exp(self.scalars["log_forget"])

    @property
    def num_parameters(self) -> int:
        """Everything that is meta-learned, the scalars included."""
        return sum(x.size for x in jax.tree.leaves(eqx.filter(self, eqx.is_array)))

    def network(
        self, features: Sequence[Float[Array, "_ 8"]], step: Int[Array, ""]
    ) -> list[Float[Array, " _"]]:
        """f, for the features of each tensor's entries; what depends on time only is added once."""
        dtype = jnp.result_type(*features)
        sizes = np.cumsum([len(x) for x in features])[:-1]
        x = jnp.concatenate([self.form.scaled(x).astype(dtype) for x in features])
        first, *rest = self.trunk
        weight, bias = first.weight.astype(dtype), jnp.asarray(first.bias, dtype)
        now = self.form.time_features(step, dtype) @ weight[WEIGHT_FEATURES:] + bias
        x = x @ weight[:WEIGHT_FEATURES]
        x = jax.nn.relu(x + jnp.broadcast_to(now, x.shape))
        cast = jax.tree.map(lambda p: p.astype(dtype) if eqx.is_array(p) else p, (rest, self.head))
        for layer in cast[0]:
            x = jax.nn.relu(layer(x))
        head = cast[1]
        if self.space is None:
            return jnp.split(head(x)[:, 0], sizes)
        parts = [
            part.reshape(*leaf.shape, -1)
            for leaf, part in zip(self.space.leaves, jnp.split(x, sizes), strict=True)
        ]
        out = head(self.space.unflatten(parts))
        return [leaf.reshape(-1) for leaf in jax.tree.leaves(out)]

    def __repr__(self) -> str:
        where = "" if self.space is None else f" on {len(self.space.leaves)} tensors"
        return f"Theta({self.kind}{where}, {self.num_parameters:,} parameters)"


def init_theta(
    kind: str,
    space: WeightSpace | None = None,
    *,
    key: PRNGKeyArray,
    form: Form = PAPER,
    hidden_channels: int = 32,
    alpha: float = 0.1,
    beta: float = 0.001,
    gamma: float = 0.9,
    head_start: str = "random",
    spatial: tuple[str | int, ...] = (),
    head_bias: bool = True,
) -> Theta:
    """The coefficients that meta-training begins with; the defaults are the paper's.

    >>> import jax
    >>> init_theta("deepset", key=jax.random.key(0))
    Theta(deepset, 2,788 parameters)

    Args:
        kind: one of `KINDS`.
        space: the weight space to optimize on, for "nfn" and "unf". The paper permutes every
            axis: `space.relax()`.
        key: draws the coefficients.
        form: what is accumulated and read, see `Form`.
        hidden_channels: of the three pointwise layers.
        alpha: the first learning rate α.
        beta: the first weight β of the network's part.
        gamma: the first decay γ₀.
        head_start: "random", or "pointwise": an equivariant last layer begins as a pointwise
            one, the same as that of "deepset" with this key; all other terms are zero.
        spatial: for "nfn", permuted axes to keep fixed, see `unf.nn.NFNLinear`.
        head_bias: whether the last layer has biases.

    Raises:
        ValueError: if an argument is none of those it may be.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected one of {KINDS}")
    if head_start not in ("random", "pointwise"):
        raise ValueError(f"head_start is {head_start!r}; expected 'random' or 'pointwise'")
    if not (0 < alpha < np.inf and 0 < beta < np.inf and 0 <= gamma < 1):
        raise ValueError(
            f"alpha is {alpha}, beta {beta} and gamma {gamma}; "
            "expected two positive numbers and one in [0, 1)"
        )
    scalars = {"log_alpha": alpha, "log_forget": 1 - gamma}
    equivariant = kind in ("nfn", "unf")
    if kind != "sgdm":
        scalars["log_beta"] = beta
    logs = {name: jnp.log(jnp.asarray(value, jnp.float32)) for name, value in scalars.items()}
    if kind == "sgdm":
        return Theta(logs, (), None, kind, form, None)
    if equivariant and space is None:
        raise SpecError(f"{kind!r} needs the weight space it shall optimize on: pass space")
    *keys, head_key = jax.random.split(key, 4)
    widths = [FEATURES, *[hidden_channels] * 3]
    trunk = tuple(PointwiseLinear(widths[i], widths[i + 1], key=k) for i, k in enumerate(keys))
    head: Any = PointwiseLinear(hidden_channels, 1, key=head_key, bias=head_bias)
    if equivariant:
        start = head.weight if head_start == "pointwise" else None
        head = _equivariant_head(kind, space, hidden_channels, head_key, spatial, head_bias, start)
    return Theta(logs, trunk, head, kind, form, space if equivariant else None)


def _equivariant_head(
    kind: str, space: Any, channels: int, key: Any, spatial: tuple, bias: bool, start: Any
) -> NFNLinear | UNFLinear:
    if kind == "unf":
        head = UNFLinear(space, channels, 1, key=key, bias=bias)
    else:
        head = NFNLinear(space, channels, 1, key=key, spatial=spatial, bias=bias)
    if start is None:
        return head
    linear = head if isinstance(head, UNFLinear) else head.linear
    coefficients = pointwise_coefficients(linear.plan, start)
    if isinstance(head, UNFLinear):
        return eqx.tree_at(lambda h: h.coefficients, head, coefficients)
    return eqx.tree_at(lambda h: h.linear.coefficients, head, coefficients)
