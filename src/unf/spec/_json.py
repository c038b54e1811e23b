"""Weight spaces as JSON: the tree of containers, and each leaf's specification and shape."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.tree_util import treedef_children

from ._errors import SpecError

FORMAT = 1
_DAMAGE = KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError


def dump(
    treedef: Any, leaves: Sequence[tuple[str, tuple[int, ...]]], sizes: Mapping[str, int]
) -> str:
    """Describe a space of dicts, lists and tuples: its structure, leaves and sizes of names."""
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
        raise SpecError(
            f"a container of type {kind.__name__} cannot be described as JSON",
            expected="dicts, lists and tuples",
            got=kind.__name__,
            remedy="convert the parameters to nested dicts first",
        )

    return json.dumps({"format": FORMAT, "sizes": sizes, "tree": describe(treedef)})


def load(text: str, from_spec: Callable[..., Any]) -> Any:
    """Call `from_spec` with the specification, shapes and sizes that `dump` described."""
    try:
        description = json.loads(text)
        if description["format"] != FORMAT:
            raise SpecError(
                "a description in another format", expected=FORMAT, got=description["format"]
            )
        tree = description["tree"]
        return from_spec(_build(tree, "spec"), _build(tree, "shape"), sizes=description["sizes"])
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
    if what == "spec":
        return str(node["spec"])
    return jax.ShapeDtypeStruct(tuple(int(size) for size in node["shape"]), "float32")
