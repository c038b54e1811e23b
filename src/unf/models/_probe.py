"""Predicting from what a network does, not from how its weights are arranged."""

from collections.abc import Callable
from math import prod, sqrt
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from .._html import repr_html
from ..nn._spaces import replace_fields
from ..spec import SpecError, WeightSpace
from ..spec._space import check_is_space
from ._unf import ActivationLike, record_call, record_spaces, resolve_activation


class Probe(eqx.Module):
    """An MLP on the outputs of a network for learned inputs: head(fn(params, inputs)).

    The strongest simple baseline for functions that can be run: no symmetry of the network changes
    its outputs. It needs weights as they are, so `unf.fit` does not standardize them. `reader`
    takes one as `probe=`.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> def fn(params, x):
    ...     return jax.numpy.tanh(x @ params["w0"]) @ params["w1"]
    >>> model = Probe(fn, space, (2,), 10, key=jax.random.key(0))
    >>> model(unf.testing.random_features(space, 1, key=jax.random.key(1))).shape
    (10,)

    A file cannot hold `fn`, so `load_model` needs it again: `load_model(path, fn=fn)`.

    Inputs are products of matrices that are learned, as in Kahana et al. (2024): codes of the
    inputs times maps that all of them share. This trains faster than learning each input
    separately. Inputs to start from, such as real ones, can be given; the products are added to
    them.

    Attributes:
        codes: a vector for each input.
        maps: the other matrices.
        start: what the products are added to, which is learned too, or None.
        head: maps all outputs to a vector.
        fn: the network, a function of its weights and of a batch of inputs.
        space: the weight space of the weights.
        made_by: the function that made the model and its arguments, which `save_model` needs.
    """

    reads_raw: ClassVar[bool] = True
    """Whether `fit` leaves weights as they are."""

    codes: Float[Array, "num_probes rank"]
    maps: tuple[Array, ...]
    start: Array | None
    head: eqx.nn.MLP
    input_shape: tuple[int, ...] = eqx.field(static=True)
    fn: Callable[[PyTree, Array], PyTree] = eqx.field(static=True)
    space: WeightSpace = eqx.field(static=True)
    made_by: tuple = eqx.field(static=True, repr=False)

    def __init__(
        self,
        fn: Callable[[PyTree, Array], PyTree],
        space: WeightSpace,
        input_shape: tuple[int, ...],
        out_size: int,
        *,
        key: PRNGKeyArray,
        num_probes: int = 64,
        scale: float = 1.0,
        start: ArrayLike | None = None,
        rank: int = 32,
        mlp_width: int = 512,
        mlp_layers: int = 3,
        activation: ActivationLike = "gelu",
    ):
        """Initialize a model.

        Args:
            fn: maps a network's weights and inputs of shape (num_probes, *input_shape) to outputs,
                an array or a tree of arrays with an axis of `num_probes` first.
            space: the weight space of the weights.
            input_shape: the shape of one input.
            out_size: length of the output vector.
            key: draws the inputs and the MLP.
            num_probes: how many inputs are learned.
            scale: inputs start from N(0, scale²), and hardly train where outputs are uninformative.
            start: inputs of shape (num_probes, *input_shape) that this is added to.
            rank: the length of the codes.
            mlp_width: width of the MLP.
            mlp_layers: the number of linear layers of the MLP.
            activation: a function, or its name in `jax.nn`.

        Raises:
            SpecError: if `start` has another shape, `fn` cannot run on such inputs, or its outputs
                have no axis of `num_probes`.
        """
        self.made_by = record_call("Probe", locals() | {"start": start is not None})
        check_is_space(space)
        if not isinstance(input_shape, tuple):
            raise ValueError(f"input_shape is {input_shape!r}; expected a tuple, such as (4,)")
        if min(num_probes, rank) < 1:
            raise ValueError(f"num_probes is {num_probes} and rank {rank}; expected at least 1")
        input_key, head_key = jax.random.split(key)
        sizes = (num_probes, rank, rank, rank, prod(input_shape))
        drawn = [
            jax.random.normal(each, sizes[i : i + 2], jnp.float32)
            for i, each in enumerate(jax.random.split(input_key, 4))
        ]
        self.codes, *maps = drawn
        maps = [matrix / sqrt(rank) for matrix in maps]
        self.maps = (*maps[:-1], scale * maps[-1])
        self.fn, self.space, self.input_shape = fn, space, input_shape
        start = None if start is None else jnp.asarray(start, jnp.float32)
        if start is not None and start.shape != (num_probes, *self.input_shape):
            raise SpecError(
                "inputs to start from have the wrong shape",
                expected=f"{(num_probes, *self.input_shape)}, that is (num_probes, *input_shape)",
                got=start.shape,
                remedy="pass as many inputs as are learned",
            )
        self.start = start
        try:
            found = jax.tree.leaves(jax.eval_shape(fn, space.to_shapes(), self.inputs))
        except Exception as error:  # it is the caller's, and can fail in any way
            raise SpecError(
                "fn does not run on the inputs of a probe",
                expected=f"a function of weights and of inputs of shape {self.inputs.shape}",
                got=f"{type(error).__name__}: {error}",
                remedy="choose input_shape, the shape of one input, as fn expects it",
            ) from error
        if not found:
            raise SpecError("fn returns no arrays", remedy="return what a probe is to read")
        for output in found:
            if output.shape[:1] != (num_probes,):
                raise SpecError(
                    "fn returns outputs of the wrong shape",
                    expected=f"arrays with {num_probes} outputs along their first axis",
                    got=f"shape {output.shape}",
                    remedy="map over inputs, e.g. with jax.vmap(fn, (None, 0))",
                )
        features = sum(prod(output.shape) for output in found)
        self.head = make_head(features, out_size, mlp_width, mlp_layers, activation, head_key)

    @property
    def inputs(self) -> Float[Array, "num_probes *input"]:
        """The inputs."""
        x = self.codes
        for matrix in self.maps:
            x = x @ matrix
        x = x.reshape(-1, *self.input_shape)
        return x if self.start is None else self.start + x

    def __call__(self, x: PyTree) -> Float[Array, " out_size"]:
        """Apply to one network's weights, as features with one channel."""
        leaves = self.space.flatten(x, channels=True)
        if any(leaf.shape[-1] != 1 for leaf in leaves):
            raise SpecError(
                "a probe runs the network, so it reads weights only",
                expected="features with one channel",
                got=leaves[0].shape[-1],
                remedy="unf.nn.stack_channels(params)",
            )
        params = self.space.unflatten([leaf[..., 0] for leaf in leaves])
        outputs = jax.tree.leaves(self.fn(params, self.inputs))
        return self.head(jnp.concatenate([output.reshape(-1) for output in outputs]))

    def on(self, space: WeightSpace) -> "Probe":
        """The model with the same inputs and MLP on another weight space that `fn` accepts."""
        return replace_fields(
            self, space=space, made_by=record_spaces(self.made_by, {self.space: space})
        )

    _repr_html_ = repr_html


_make_mlp = eqx.filter_jit(eqx.nn.MLP)


def make_head(
    features: int,
    out_size: int,
    width: int,
    layers: int,
    activation: ActivationLike,
    key: PRNGKeyArray,
) -> eqx.nn.MLP:
    """The MLP at the end of a model."""
    if min(layers, out_size) < 1:
        raise ValueError(f"mlp_layers is {layers} and out_size {out_size}; expected at least 1")
    function = resolve_activation(activation)
    sizes = {"in_size": features, "out_size": out_size, "width_size": width, "depth": layers - 1}
    sizes = {name: int(size) for name, size in sizes.items()}  # NumPy's would be traced
    return _make_mlp(**sizes, activation=function, key=key)
