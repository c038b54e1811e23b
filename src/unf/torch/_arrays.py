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
    """A tensor as a JAX array in the same memory, or in new memory if dtype or device differ."""
    if tensor.device.type == "cpu" and jax.default_backend() != "cpu":
        return jnp.asarray(to_numpy(tensor))
    return jnp.from_dlpack(tensor.detach().contiguous())


def lend(tensor: Tensor) -> np.ndarray | jax.Array:
    """A tensor's memory as an argument of a compiled function: fast, but not safe to keep.

    On the CPU the function may read the memory while it runs, so wait for its results before
    PyTorch writes to the tensor.
    """
    return to_numpy(tensor) if tensor.device.type == "cpu" else to_jax(tensor)


def to_torch(array: Any) -> Tensor:
    """An array as a tensor, in the same memory if it is a JAX array."""
    return torch.from_dlpack(array) if isinstance(array, jax.Array) else copy_to_torch(array)


def copy_to_torch(array: Any) -> Tensor:
    """An array as a tensor in new memory, on the CPU through NumPy, which is faster."""
    if isinstance(array, jax.Array) and "cpu" not in {x.platform for x in array.devices()}:
        return torch.from_dlpack(array).clone()
    array = np.array(array)
    if array.dtype == jnp.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
