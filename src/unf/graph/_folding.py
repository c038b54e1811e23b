"""Computing constants: small things such as masks and positions, never the network."""

from typing import Any

import jax
import numpy as np

_SIMPLE = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "neg": np.negative, "stop_gradient": lambda x: x,
}  # fmt: skip


def compute(eqn: Any, operands: list[Any]) -> list[Any]:
    """The results of an equation on known operands; simple ones without compiling anything."""
    name, params = eqn.primitive.name, eqn.params
    if all(isinstance(x, np.ndarray) for x in operands):
        if name in _SIMPLE:
            return [np.asarray(_SIMPLE[name](*operands)).astype(eqn.outvars[0].aval.dtype)]
        if name == "iota":
            return [_iota(params)]
        if name == "broadcast_in_dim":
            return [_broadcast(operands[0], params)]
        if name == "convert_element_type":
            return [operands[0].astype(eqn.outvars[0].aval.dtype)]
        if name == "reshape":
            return [operands[0].reshape(eqn.outvars[0].aval.shape)]
    with jax.ensure_compile_time_eval():
        results = eqn.primitive.bind(*operands, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _iota(params: dict[str, Any]) -> np.ndarray:
    shape, dimension = params["shape"], params["dimension"]
    counts = np.arange(shape[dimension], dtype=params["dtype"])
    aligned = counts.reshape([-1 if i == dimension else 1 for i in range(len(shape))])
    return np.broadcast_to(aligned, shape)


def _broadcast(x: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    shape = params["shape"]
    aligned = [1] * len(shape)
    for size, target in zip(x.shape, params["broadcast_dimensions"], strict=True):
        aligned[target] = size
    return np.broadcast_to(x.reshape(aligned), shape)
