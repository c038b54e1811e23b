"""`Functional`: a model of this library as a PyTorch module."""

import copy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor, nn

from ..models import Fitted
from ..spec._tree import format_path
from ._arrays import copy_to_torch, lend, to_numpy


class Functional(nn.Module):
    """Any model of this library, or any Equinox module, as a PyTorch module.

    The model's arrays of real numbers become parameters, named by their paths, which PyTorch's
    optimizers train; the constants that `unf.fit` has standardized with become buffers. Tensors go
    in and come out in the same trees as arrays do in JAX; gradients with respect to parameters and
    inputs are those of JAX. The model is compiled at the first call with each shape. Second
    derivatives are not available.

    >>> import jax, torch, unf.torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    >>> space = unf.torch.infer(net, torch.zeros(1, 8))
    >>> model = unf.models.InvariantUNF(space, 1, 1, key=jax.random.key(0))
    >>> predictor = unf.torch.Functional(model)
    >>> weights = {name: x[..., None] for name, x in net.state_dict().items()}
    >>> predictor(weights).shape
    torch.Size([1])

    Args:
        model: the model.
        batch: whether tensors of real numbers have a leading batch axis, over which the model is
            mapped.
    """

    def __init__(self, model: Any, *, batch: bool = False):
        super().__init__()
        self.batch = batch
        arrays, self._static = eqx.partition(model, eqx.is_inexact_array)
        leaves, self._treedef = jax.tree_util.tree_flatten_with_path(arrays)
        self._names = [format_path(path) for path, _ in leaves]
        for (path, array), name in zip(leaves, self._names, strict=True):
            tensor = copy_to_torch(array)
            if isinstance(model, Fitted) and path[0] != jax.tree_util.GetAttrKey("model"):
                self.register_buffer(name, tensor)
            else:
                self.register_parameter(name, nn.Parameter(tensor))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Functional":
        """A copy with tensors of its own; a copy of the rest would not equal the original."""
        memo |= {id(x): x for x in (self._static, self._treedef)}
        new = memo[id(self)] = type(self).__new__(type(self))
        new.__dict__ |= copy.deepcopy(self.__dict__, memo)
        return new

    @property
    def _tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._names]

    @property
    def model(self) -> Any:
        """The model with the present parameters, for JAX and for `unf.save_model`."""
        arrays = [jnp.array(to_numpy(x), copy=True) for x in self._tensors]
        return eqx.combine(self._treedef.unflatten(arrays), self._static)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        leaves, treedef = jax.tree.flatten((self._tensors, args, kwargs))
        tensors = [x for x in leaves if _is_real(x)]
        others = [lend(x) if isinstance(x, Tensor) else x for x in leaves if not _is_real(x)]
        run = _Run(
            (self._static, others),
            self._treedef,
            treedef,
            tuple(map(_is_real, leaves)),
            self.batch,
        )
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            structure, *outputs = _Call.apply(run, *tensors)
        else:
            leaves, structure = jax.tree.flatten(_value(run, [lend(x) for x in tensors]))
            outputs = [copy_to_torch(x) for x in leaves]
        return structure.unflatten(outputs)

    def extra_repr(self) -> str:
        """What PyTorch prints between the parentheses."""
        return f"{type(self._static).__name__}, batch={self.batch}"


class _Run(eqx.Module):
    """A call of a model as a function of its real tensors: parameters, then inputs."""

    static_and_others: tuple[Any, list[Any]]
    model_treedef: Any = eqx.field(static=True)
    treedef: Any = eqx.field(static=True)
    is_real: tuple[bool, ...] = eqx.field(static=True)
    batch: bool = eqx.field(static=True)

    def __call__(self, arrays: list[jax.Array]) -> Any:
        """What the model returns."""
        static, others = self.static_and_others
        parameters = arrays[: self.model_treedef.num_leaves]
        model = eqx.combine(self.model_treedef.unflatten(parameters), static)

        def apply(inputs: list[jax.Array]) -> Any:
            real, rest = iter([*parameters, *inputs]), iter(others)
            _, args, kwargs = self.treedef.unflatten(
                [next(real) if is_real else next(rest) for is_real in self.is_real]
            )
            return model(*args, **kwargs)

        inputs = arrays[len(parameters) :]
        return jax.vmap(apply)(inputs) if self.batch else apply(inputs)


class _Call(torch.autograd.Function):
    """A call whose gradients JAX computes."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: Tensor) -> tuple:
        outputs, ctx.pullback = _value_and_pullback(run, [lend(x) for x in tensors])
        jax.block_until_ready(ctx.pullback)
        leaves, ctx.structure = jax.tree.flatten(outputs)
        results = [copy_to_torch(x) for x in leaves]
        ctx.mark_non_differentiable(*[x for x in results if not x.is_floating_point()])
        return ctx.structure, *results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, _: Any, *gradients: Tensor) -> tuple:
        leaves = [
            lend(g) if g.is_floating_point() else np.zeros(g.shape, jax.dtypes.float0)
            for g in gradients
        ]
        return None, *map(copy_to_torch, _pull(ctx.pullback, ctx.structure.unflatten(leaves)))


@eqx.filter_jit
def _value(run: _Run, arrays: list[Any]) -> Any:
    return run(arrays)


@eqx.filter_jit
def _value_and_pullback(run: _Run, arrays: list[Any]) -> Any:
    return jax.vjp(run, arrays)


@eqx.filter_jit
def _pull(pullback: Any, cotangents: Any) -> Any:
    return pullback(cotangents)[0]


def _is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()
