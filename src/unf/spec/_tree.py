"""Trees of parameters: matching a specification with one, and describing one as JSON."""

import json
from collections.abc import Callable, Container, Mapping, Sequence
from fnmatch import fnmatch
from math import prod
from typing import Any, NoReturn

import jax
import numpy as np
from jax.tree_util import KeyPath, treedef_children

from ._errors import MOST_ELEMENTS, SpecError, shown

_FORMAT = 1
_DAMAGE = KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError
PARTITION = (
    "pass only the arrays: params, static = equinox.partition(model, equinox.is_array); the "
    "network is then lambda params, *inputs: equinox.combine(params, static)(*inputs)"
)
"""The remedy for modules that hold functions or Python values beside their arrays."""
Shapes = Sequence[tuple[str, tuple[int, ...]]]


def format_path(path: KeyPath) -> str:
    """A key path as users write it: `encoder/layers/0/kernel`."""
    return "/".join(str(_key_value(key)) for key in path) or "."


def _key_value(key: Any) -> Any:
    """The dictionary key, attribute name or index of a path entry."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return str(key)


def _leaf_shape(leaf: Any, path: str) -> tuple[int, ...]:
    """The shape of an array, a `ShapeDtypeStruct` or a Python number."""
    if hasattr(leaf, "shape"):
        shape = tuple(int(size) for size in leaf.shape)
    elif isinstance(leaf, bool | int | float | complex | np.generic):
        shape = ()
    else:
        raise SpecError(
            "not an array",
            path=path,
            expected="an array or jax.ShapeDtypeStruct",
            got=f"{shown(leaf)} ({type(leaf).__name__})",
            remedy=PARTITION
            + ("; a specification comes before the parameters" if isinstance(leaf, str) else ""),
        )
    if 0 in shape:
        raise SpecError("an array without elements", path=path, got=f"shape {shown(shape)}")
    if min(shape, default=1) < 0 or prod(shape) > MOST_ELEMENTS:
        raise SpecError("no array can have this shape", path=path, got=f"shape {shown(shape)}")
    return shape


def flatten_params(params: Any) -> tuple[list[tuple[str, tuple[int, ...]]], Any]:
    """The path and shape of every leaf, and the tree's structure."""
    with_path, treedef = jax.tree_util.tree_flatten_with_path(params)
    paths = [format_path(path) for path, _ in with_path]
    return [(p, _leaf_shape(x, p)) for p, (_, x) in zip(paths, with_path, strict=True)], treedef


def returned_leaves(outputs: Shapes, leaves: Shapes) -> list[int | None]:
    """For each output, the leaf that it is a new version of, such as batch statistics.

    A whole subtree must match: an entry of the outputs with the name, the paths and the
    shapes of an entry of the parameters, as in `(y, {"batch_stats": ...})`; or all
    parameters, as in `(loss, gradients)`. Names must be more than positions.
    """
    found: list[int | None] = [None] * len(outputs)
    of_leaves = _subtrees(leaves)
    origins = {_signature(entries): root for root, entries in of_leaves.items()}
    for root, entries in sorted(_subtrees(outputs).items(), key=lambda item: len(item[0])):
        origin = origins.get(_signature(entries))
        if origin is None or not _is_version(root, origin, entries):
            continue
        positions = {path: i for path, i, _ in of_leaves[origin]}
        for path, i, _ in entries:
            if found[i] is None:
                found[i] = positions[path]
    return found


def _subtrees(shapes: Shapes) -> dict[tuple[str, ...], list[tuple[tuple[str, ...], int, tuple]]]:
    """Every subtree by its root: the relative path, position and shape of each of its leaves."""
    subtrees: dict[tuple[str, ...], list] = {}
    for i, (path, shape) in enumerate(shapes):
        words = tuple(path.split("/"))
        for depth in range(len(words)):
            subtrees.setdefault(words[:depth], []).append((words[depth:], i, tuple(shape)))
    return subtrees


def _signature(entries: list[tuple[tuple[str, ...], int, tuple]]) -> frozenset:
    return frozenset((path, shape) for path, _, shape in entries)


