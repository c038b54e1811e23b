"""The coefficients that are meta-learned: three scalars and the network f (§4.2, appendix B).

`Form` has the options for where the paper's text and the authors' code differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..nn import NFNLinear, Pointwise, TiedLinear, UNFLinear
from ..nn._linear import pointwise_coefficients
from ..nn._tied import tie_pointwise
from ..spec import SpecError, WeightSpace
from ..spec._space import check_differs_in_sizes, check_is_space

DECAYS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
"""The decays γᵢ of the momenta that the network reads (appendix B)."""
TIME_SCALES = tuple(float(f"{digit}e{power}") for power in range(6) for digit in (1, 3))[:11]
"""1, 3, 10, …, 100000."""
KINDS = ("sgdm", "deepset", "nfn", "unf", "tied")
"""Kinds of f: none, a pointwise MLP, and MLPs with an equivariant last layer."""
WEIGHT_FEATURES = 2 + len(DECAYS)
FEATURES = WEIGHT_FEATURES + len(TIME_SCALES)
"""Channels that f reads: weight, gradient, six momenta, eleven features of time."""
_TINY = 1e-20
_LEAST_UNIT = 0.05


@dataclass(frozen=True)
class Form:
    """What a learned optimizer accumulates and reads; the defaults are the paper's text.

    Attributes:
        momentum: "sum": m ← γm + g (the text), or "mean": m ← γm + (1 − γ)g (the code).
        normalize: how weights, gradients and momenta are normalized. "none" (the text does not
            mention it); "rms": each channel of each tensor is divided by its root mean square;
            "clip-rms": values are clipped to [−1, 1] first (the code).
        time: the features of the step t, at the scales s = 1, 3, 10, …, 100000. "sine": sin(t/s)
            (the text says sinusoidal), or "tanh": tanh(t/s − 1) (the code).
        step: what an update is measured in. "raw": α (m + β f) is subtracted from the weights (the
            paper). "relative": for each tensor, α max(|W|, 0.05) (m/|g| + β f), where |·| is the
            root mean square of its entries, so that neither the scale of the weights nor that of
            the loss matters.
    """

    momentum: str = "sum"
    normalize: str = "none"
    time: str = "sine"
    step: str = "raw"

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "momentum": ("sum", "mean"),
        "normalize": ("none", "rms", "clip-rms"),
        "time": ("sine", "tanh"),
        "step": ("raw", "relative"),
    }

    def __post_init__(self):
        for name, allowed in self.CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {allowed}")

    def accumulate(self, momentum: Array, gradient: Array, decay: Array) -> Array:
        """The next value of a momentum."""
        weight = 1 if self.momentum == "sum" else 1 - decay
        return decay * momentum + weight * gradient

    def scaled(self, features: Float[Array, "entries channels"]) -> Array:
        """Normalize one tensor's features."""
        if self.normalize == "none":
            return features
        if self.normalize == "clip-rms":
            features = jnp.clip(features, -1, 1)
        square = jnp.mean(jnp.square(features), axis=0, keepdims=True)
        inverse = 1 / jnp.sqrt(square + _TINY)  # all zeros stay zeros
        return features * jnp.broadcast_to(inverse, features.shape)

    def measured(self, momentum: Array, gradient: Array) -> Array:
        """The momentum of one tensor, in the unit of its update."""
        return momentum if self.step == "raw" else momentum / (root_mean_square(gradient) + _TINY)

    def unit(self, weights: Array) -> Array | float:
        """What the update of one tensor is measured in."""
        return 1.0 if self.step == "raw" else jnp.maximum(root_mean_square(weights), _LEAST_UNIT)

    def time_features(self, step: Int[Array, ""], dtype: jnp.dtype) -> Float[Array, "11"]:
        """Encode the step."""
        times = step.astype(dtype) / jnp.asarray(np.array(TIME_SCALES), dtype)
        return jnp.sin(times) if self.time == "sine" else jnp.tanh(times - 1)


PAPER = Form()
CODE = Form(momentum="mean", normalize="clip-rms", time="tanh")
NORMALIZED = Form(normalize="rms", time="tanh")
RELATIVE = Form(momentum="mean", normalize="rms", time="tanh", step="relative")
FORMS = {"paper": PAPER, "code": CODE, "normalized": NORMALIZED, "relative": RELATIVE}
"""The paper's text, the authors' code, the text's momenta with normalized features, and one whose
updates do not depend on the scales of weights and losses, for optimizers of any network."""


