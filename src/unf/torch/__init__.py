"""PyTorch modules and state dicts (extra `[torch]`)."""

try:
    import torch as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        "unf.torch needs PyTorch; run: pip install 'universal-neural-functionals[torch]'"
    ) from error

from ._functional import Functional
from ._infer import infer
from ._optimizer import LearnedOptimizer
from ._state import features, to_state_dict
from ._to_jax import to_jax
from ._trace import TraceError
from ._verify import verify

__all__ = [
    "Functional",
    "LearnedOptimizer",
    "TraceError",
    "features",
    "infer",
    "to_jax",
    "to_state_dict",
    "verify",
]