def _is_version(root: tuple[str, ...], origin: tuple[str, ...], entries: list) -> bool:
    if all(word.isdigit() or word == "." for path, _, _ in entries for word in path):
        return False
    if not origin:
        return all(word.isdigit() for word in root)
    return bool(root) and root[-1] == origin[-1]


def align(spec: Any, params: Any) -> list[Any]:
    """The specification of each leaf of `params`, in the order of its leaves.

    The walk follows `params`, so a tuple in `spec` is a container where `params` has one
    and a leaf's names where `params` has an array. A mapping may replace any container
    with named children, such as a dataclass or a module.
    """
    aligned: list[Any] = []
    _align(spec, params, (), aligned)
    return aligned


def _align(spec: Any, node: Any, path: KeyPath, out: list[Any]) -> None:
    children = _children(node)
    if children is None:
        out.append(spec)
        return
    entries = _entries(spec)
    extra = [key for key in entries if key not in children]
    if extra:
        without = [key for key in children if key not in entries]
        raise SpecError(
            "the specification has an entry that the parameters do not have",
            path=format_path(path),
            expected=f"entries {list(children)}",
            got=f"{extra[0]!r} as well",
            remedy=f"rename it to {without[0]!r}, which has no entry" if without else "remove it",
        )
    for value, (key, child) in children.items():
        if not jax.tree_util.tree_leaves(child):  # None and empty containers need no entry
            continue
        if value not in entries:
            is_mapping = isinstance(spec, Mapping)
            raise SpecError(
                "the specification has no entry for this part of the parameters",
                path=format_path((*path, key)),
                expected="a specification with the structure of the parameters",
                got=f"a mapping with keys {list(spec)}" if is_mapping else shown(spec),
                remedy="start from jax.tree.map(lambda x: ' '.join(map(str, x.shape)), params)",
            )
        _align(entries[value], child, (*path, key), out)


def _children(node: Any) -> dict[Any, tuple[Any, Any]] | None:
    """The children of a container by key, name or index, with their path entry; None for a leaf."""
    flat, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
    if len(flat) == 1 and flat[0][0] == ():
        return None
    return {_key_value(key_path[0]): (key_path[0], child) for key_path, child in flat}


def _entries(spec: Any) -> dict[Any, Any]:
    """The specification of each child."""
    if isinstance(spec, Mapping):
        return dict(spec)
    if isinstance(spec, list | tuple) and not hasattr(spec, "_fields"):
        return dict(enumerate(spec))
    return {value: child for value, (_, child) in (_children(spec) or {}).items()}


def shape_remedy(wanted: tuple[int, ...], got: tuple[int, ...], channels: bool) -> str:
    """What was probably forgotten: the channel axis, `jax.vmap`, or both."""
    add = "add a channel axis, e.g. with unf.nn.stack_channels(params)"
    if channels and got == wanted:
        return add
    if channels and got[1:] == wanted:
        return f"{add}; then batch with jax.vmap"
    if got[1 : len(wanted) + 1] == wanted and len(got) == len(wanted) + channels + 1:
        return "batch with jax.vmap"
    return "pass weights of the network the space was made for, or make a space for these"


def fail_structure(expected: list[str], tree: Any) -> NoReturn:
    """Raise a `SpecError` that lists the missing and unexpected leaves of a tree."""
    with_path, _ = jax.tree_util.tree_flatten_with_path(tree)
    got = [format_path(path) for path, _ in with_path]
    missing = [path for path in expected if path not in got]
    extra = [path for path in got if path not in expected]
    difference = "containers of another type"
    if missing or extra:
        difference = f"missing {missing[:3]}, unexpected {extra[:3]}"
    raise SpecError(
        "the tree's structure differs from the weight space's",
        expected=f"{len(expected)} leaves: {', '.join(expected[:4])}, ..."
        if len(expected) > 4
        else f"leaves {expected}",
        got=difference,
        remedy="pass a tree with the structure of the params the space was made from",
    )


