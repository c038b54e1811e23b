"""`infer`: the weight space of a network, read off its computation graph."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..spec import Axis as SpecAxis
from ..spec import (
    Leaf,
    Name,
    Number,
    SpecError,
    WeightSpace,
    align,
    flatten_params,
    format_path,
    parse_leaf,
    returned_leaves,
)
from . import rules as _rules  # noqa: F401  (registers them)
from ._explain import explain
from ._interpreter import Interpreter
from ._result import to_axes
from ._terms import Axis, Reason, Term, axis
from ._unification import unify
from ._values import Value


def infer(
    fn: Callable[..., PyTree],
    params: PyTree,
    *args: Any,
    inputs: Any = "fixed",
    outputs: Any = "fixed",
    warn: bool = True,
) -> WeightSpace:
    """The weight space of `fn(params, *args)`, found from its computation graph.

    Nothing is executed: the function is traced, and each operation says which axes must
    permute together or not at all so that the outputs stay what they are. An operation
    without a rule fixes every axis it touches, with a warning.

    Args:
        fn: a forward pass or a loss, of any library.
        params: arrays or `jax.ShapeDtypeStruct`s.
        *args: further arguments, likewise.
        inputs: what may happen to the further arguments: "fixed", their order matters;
            "free", each axis has a permutation of its own; or a specification for each
            argument, e.g. `("batch [time] feature",)`.
        outputs: the same for what the function returns. New versions of parameters, a whole
            entry with the names and shapes of one of `params` (batch statistics) or of all
            of them (gradients), permute as these in any case.
        warn: whether to warn of operations without a rule.

    Returns:
        The space; `space.explain(path)` says why each axis is what it is.

    >>> import jax, jax.numpy as jnp
    >>> def mlp(params, x):
    ...     return jnp.tanh(x @ params["w1"]) @ params["w2"]
    >>> shapes = {"w1": (8, 32), "w2": (32, 10)}
    >>> params = {k: jax.ShapeDtypeStruct(s, "float32") for k, s in shapes.items()}
    >>> infer(mlp, params, jax.ShapeDtypeStruct((1, 8), "float32"))
    WeightSpace(2 leaves, 576 weights; w1=32; fixed in=8, out=10)
      w1  [in] w1
      w2  w1 [out]
    """
    if not callable(fn):
        raise SpecError(
            "the network comes first",
            expected="infer(fn, params, *inputs), where fn(params, *inputs) is the network",
            got=f"a {type(fn).__name__} in place of fn",
        )
    leaves, treedef = flatten_params(params)
    try:
        jaxpr, out_shapes = jax.make_jaxpr(fn, return_shape=True)(params, *args)
    except TypeError as error:
        shapes = [jax.tree.map(jnp.shape, arg) for arg in args]
        error.add_note(
            f"unf.infer called fn(params, *inputs) with {len(args)} inputs, of shapes {shapes}; "
            "does the network take these? See docs/your-own-network.md"
        )
        raise
    named: dict[str, Term] = {}
    parameters = [_parameter(i, path, shape) for i, (path, shape) in enumerate(leaves)]
    operands = [*parameters, *_arguments(args, inputs, named)]
    interpreter = Interpreter()
    results = interpreter.run(jaxpr, operands)
    _constrain_outputs(results, out_shapes, outputs, named, leaves, parameters)
    if warn:
        interpreter.warn([path for path, _ in leaves])
    terms = [value.axes for value in parameters]
    values = [value.terms for value in [*operands, *interpreter.values]]
    written, sizes = to_axes([(p, t) for (p, _), t in zip(leaves, terms, strict=True)], values)
    space_leaves = tuple(
        Leaf(path, axes, shape) for (path, shape), axes in zip(leaves, written, strict=True)
    )
    used = 0
    for result in results:
        used |= result.sources
    notes = explain([path for path, _ in leaves], parameters, written, used)
    return WeightSpace._build(treedef, space_leaves, sizes, notes)


def _parameter(index: int, path: str, shape: Sequence[int]) -> Value:
    value = Value.of(
        [axis(size, f"{path} axis {i}") for i, size in enumerate(shape)], is_parameter=True
    )
    value.sources = 1 << index
    return value


def _arguments(args: tuple, inputs: Any, named: dict[str, Term]) -> list[Value]:
    specs = _per_argument(inputs, len(args))
    values = []
    for i, (arg, spec) in enumerate(zip(args, specs, strict=True)):
        leaves, _ = flatten_params(arg)
        for (path, shape), leaf_spec in zip(leaves, _broadcast_spec(spec, arg), strict=True):
            where = f"argument {i}" + ("" if path == "." else f" {path}")
            values.append(Value.of(_described(leaf_spec, shape, where, "in", named)))
    return values


def _per_argument(specs: Any, count: int) -> list[Any]:
    if isinstance(specs, str) and specs in ("fixed", "free"):
        return [specs] * count
    if isinstance(specs, tuple | list) and len(specs) == count:
        return list(specs)
    raise SpecError(
        "inputs= does not fit",
        expected=f"'fixed', 'free', or a tuple with a specification for each of the {count}",
        got=repr(specs),
    )


def _broadcast_spec(spec: Any, tree: Any) -> list[Any]:
    leaves = jax.tree_util.tree_leaves(tree)
    if isinstance(spec, str):
        return [spec] * len(leaves)
    return align(spec, tree)


def _described(
    spec: Any, shape: Sequence[int], where: str, label: str, named: dict[str, Term]
) -> list[Term]:
    """New axes for an argument or a result, as its specification says."""
    if spec in ("fixed", "free"):
        axes = []
        for i, size in enumerate(shape):
            origin = f"{where} axis {i}"
            reason = Reason(f"{origin}: its order matters") if spec == "fixed" else None
            new = axis(size, origin, reason)
            if isinstance(new, Axis):
                new.label = label
            axes.append(new)
        return axes
    parsed = parse_leaf(spec, where)
    if len(parsed) != len(shape):
        raise SpecError(
            f"the specification has {len(parsed)} axes, the array {len(shape)}",
            path=where,
            expected=f"one axis for each of the dimensions {tuple(shape)}",
            got=repr(spec),
        )
    return [_named_term(a, size, where, named) for a, size in zip(parsed, shape, strict=True)]


def _named_term(written: SpecAxis, size: int, where: str, named: dict[str, Term]) -> Term:
    if isinstance(written, Number):
        if written.size != size:
            raise SpecError("a wrong size", path=where, expected=written.size, got=size)
        return axis(size, where, Reason(f"{where}: given as fixed"))
    if isinstance(written, Name):
        if "." in written.path:
            raise SpecError("inputs and outputs have no nested axes", path=where, got=written.path)
        found = named.get(written.path)
        if found is None:
            reason = Reason(f"{where}: given as fixed") if written.fixed else None
            found = named[written.path] = axis(size, where, reason)
            if isinstance(found, Axis):
                found.label = written.path
        if found.size != size:
            raise SpecError(
                f"{written.path!r} has two sizes", path=where, expected=found.size, got=size
            )
        return found
    raise SpecError(
        "only plain and fixed axes can be given for inputs and outputs",
        path=where,
        expected='e.g. "batch [time] feature"',
        got=str(written),
    )


def _constrain_outputs(
    results: Sequence[Value],
    out_shapes: PyTree,
    outputs: Any,
    named: dict[str, Term],
    leaves: Sequence[tuple[str, tuple[int, ...]]],
    parameters: Sequence[Value],
) -> None:
    """Fix what comes out, or tie it to what it is named after."""
    with_path, _ = jax.tree_util.tree_flatten_with_path(out_shapes)
    if isinstance(outputs, str):
        specs = [outputs] * len(results)
    else:
        specs = _broadcast_spec(outputs, out_shapes)
    paths = [format_path(path) for path, _ in with_path]
    shapes = [result.shape for result in results]
    returned = returned_leaves(list(zip(paths, shapes, strict=True)), leaves)
    for result, path, spec, state in zip(results, paths, specs, returned, strict=True):
        if state is not None:
            reason = Reason(f"returned as {path!r}")
            for a, b in zip(result.axes, parameters[state].axes, strict=True):
                unify(a, b, reason)
            continue
        if spec == "free":
            continue
        where = "the output" if path == "." else f"output {path!r}"
        described = _described(spec, result.shape, where, "out", named)
        for a, b in zip(result.axes, described, strict=True):
            unify(a, b, Reason(f"returned as {where}"))