def root_mean_square(x: Array) -> Float[Array, ""]:
    """The root mean square of all entries."""
    return jnp.sqrt(jnp.mean(jnp.square(x)))


class Theta(eqx.Module):
    """The coefficients θ of a learned optimizer; `learned_optimizer` turns them into one.

    The update is W ← W − α (m^γ₀ + β f(W, g, {m^γᵢ}, t)), with α, β and 1 − γ₀ stored as
    logarithms.

    Attributes:
        scalars: log_alpha, log_beta (not for "sgdm") and log_forget, the logarithm of 1 − γ₀.
        trunk: the first layers of f, which act on every entry alone.
        head: the last layer of f.
        kind: "sgdm", "deepset", "nfn", "unf" or "tied".
        form: what the optimizer accumulates and reads.
        space: the weight space of an equivariant head; None for a tied one before `on`.
    """

    scalars: dict[str, Float[Array, ""]]
    trunk: tuple[eqx.nn.Linear, ...]
    head: eqx.nn.Linear | UNFLinear | TiedLinear | None
    kind: str = eqx.field(static=True)
    form: Form = eqx.field(static=True)
    space: WeightSpace | None = eqx.field(static=True)

    @property
    def alpha(self) -> Float[Array, ""]:
        """The learning rate."""
        return jnp.exp(self.scalars["log_alpha"])

    @property
    def beta(self) -> Float[Array, ""]:
        """The weight of the network's output in the update."""
        return jnp.exp(self.scalars["log_beta"])

    @property
    def gamma(self) -> Float[Array, ""]:
        """The decay γ₀ of the nominal momentum."""
        return 1 - jnp.exp(self.scalars["log_forget"])

    @property
    def num_parameters(self) -> int:
        """The number of meta-learned parameters, including the scalars."""
        return sum(x.size for x in jax.tree.leaves(eqx.filter(self, eqx.is_array)))

    def on(self, space: WeightSpace) -> "Theta":
        """The same coefficients on another weight space.

        A tied optimizer fits any. Others fit spaces that differ from their own in the sizes of
        permuted axes; if their own has no fixed axes, fixed ones are permuted too. Kinds without a
        weight space are returned as they are.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs.
        """
        if isinstance(self.head, TiedLinear):
            head = self.head.on(space)
            return replace(self, head=head, space=head.plan.in_space)
        if self.space is None:
            return self
        assert isinstance(self.head, UNFLinear)
        check_is_space(space)
        space = space if self.space.fixed else space.relax()
        check_differs_in_sizes(space, self.space)
        spatial = [n for n in self.head.plan.in_space.fixed if n not in space.fixed]
        head = self.head.on(space.fix(*spatial) if spatial else space)
        return replace(self, head=head, space=space)

    def network(
        self, features: Sequence[Float[Array, "_ 8"]], step: Int[Array, ""]
    ) -> list[Float[Array, " _"]]:
        """Apply f to the features of each tensor's entries.

        The features of time are the same for all entries, so the first layer reads them once.
        """
        dtype = jnp.result_type(*features)
        sizes = np.cumsum([len(x) for x in features])[:-1]
        x = jnp.concatenate([self.form.scaled(x).astype(dtype) for x in features])
        (first, *rest), head = jax.tree.map(
            lambda p: p.astype(dtype) if eqx.is_array(p) else p, (self.trunk, self.head)
        )
        on_entries, on_time = first.weight[:, :WEIGHT_FEATURES], first.weight[:, WEIGHT_FEATURES:]
        now = on_time @ self.form.time_features(step, dtype) + first.bias
        x = x @ on_entries.T
        x = jax.nn.relu(x + jnp.broadcast_to(now, x.shape))
        for layer in rest:
            x = jax.nn.relu(Pointwise(layer)(x))
        if self.space is None:
            return jnp.split(Pointwise(head)(x)[:, 0], sizes)
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
    space: WeightSpace | Sequence[WeightSpace] | None = None,
    *,
    key: PRNGKeyArray,
    form: Form = PAPER,
    hidden_channels: int = 32,
    alpha: float | None = None,
    beta: float | None = None,
    gamma: float = 0.9,
    head_start: str = "random",
    spatial: tuple[str | int, ...] = (),
    head_bias: bool = True,
) -> Theta:
    """Initialize the coefficients of a learned optimizer; the defaults are the paper's.

    >>> import jax
    >>> init_theta("deepset", key=jax.random.key(0))
    Theta(deepset, 2,788 parameters)

    Args:
        kind: "sgdm" (no f), "deepset" (pointwise layers), "nfn" or "unf" (an equivariant last
            layer), or "tied" (an equivariant last layer for any network).
        space: the weight space of the parameters, for "nfn" and "unf". The paper permutes every
            axis: `space.relax()`. For "tied", the spaces whose keys its table has, see
            `unf.nn.TiedLinear`.
        key: draws the coefficients.
        form: what the optimizer accumulates and reads, see `Form`.
        hidden_channels: channels of the three pointwise layers.
        alpha: the initial learning rate α, by default 0.1, or 0.01 for relative steps.
        beta: the initial weight β of the network's output, by default 0.001, or 0.1 for relative
            steps.
        gamma: the initial decay γ₀.
        head_start: "random", or "pointwise": an equivariant last layer starts as a pointwise
            one, the same as that of "deepset" with this key; all other terms are zero.
        spatial: for "nfn", permuted axes to keep fixed, see `unf.nn.NFNLinear`.
        head_bias: whether the last layer has biases.

    Raises:
        ValueError: if an argument is invalid.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected one of {KINDS}")
    if head_start not in ("random", "pointwise"):
        raise ValueError(f"head_start is {head_start!r}; expected 'random' or 'pointwise'")
    alpha = alpha if alpha is not None else 0.1 if form.step == "raw" else 0.01
    beta = beta if beta is not None else 0.001 if form.step == "raw" else 0.1
    if not (0 < alpha < np.inf and 0 < beta < np.inf and 0 <= gamma < 1):
        raise ValueError(
            f"alpha is {alpha}, beta {beta} and gamma {gamma}; "
            "expected two positive numbers and one in [0, 1)"
        )
    scalars = {"log_alpha": alpha, "log_forget": 1 - gamma}
    if kind != "sgdm":
        scalars["log_beta"] = beta
    logs = {name: jnp.log(jnp.asarray(value, jnp.float32)) for name, value in scalars.items()}
    if kind == "sgdm":
        return Theta(logs, (), None, kind, form, None)
    *keys, head_key = jax.random.split(key, 4)
    widths = [FEATURES, *[hidden_channels] * 3]
    trunk = tuple(_linear(widths[i], widths[i + 1], each) for i, each in enumerate(keys))
    head = _linear(hidden_channels, 1, head_key, bias=head_bias)
    if kind == "deepset":
        return Theta(logs, trunk, head, kind, form, None)
    options: dict[str, Any] = {"key": head_key, "bias": head_bias}
    if kind == "tied":
        known = [space] if isinstance(space, WeightSpace) else space
        tied = TiedLinear(hidden_channels, 1, spaces=known, **options)
        tied = tie_pointwise(tied, head.weight.T) if head_start == "pointwise" else tied
        return Theta(logs, trunk, tied, kind, form, None)
    if space is None:
        raise SpecError(f"{kind!r} needs the weight space of the parameters: pass space=")
    check_is_space(space)
    assert isinstance(space, WeightSpace)
    if kind == "unf":
        equivariant = UNFLinear(space, hidden_channels, 1, **options)
    else:
        equivariant = NFNLinear(space, hidden_channels, 1, spatial=spatial, **options)
    if head_start == "pointwise":
        coefficients = pointwise_coefficients(equivariant.plan, head.weight.T)
        equivariant = eqx.tree_at(lambda h: h.coefficients, equivariant, coefficients)
    return Theta(logs, trunk, equivariant, kind, form, space)


def _linear(inputs: int, outputs: int, key: PRNGKeyArray, *, bias: bool = True) -> eqx.nn.Linear:
    """A linear layer with weights from N(0, 1/inputs) and zero bias."""
    weight = jax.random.normal(key, (inputs, outputs), jnp.float32).T / np.float32(np.sqrt(inputs))
    layer = eqx.filter_eval_shape(eqx.nn.Linear, inputs, outputs, use_bias=bias, key=key)
    layer = eqx.tree_at(lambda x: x.weight, layer, weight)
    zeros = jnp.zeros(outputs, jnp.float32)
    return eqx.tree_at(lambda x: x.bias, layer, zeros) if bias else layer