def is_under(path: str, pattern: str) -> bool:
    """Whether a leaf's path is one that was named, in a subtree that was named, or matches.

    >>> [is_under("net/0/mean", x) for x in ("net/0/mean", "net/0", "net/0/", "*/mean", "ne")]
    [True, True, True, True, False]
    """
    return path == pattern or path.startswith(f"{pattern.rstrip('/')}/") or fnmatch(path, pattern)


def keep_leaves(treedef: Any, kept: Container[int]) -> Any:
    """The structure without the other leaves: no entries of dicts, None elsewhere."""
    nothing = object()

    def keep(node: Any) -> Any:
        if isinstance(node, int):
            return node if node in kept else nothing
        if type(node) is dict:
            entries = {key: keep(child) for key, child in node.items()}
            entries = {key: child for key, child in entries.items() if child is not nothing}
            return entries if entries or not node else nothing
        children, structure = jax.tree.flatten(node, is_leaf=lambda x: x is not node)
        new = [keep(child) for child in children]
        if new and all(child is nothing for child in new):
            return nothing
        return structure.unflatten([None if child is nothing else child for child in new])

    return jax.tree.structure(keep(treedef.unflatten(range(treedef.num_leaves))))


def dump_json(
    treedef: Any,
    leaves: Sequence[tuple[str, tuple[int, ...]]],
    sizes: Mapping[str, int],
    roles: Sequence[str],
) -> str:
    """Describe a space: its structure, leaves, sizes of names, and roles.

    Of modules and other classes only the name is written, which `load_json` does not make again.
    """
    remaining = iter(leaves)

    def describe(treedef: Any) -> Any:
        node = treedef.node_data()
        if node is None:
            leaf = next(remaining, None)
            return None if leaf is None else {"spec": leaf[0], "shape": list(leaf[1])}
        kind, data = node
        children = [describe(child) for child in treedef_children(treedef)]
        if kind is dict and all(isinstance(key, str | int) for key in data):
            return {"dict": [list(pair) for pair in zip(data, children, strict=True)]}
        if kind in (list, tuple):
            return {kind.__name__: children}
        if kind is type(None):
            return {"none": True}
        return {"class": kind.__qualname__, "children": children}

    tree = describe(treedef)
    return json.dumps({"format": _FORMAT, "sizes": sizes, "tree": tree, "roles": roles})


def without_roles(text: str) -> str:
    """A description as early versions wrote it, to compare spaces apart from their roles."""
    try:
        description = json.loads(text)
        description.pop("roles", None)
    except _DAMAGE:
        return text
    return json.dumps(description)


def load_json(text: str, from_spec: Callable[..., Any]) -> Any:
    """Call `from_spec` with the specification, shapes, sizes and roles that were described."""
    try:
        description = json.loads(text)
        if description["format"] != _FORMAT:
            raise SpecError(
                "a description in another format", expected=_FORMAT, got=description["format"]
            )
        tree, roles = description["tree"], description.get("roles")
        spec, shapes = _build(tree, "spec"), _build(tree, "shape")
        if roles is not None:
            roles = jax.tree.unflatten(jax.tree.structure(shapes), roles)
        return from_spec(spec, shapes, sizes=description["sizes"], roles=roles)
    except SpecError:
        raise
    except _DAMAGE as error:
        raise SpecError(
            "not a description of a weight space",
            expected="JSON as WeightSpace.to_json writes it",
            got=f"{type(error).__name__}: {error}",
        ) from error


def _build(node: Any, what: str) -> Any:
    if "dict" in node:
        return {key: _build(child, what) for key, child in node["dict"]}
    if "list" in node:
        return [_build(child, what) for child in node["list"]]
    if "tuple" in node:
        return tuple(_build(child, what) for child in node["tuple"])
    if "none" in node:
        return None
    if "class" in node:
        raise SpecError(
            f"the space has containers of the class {shown(node['class'])}",
            expected="dicts, lists and tuples, which can be made from a file",
            remedy="pass the weight space that the file was written for, as space=",
        )
    if what == "spec":
        return str(node["spec"])
    return jax.ShapeDtypeStruct(tuple(int(size) for size in node["shape"]), "float32")
