"""Tensors as arrays and arrays as tensors, sharing memory where both libraries can."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A tensor's memory as a NumPy array, or a copy if it is not on the CPU."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:  # which NumPy does not know by itself
        return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
    return tensor.numpy()


def to_jax(tensor: Tensor) -> jax.Array:
    """A tensor as a JAX array: through NumPy on the CPU, which is faster, else through DLPack."""
    if tensor.device.type == "cpu":
        return jnp.asarray(to_numpy(tensor))
    return jnp.from_dlpack(tensor.detach().contiguous())


def to_torch(array: Any) -> Tensor:
    """An array as a tensor; it shares memory with a JAX array, so write to a clone."""
    if isinstance(array, jax.Array):
        return torch.from_dlpack(array)
    array = np.asarray(array)
    if array.dtype == jnp.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
