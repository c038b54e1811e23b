"""Options for where the paper's text and the authors' code differ."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

DECAYS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
"""The decays γᵢ of the momenta that the network reads (appendix B)."""
TIME_SCALES = tuple(float(f"{digit}e{power}") for power in range(6) for digit in (1, 3))[:11]
"""1, 3, 10, …, 100000."""
_TINY = 1e-20


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
    """

    momentum: str = "sum"
    normalize: str = "none"
    time: str = "sine"

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "momentum": ("sum", "mean"),
        "normalize": ("none", "rms", "clip-rms"),
        "time": ("sine", "tanh"),
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

    def time_features(self, step: Int[Array, ""], dtype: jnp.dtype) -> Float[Array, "11"]:
        """Encode the step."""
        times = step.astype(dtype) / jnp.asarray(np.array(TIME_SCALES), dtype)
        return jnp.sin(times) if self.time == "sine" else jnp.tanh(times - 1)


PAPER = Form()
CODE = Form(momentum="mean", normalize="clip-rms", time="tanh")
NORMALIZED = Form(normalize="rms", time="tanh")
FORMS = {"paper": PAPER, "code": CODE, "normalized": NORMALIZED}
"""The paper's text, the authors' code, and the text's momenta with normalized features."""
