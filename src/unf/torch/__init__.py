"""PyTorch modules and state dicts (extra `[torch]`)."""

try:
    import torch as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        "unf.torch needs PyTorch; run: pip install 'universal-neural-functionals[torch]'"
    ) from error

from ._infer import infer
from ._trace import TraceError
from ._verify import verify

__all__ = ["TraceError", "infer", "verify"]
