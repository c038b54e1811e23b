"""Weight spaces as JSON: the tree of containers, and each leaf's specification and shape."""

import json
from typing import TYPE_CHECKING, Any

import jax
from jax.tree_util import treedef_children

from ._errors import SpecError

if TYPE_CHECKING:
    from ._space import WeightSpace

FORMAT = 1
_DAMAGE = KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError


def dump(space: "WeightSpace") -> str:
    """The description of a space whose containers are dicts, lists and tuples."""
    leaves = iter(space.leaves)

    def describe(treedef: Any) -> Any:
        node = treedef.node_data()
        if node is None:
            leaf = next(leaves, None)
            return None if leaf is None else {"spec": str(leaf), "shape": list(leaf.shape)}
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

    tree = describe(space.treedef)
    return json.dumps({"format": FORMAT, "sizes": space.axis_sizes, "tree": tree})


def load(text: str) -> "WeightSpace":
    """The space that `dump` described.

    Raises:
        SpecError: if the text is not such a description.
    """
    from ._space import WeightSpace

    try:
        description = json.loads(text)
        if description["format"] != FORMAT:
            raise SpecError(
                "a description of another version", expected=FORMAT, got=description["format"]
            )
        spec = _build(description["tree"], "spec")
        shapes = _build(description["tree"], "shape")
        return WeightSpace.from_spec(spec, shapes, sizes=description["sizes"])
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
