"""A learned optimizer as an Optax gradient transformation (eq. 31)."""

import os
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree

from ..nn import TiedLinear, leaf_shardings
from ..nn._pointwise import check_leaves
from ..spec import Leaf, SpecError, WeightSpace
from ..spec._tree import flatten_params
from ._entries import Entries
from ._store import load
from ._theta import DECAYS, Theta, unit_of
from ._update import update_tensors


class LearnedState(NamedTuple):
    """The state of a learned optimizer.

    Attributes:
        step: the number of updates so far.
        nominal: the momentum with the learned decay γ₀, a tree like the parameters.
        momenta: the momenta that the network reads, along a trailing axis; None for "sgdm".
        squares: for adaptive steps, the running mean of squared gradients; else None.
        units: for adaptive steps, the units of weights, from the initial ones; else None.
    """

    step: Int[Array, ""]
    nominal: PyTree
    momenta: PyTree
    squares: PyTree = None
    units: PyTree = None


def learned_optimizer(
    theta: Theta | str | os.PathLike,
    *,
    space: WeightSpace | None = None,
    scale: Any = 1.0,
    mesh: Mesh | None = None,
    axis: str | None = None,
    kernels: bool = True,
    momenta_dtype: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer with the coefficients θ (§4.2).

        m^γ ← γ m^γ + g  for γ₀ and each γᵢ
        W ← W − α (m^γ₀ + β f(W, g, {m^γᵢ}, t))

    `Form` has the formula of adaptive steps. The optimizer composes with Optax's own
    transformations. Under `optax.masked` and `optax.partition`, an equivariant θ needs the weight
    space of the leaves that it updates.

    >>> import jax, optax
    >>> from unf.optim import init_theta
    >>> optimizer = learned_optimizer(init_theta("deepset", key=jax.random.key(0)))
    >>> params = {"w": jax.numpy.ones((2, 3))}
    >>> state = optimizer.init(params)
    >>> updates, state = optimizer.update(params, state, params)
    >>> optax.apply_updates(params, updates)["w"].shape, int(state.step)
    ((2, 3), 1)

    Args:
        theta: coefficients from `init_theta`, meta-training or `load`; or what `load` reads, a
            file or one of the names in `trained()`.
        space: the weight space of the parameters, which a "tied" θ needs; `Theta.on` says which
            ones fit other kinds.
        scale: a factor of every update, which `optax.inject_hyperparams` can schedule.
        mesh: devices across which parameters, gradients and the state are sharded, as in
            `unf.nn.leaf_shardings`. No device then holds more of a large one than its shard.
        axis: the mesh axis to shard them along; by default all of its axes together.
        kernels: whether to use GPU kernels, where they are supported.
        momenta_dtype: the dtype of the momenta {m^γᵢ} in the state: `jax.numpy.bfloat16`, with
            stochastic rounding, or by default that in which gradients are accumulated, at least
            float32.

    Raises:
        SpecError: if the leaves or shapes of the parameters differ from θ's weight space.
        ValueError: if `theta` is something else, `momenta_dtype` is another dtype, or `update` is
            called without parameters.
    """
    theta = load(theta) if isinstance(theta, str | os.PathLike) else theta
    if not isinstance(theta, Theta):
        raise ValueError(
            f"theta is {theta!r}; expected coefficients from unf.optim.init_theta or "
            "meta-training, a file, or one of the names in unf.optim.trained()"
        )
    if momenta_dtype is not None and jnp.dtype(jnp.bfloat16) != momenta_dtype:
        raise ValueError(
            f"momenta_dtype is {momenta_dtype!r}; expected jax.numpy.bfloat16, or None for the "
            "dtype in which gradients are accumulated"
        )

    given = theta if space is None else theta.on(space)
    sharded_space = given.space if space is None else space
    if mesh is not None and sharded_space is None:
        raise ValueError(
            "to shard parameters across a mesh, this optimizer needs their weight space: "
            "learned_optimizer(theta, space=unf.infer(fn, params, *inputs), mesh=mesh)"
        )

    def init(params: PyTree) -> LearnedState:
        theta = _at_sizes_of(given, params)

        def zeros(*shape: int, dtype: Any = None) -> PyTree:
            dtype_of = _wide if dtype is None else lambda _: dtype
            return jax.tree.map(lambda p: jnp.zeros((*jnp.shape(p), *shape), dtype_of(p)), params)

        momenta = zeros(len(DECAYS), dtype=momenta_dtype) if theta.reads_momenta else None
        squares, units = None, None
        if theta.form.is_adaptive:
            squares = zeros()
            units = jax.tree.map(lambda p: unit_of(jnp.asarray(p, _wide(p))), params)
        return LearnedState(jnp.zeros((), jnp.int32), zeros(), momenta, squares, units)

    def update(
        updates: PyTree, state: Any, params: PyTree = None, **extra: Any
    ) -> tuple[PyTree, LearnedState]:
        if params is None:
            raise ValueError(
                "a learned optimizer reads the parameters: call update(gradients, state, params)"
            )
        if not isinstance(state, LearnedState):
            raise ValueError(
                f"state is a {type(state).__name__}, the state of another optimizer; start with "
                "state = optimizer.init(params)"
            )
        theta = _at_sizes_of(given, params)
        _check_gradients(updates, params)
        gradients = jax.tree.map(lambda g: g.astype(_wide(g)), updates)
        leaves, treedef = jax.tree.flatten(params)
        nothing: list[Any] = [None] * len(leaves)
        trees = (gradients, state.nominal, state.momenta, state.squares, state.units)
        *flat, units = [nothing if t is None else treedef.flatten_up_to(t) for t in trees]
        tensors = [Entries(*each) for each in zip(leaves, *flat, strict=True)]
        factor = -theta.learning_rate(state.step) * scale
        places: list[int | None] = nothing
        whole = sharded_space if theta.space is None else theta.space  # at the parameters' sizes
        if mesh is not None:
            tensors, places = _shard(whole, tensors, mesh, axis)
        args = theta, state.step, tensors, units, factor
        steps, new = update_tensors(*args, sharded=places, kernels=kernels)
        if mesh is not None:
            new, _ = _shard(whole, new, mesh, axis)
        steps = [x.astype(w.dtype) for x, w in zip(steps, leaves, strict=True)]
        kept = {
            name: treedef.unflatten([x._asdict()[name] for x in new])
            for name in ("nominal", "momenta", "squares")
            if getattr(state, name) is not None
        }
        return treedef.unflatten(steps), state._replace(step=state.step + 1, **kept)

    return optax.GradientTransformationExtraArgs(init, update)


def _shard(
    space: WeightSpace | None, tensors: list[Entries], mesh: Mesh, axis: str | None
) -> tuple[list[Entries], list[int | None]]:
    """The tensors sharded across a mesh, and the axis along which each one is."""
    assert space is not None
    shardings = jax.tree.leaves(leaf_shardings(space, mesh, axis))
    pairs = zip(tensors, shardings, strict=True)
    return (
        [jax.lax.with_sharding_constraint(x, jax.tree.map(lambda _, s=s: s, x)) for x, s in pairs],
        [next((i for i, name in enumerate(s.spec) if name is not None), None) for s in shardings],
    )


def _wide(x: Array) -> jnp.dtype:
    """The dtype to accumulate in: at least float32."""
    return jnp.promote_types(jnp.result_type(x), jnp.float32)


def _at_sizes_of(theta: Theta, params: PyTree) -> Theta:
    """θ for these parameters; containers may be others, and permuted axes of other sizes.

    Raises:
        SpecError: if these are not the parameters of θ's network.
    """
    shapes, treedef = flatten_params(params)
    for (path, _), leaf in zip(shapes, jax.tree.leaves(params), strict=True):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise SpecError(
                "not an array of real numbers",
                path=path,
                got=f"{jnp.result_type(leaf)}",
                remedy="leave it out with optax.partition and optax.set_to_zero",
            )
    space = theta.space
    if isinstance(theta.head, TiedLinear):
        raise SpecError(
            "a tied optimizer needs the weight space of the parameters",
            remedy="learned_optimizer(theta, space=unf.infer(fn, params, *inputs))",
        )
    if space is None or [(leaf.path, leaf.shape) for leaf in space.leaves] == shapes:
        return theta
    found = {path: f"rank {len(shape)}" for path, shape in shapes}
    expected = {leaf.path: f"rank {len(leaf.shape)}" for leaf in space.leaves}
    message = "the optimizer was made for another network"
    remedy = (
        "make one for these weights with unf.optim.init_theta, or use one for every network: a "
        "'tied' or a 'deepset'"
    )
    check_leaves(found, expected, message, remedy)
    try:
        return theta.on(_resized(space, treedef, tuple(shapes)))
    except SpecError as error:
        raise SpecError(
            f"{message}, or for one of other sizes, and these do not fit ({error.problem})",
            path=error.path,
            expected=error.expected,
            got=error.got,
            remedy=f"pass theta.on(space) with the weight space of the parameters; or {remedy}",
        ) from error


@lru_cache(maxsize=64)  # without `jax.jit`, every update asks
def _resized(
    space: WeightSpace, treedef: Any, shapes: tuple[tuple[str, tuple[int, ...]], ...]
) -> WeightSpace:
    """The space with the sizes that arrays of these shapes have."""
    pairs = zip(space.leaves, shapes, strict=True)
    leaves = tuple(Leaf(path, leaf.axes, shape) for leaf, (path, shape) in pairs)
    fixed = {name: space.axis_sizes[name] for name in space.fixed}
    return WeightSpace.from_leaves(treedef, leaves, fixed, roles=tuple(space.roles.values()))


def _check_gradients(gradients: PyTree, params: PyTree) -> None:
    remedy = "call update(gradients, state, params), in this order"
    message = "the gradients do not match the parameters"
    check_leaves(_shapes(gradients), _shapes(params), message, remedy)


def _shapes(tree: PyTree) -> dict[str, str]:
    return {path: f"shape {shape}" for path, shape in flatten_params(tree)[0]}
