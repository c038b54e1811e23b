"""The coefficients that are meta-learned: three scalars and the network f (§4.2, appendix B).

`Form` has the options for where the paper's text and the authors' code differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
TINY = 1e-20
_LEAST_UNIT = 0.05
_DECAY_OF_SQUARES = 0.999
_POWER = 0.3
_DELAY = 100.0
_USUAL_SIZE = 64**2
_LARGEST_LOG_GAIN = 2.0


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
        step: what is subtracted from the weights. "raw": α (m + β f) (the paper). "adaptive":
            αₜ u eˢ n with s = f, see below.

    Adaptive steps depend neither on the scale of the weights nor on that of the loss, so that one
    optimizer can train any network. n is m/√v, where v is the running mean of g², entry by entry.
    Kinds with a weight space know more: where a tensor maps inputs to outputs, n is the polar
    factor of that matrix of momenta, as in Muon, with the root mean square of m/√v. It is
    equivariant to permutations of rows and columns, and no pointwise function of the momenta. Where
    the root mean square of n is above 1, n is divided by it, so that steps cannot jump with a loss.

    u is the root mean square of the tensor's initial weights, at least 0.05. For tensors of rank 2
    or more that are no such matrices, it is multiplied by (4096/size)^¼, because gradients have low
    rank, and what a step of low rank does to a function grows with width. αₜ = α (1 + t/τ)⁻ᵖ with
    meta-learned τ and p: a decay for which the number of steps need not be known.

    f gives s, the logarithm of a gain, bounded by ±2, so it changes how far each weight moves, and
    not the sign of its step: steps vanish with the gradients, whatever f is. It starts at zero.
    Steps of "sgdm", without f, are Adam's times u.

    What f reads is measured in the same units and clipped to ±3: W in u; n; gradients and unbiased
    momenta in √v; √v relative to the whole tensor's, as a logarithm; and whether the tensor's rank
    is at least 2. It reads the time at scales up to 1000 only, so that after a few thousand steps,
    even more than in meta-training, nothing but αₜ changes with time.
    `normalize` does not matter then, and there is no β.
    """

    momentum: str = "sum"
    normalize: str = "none"
    time: str = "sine"
    step: str = "raw"

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "momentum": ("sum", "mean"),
        "normalize": ("none", "rms", "clip-rms"),
        "time": ("sine", "tanh"),
        "step": ("raw", "adaptive"),
    }

    def __post_init__(self):
        for name, allowed in self.CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {allowed}")

    def accumulate(self, momentum: Array, gradient: Array, decay: Array) -> Array:
        """The next value of a momentum."""
        weight = 1 if self.momentum == "sum" else 1 - decay
        return decay * momentum + weight * gradient

    @property
    def is_adaptive(self) -> bool:
        """Whether squares of gradients are accumulated."""
        return self.step == "adaptive"

    @property
    def channels(self) -> int:
        """How many features every entry has, besides those of time."""
        return 2 + len(DECAYS) + (3 if self.is_adaptive else 0)

    @property
    def time_scales(self) -> tuple[float, ...]:
        """The scales of the features of time."""
        return TIME_SCALES[:7] if self.is_adaptive else TIME_SCALES

    def time_features(self, step: Int[Array, ""], dtype: jnp.dtype) -> Float[Array, " scales"]:
        """Encode the step."""
        times = step.astype(dtype) / jnp.asarray(np.array(self.time_scales), dtype)
        return jnp.sin(times) if self.time == "sine" else jnp.tanh(times - 1)


PAPER = Form()
CODE = Form(momentum="mean", normalize="clip-rms", time="tanh")
NORMALIZED = Form(normalize="rms", time="tanh")
ADAPTIVE = Form(momentum="mean", time="tanh", step="adaptive")
FORMS = {"paper": PAPER, "code": CODE, "normalized": NORMALIZED, "adaptive": ADAPTIVE}
"""The paper's text, the authors' code, the text's momenta with normalized features, and one whose
updates do not depend on the scales of weights and losses, for optimizers of any network."""


