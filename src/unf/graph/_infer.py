"""`infer`: the weight space of a network, read off its computation graph."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import PyTree

from ..spec import Leaf, SpecError, WeightSpace
from ..spec._errors import shown
from ..spec._grammar import AxisSpec, Name, Number, parse_leaf
from ..spec._tree import PARTITION, align, flatten_params, format_path, returned_leaves
from . import rules as _rules  # noqa: F401  (registers them)
from ._explain import make_notes
from ._expressions import Expr, Reason, Variable, new_axis
from ._interpreter import Interpreter
from ._result import to_axes
from ._unification import unify
from ._unread import find_unread
from ._values import INPUTS, Value
from .roles import find_roles


def infer(
    fn: Callable[..., PyTree],
    params: PyTree,
    *args: Any,
    inputs: Any = "fixed",
    outputs: Any = "fixed",
    warn: bool = True,
) -> WeightSpace:
    """The weight space of `fn(params, *args)`, found from its computation graph.

    Nothing is executed: the function is traced, and a rule for each operation says which axes
    must permute together, or not at all, for the outputs to stay the same. An operation
    without a rule fixes every axis it touches, with a warning.

    Args:
        fn: a forward pass or a loss, written with any library.
        params: arrays or `jax.ShapeDtypeStruct`s.
        *args: further arguments, likewise.
        inputs: how the axes of the further arguments behave: "fixed" (their order matters),
            "free" (each has a permutation of its own), or a specification for each
            argument, e.g. `("batch [time] feature",)`.
        outputs: the same for the outputs. New versions of parameters, that is a whole entry
            with the names and shapes of one of `params` (batch statistics) or of all of them
            (gradients), always permute as these do.
        warn: whether to warn about operations without a rule.

    Returns:
        The space; `space.roles` says how each axis meets activations, and `space.explain(path)`
        why it permutes or is fixed.

    Raises:
        SpecError: if `params` are not only arrays, or `inputs` or `outputs` do not fit.

    >>> import jax, jax.numpy as jnp
    >>> def mlp(params, x):
    ...     return jnp.tanh(x @ params["w1"]) @ params["w2"]
    >>> shapes = {"w1": (8, 32), "w2": (32, 10)}
    >>> params = {k: jax.ShapeDtypeStruct(s, "float32") for k, s in shapes.items()}
    >>> infer(mlp, params, jax.ShapeDtypeStruct((1, 8), "float32"))
    WeightSpace(2 leaves, 576 weights; hidden=32; fixed in=8, out=10)
      w1  [in] hidden
      w2  hidden [out]
    """
    if not callable(fn):
        raise SpecError(
            "the network is the first argument",
            expected="infer(fn, params, *inputs), where fn(params, *inputs) is the network",
            got=f"a {type(fn).__name__} in place of fn",
        )
    flatten_params(params)  # raises if a leaf is not an array
    jaxpr, out_shapes = trace(fn, params, args)
    return read(jaxpr, out_shapes, params, args, inputs=inputs, outputs=outputs, warn=warn)[0]


def read(
    jaxpr: Any,
    out_shapes: PyTree,
    params: PyTree,
    args: tuple,
    *,
    inputs: Any = "fixed",
    outputs: Any = "fixed",
    warn: bool = False,
) -> tuple[WeightSpace, list[tuple[Value, tuple[AxisSpec, ...] | None]]]:
    """The weight space of a traced network, and what its further results carry.

    `out_shapes` are those of its outputs. Results after these are values within the network, each
    returned with one axis for each of its segments, in the names of the space.
    """
    leaves, treedef = flatten_params(params)
    paths = [path for path, _ in leaves]
    named: dict[str, Expr] = {}
    parameters = [_parameter(i, path, shape) for i, (path, shape) in enumerate(leaves)]
    operands = [*parameters, *_arguments(args, inputs, named)]
    interpreter = Interpreter(operands)
    results = interpreter.run(jaxpr, operands)
    num_outputs = len(jax.tree.leaves(out_shapes))
    results, within = results[:num_outputs], results[num_outputs:]
    _constrain_outputs(results, out_shapes, outputs, named, leaves, parameters)
    if warn:
        interpreter.warn(paths)
    used = 0
    for result in results:
        used |= result.sources
        result.is_read = True
    unread = find_unread(parameters, interpreter.values[len(operands) :])
    values = [value.exprs for value in interpreter.values]
    of_leaves = [(path, value.axes) for path, value in zip(paths, parameters, strict=True)]
    others = [value.exprs for value in within]
    written, sizes, carried = to_axes(of_leaves, values, unread, interpreter.streams, others)
    space = WeightSpace.from_leaves(
        treedef,
        tuple(Leaf(p, axes, shape) for (p, shape), axes in zip(leaves, written, strict=True)),
        sizes,
        make_notes(paths, parameters, used // (2 * INPUTS), unread),
        find_roles(jaxpr, [shape for _, shape in leaves]),
    )
    return space, list(zip(within, carried, strict=True))


def trace(fn: Callable[..., PyTree], params: PyTree, args: tuple) -> tuple[Any, PyTree]:
    """The jaxpr without equations that no output needs, and the shapes of the outputs."""
    try:
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(params, *args)
        needed = [True] * len(closed.jaxpr.outvars)
        live, _ = dce_jaxpr(closed.jaxpr, needed, instantiate=True)
        return jex.ClosedJaxpr(live, closed.consts), shapes
    except jax.errors.ConcretizationTypeError as error:
        flat, _ = jax.tree_util.tree_flatten_with_path(params)
        flags = [(path, x) for path, x in flat if isinstance(x, bool | int | float | complex)]
        if not flags:
            raise
        path, value = max(flags, key=lambda flag: isinstance(flag[1], bool))
        raise SpecError(
            "not an array, and the network needs its value",
            path=format_path(path),
            expected="an array or jax.ShapeDtypeStruct",
            got=f"{shown(value)} ({type(value).__name__})",
            remedy=PARTITION,
        ) from error
    except TypeError as error:
        shapes = [jax.tree.map(jnp.shape, arg) for arg in args]
        error.add_note(
            f"unf.infer called fn(params, *inputs) with {len(args)} inputs, of shapes {shapes}; "
            "does the network take these?"
        )
        raise


def _parameter(index: int, path: str, shape: Sequence[int]) -> Value:
    axes = [new_axis(size, f"{path} axis {i}") for i, size in enumerate(shape)]
    value = Value.of(axes, is_parameter=True)
    value.sources, value.is_view = 2 * INPUTS << index, True
    return value


def _arguments(args: tuple, inputs: Any, named: dict[str, Expr]) -> list[Value]:
    if isinstance(inputs, str) and inputs in ("fixed", "free"):
        inputs = [inputs] * len(args)
    if not isinstance(inputs, tuple | list) or len(inputs) != len(args):
        raise SpecError(
            "inputs= does not fit the inputs",
            expected=f"'fixed', 'free', or a tuple with a specification for each of {len(args)}",
            got=repr(inputs),
        )
    values = []
    for i, (arg, spec) in enumerate(zip(args, inputs, strict=True)):
        leaves, _ = flatten_params(arg)
        for (path, shape), leaf_spec in zip(leaves, _broadcast_spec(spec, arg), strict=True):
            where = f"argument {i}" + ("" if path == "." else f" {path}")
            values.append(Value.of(_described(leaf_spec, shape, where, "in", named)))
            values[-1].sources = INPUTS
    return values


def _broadcast_spec(spec: Any, tree: Any) -> list[Any]:
    if isinstance(spec, str):
        return [spec] * len(jax.tree_util.tree_leaves(tree))
    return align(spec, tree)


def _described(
    spec: Any, shape: Sequence[int], where: str, label: str, named: dict[str, Expr]
) -> list[Expr]:
    """New axes for an argument or a result, as its specification says."""
    if spec in ("fixed", "free"):
        axes = []
        for i, size in enumerate(shape):
            origin = f"{where} axis {i}"
            reason = Reason(f"{origin}: its order matters") if spec == "fixed" else None
            axes.append(_labeled(size, origin, reason, label))
        return axes
    parsed = parse_leaf(spec, where)
    if len(parsed) != len(shape):
        raise SpecError(
            f"the specification has {len(parsed)} axes, the array {len(shape)}",
            path=where,
            expected=f"one axis for each of the dimensions {tuple(shape)}",
            got=repr(spec),
        )
    return [_named_axis(a, size, where, named) for a, size in zip(parsed, shape, strict=True)]


def _labeled(size: int, origin: str, fixed: Reason | None, label: str) -> Expr:
    new = new_axis(size, origin, fixed)
    if isinstance(new, Variable):
        new.label = label
    return new


def _named_axis(written: AxisSpec, size: int, where: str, named: dict[str, Expr]) -> Expr:
    if isinstance(written, Number) and written.size == size:
        return new_axis(size, where, Reason(f"{where}: given as fixed"))
    if isinstance(written, Name) and "." not in written.path:
        reason = Reason(f"{where}: given as fixed") if written.fixed else None
        found = named.get(written.path) or _labeled(size, where, reason, written.path)
        named[written.path] = found
        if found.size == size:
            return found
        raise SpecError(
            f"{written.path!r} has two sizes", path=where, expected=found.size, got=size
        )
    if isinstance(written, Number):
        raise SpecError("a wrong size", path=where, expected=written.size, got=size)
    raise SpecError(
        "inputs and outputs have only plain and fixed axes, not nested or composite ones",
        path=where,
        expected='e.g. "batch [time] feature"',
        got=str(written),
    )


def _constrain_outputs(
    results: Sequence[Value],
    out_shapes: PyTree,
    outputs: Any,
    named: dict[str, Expr],
    leaves: Sequence[tuple[str, tuple[int, ...]]],
    parameters: Sequence[Value],
) -> None:
    """Fix the outputs, or unify them with the parameters they are new versions of."""
    with_path, _ = jax.tree_util.tree_flatten_with_path(out_shapes)
    specs = _broadcast_spec(outputs, out_shapes)
    paths = [format_path(path) for path, _ in with_path]
    shapes = [result.shape for result in results]
    returned = returned_leaves(list(zip(paths, shapes, strict=True)), leaves)
    for result, path, spec, state in zip(results, paths, specs, returned, strict=True):
        where = "the output" if path == "." else f"output {path!r}"
        if state is not None:
            axes, reason = parameters[state].axes, Reason(f"returned as {path!r}")
        elif spec == "free":
            continue
        else:
            axes = _described(spec, result.shape, where, "out", named)
            reason = Reason(f"returned as {where}")
        for a, b in zip(result.axes, axes, strict=True):
            unify(a, b, reason)