def unit_of(weights: Array) -> Float[Array, ""]:
    """The unit of a tensor's weights: their root mean square, at least 0.05."""
    return jnp.maximum(root_mean_square(weights), _LEAST_UNIT)


def size_factor(weights: Array) -> float:
    """How much smaller than the unit the steps of large matrices are, and larger those of small."""
    return (_USUAL_SIZE / weights.size) ** 0.25 if weights.ndim > 1 else 1.0


def gain(logarithm: Array) -> Array:
    """eˢ, with s bounded by ±2."""
    return jnp.exp(_LARGEST_LOG_GAIN * jnp.tanh(logarithm / _LARGEST_LOG_GAIN))


def root_mean_square(x: Array) -> Float[Array, ""]:
    """The root mean square of all entries."""
    return jnp.sqrt(jnp.mean(jnp.square(x)) + TINY)  # with a derivative at zero


class Theta(eqx.Module):
    """The coefficients θ of a learned optimizer; `learned_optimizer` turns them into one.

    The update is W ← W − α (m^γ₀ + β f(W, g, {m^γᵢ}, t)), with α, β and 1 − γ₀ stored as
    logarithms; `Form` has another one.

    Attributes:
        scalars: log_alpha, log_beta (not for "sgdm") and log_forget, the logarithm of 1 − γ₀. For
            adaptive steps not log_beta, but log_forget_squares, that of 1 minus the decay of v, and
            log_delay and log_power, those of τ and p.
        trunk: the first layers of f, which act on every entry alone.
        head: the last layer of f; None for "sgdm".
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
        """The learning rate α; with adaptive steps, that of the first step."""
        return jnp.exp(self.scalars["log_alpha"])

    def learning_rate(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """α, or αₜ = α (1 + t/τ)⁻ᵖ for adaptive steps."""
        if not self.form.is_adaptive:
            return self.alpha
        return self.alpha * (1 + step / self.delay) ** -self.power

    @property
    def delay(self) -> Float[Array, ""]:
        """The delay τ of the learning rate's decay, for adaptive steps."""
        return jnp.exp(self.scalars["log_delay"])

    @property
    def power(self) -> Float[Array, ""]:
        """The power p of the learning rate's decay, for adaptive steps."""
        return jnp.exp(self.scalars["log_power"])

    @property
    def beta(self) -> Float[Array, ""]:
        """The weight of the network's output in the update."""
        return jnp.exp(self.scalars["log_beta"])

    @property
    def gamma(self) -> Float[Array, ""]:
        """The decay γ₀ of the nominal momentum, at least 0."""
        return 1 - jnp.minimum(1, jnp.exp(self.scalars["log_forget"]))

    @property
    def gamma_squares(self) -> Float[Array, ""]:
        """The decay of the mean of squares, at least 0, for adaptive steps."""
        return 1 - jnp.minimum(1, jnp.exp(self.scalars["log_forget_squares"]))

    @property
    def reads_momenta(self) -> bool:
        """Whether momenta with the decays γᵢ are accumulated."""
        return self.head is not None

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

    def hidden(
        self, features: Float[Array, "*entries channels"], step: Int[Array, ""]
    ) -> Float[Array, "*entries hidden"]:
        """What the trunk computes at every entry.

        The features of time are the same for all entries, so the first layer reads them once.
        """
        dtype = features.dtype
        first, *rest = jax.tree.map(lambda p: p.astype(dtype), self.trunk)
        on_entries, on_time = jnp.split(first.weight, [self.form.channels], axis=1)
        now = on_time @ self.form.time_features(step, dtype) + first.bias
        x = features @ on_entries.T
        x = jax.nn.relu(x + jnp.broadcast_to(now, x.shape))
        for layer in rest:
            x = jax.nn.relu(Pointwise(layer)(x))
        return x

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
    beta: float = 0.001,
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
        alpha: the initial learning rate α, by default 0.1, or 0.03 for adaptive steps.
        beta: the initial weight β of the network's output.
        gamma: the initial decay γ₀.
        head_start: "random", or "pointwise": an equivariant last layer starts as a pointwise
            one, the same as that of "deepset" with this key; all other terms are zero. With
            adaptive steps, all gains start at 1, and a tied last layer has the coarse level only.
        spatial: for "nfn", permuted axes to keep fixed, see `unf.nn.NFNLinear`.
        head_bias: whether the last layer has biases.

    Raises:
        ValueError: if an argument is invalid.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected one of {KINDS}")
    if head_start not in ("random", "pointwise"):
        raise ValueError(f"head_start is {head_start!r}; expected 'random' or 'pointwise'")
    alpha = alpha if alpha is not None else 0.03 if form.is_adaptive else 0.1
    if not (0 < alpha < np.inf and 0 < beta < np.inf and 0 <= gamma < 1):
        raise ValueError(
            f"alpha is {alpha}, beta {beta} and gamma {gamma}; "
            "expected two positive numbers and one in [0, 1)"
        )
    adaptive = form.is_adaptive
    if hidden_channels < 1:
        raise ValueError(f"hidden_channels is {hidden_channels}; expected at least 1")
    scalars = {"log_alpha": alpha, "log_forget": 1 - gamma}
    if kind != "sgdm" and not adaptive:
        scalars["log_beta"] = beta
    if adaptive:
        scalars |= {"log_forget_squares": 1 - _DECAY_OF_SQUARES}
        scalars |= {"log_delay": _DELAY, "log_power": _POWER}
    logs = {name: jnp.log(jnp.asarray(value, jnp.float32)) for name, value in scalars.items()}
    if kind == "sgdm":
        return Theta(logs, (), None, kind, form, None)
    *keys, head_key = jax.random.split(key, 4)
    widths = [form.channels + len(form.time_scales), *[hidden_channels] * 3]
    pairs = zip(pairwise(widths), keys, strict=True)
    trunk = tuple(_linear(*sizes, each) for sizes, each in pairs)
    options: dict[str, Any] = {"key": head_key, "bias": head_bias}
    head, known = _linear(hidden_channels, 1, **options), None
    start = head.weight.T if head_start == "pointwise" and not adaptive else None
    if kind == "tied":
        spaces = [space] if isinstance(space, WeightSpace) else space
        levels = ("coarse",) if adaptive else ("coarse", "fine")
        head = TiedLinear(hidden_channels, 1, spaces=spaces, levels=levels, **options)
        head = head if start is None else tie_pointwise(head, start)
    elif kind in ("nfn", "unf"):
        known = _check_given(space, kind)
        if kind == "unf":
            head = UNFLinear(known, hidden_channels, 1, **options)
        else:
            head = NFNLinear(known, hidden_channels, 1, spatial=spatial, **options)
        if start is not None:
            coefficients = pointwise_coefficients(head.plan, start)
            head = eqx.tree_at(lambda h: h.coefficients, head, coefficients)
    if adaptive:  # steps start as if without f
        head = jax.tree.map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, head)
    return Theta(logs, trunk, head, kind, form, known)


def _check_given(space: Any, kind: str) -> WeightSpace:
    if space is None:
        raise SpecError(f"{kind!r} needs the weight space of the parameters: pass space=")
    check_is_space(space)
    return space


def _linear(inputs: int, outputs: int, key: PRNGKeyArray, *, bias: bool = True) -> eqx.nn.Linear:
    """A linear layer with weights from N(0, 1/inputs) and zero bias."""
    weight = jax.random.normal(key, (inputs, outputs), jnp.float32).T / np.float32(np.sqrt(inputs))
    layer = eqx.filter_eval_shape(eqx.nn.Linear, inputs, outputs, use_bias=bias, key=key)
    layer = eqx.tree_at(lambda x: x.weight, layer, weight)
    zeros = jnp.zeros(outputs, jnp.float32)
    return eqx.tree_at(lambda x: x.bias, layer, zeros) if bias else layer
