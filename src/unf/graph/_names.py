"""Readable names for the permutations found, from where they stand in the tree."""

import re
from collections.abc import Mapping, Sequence

from ._terms import Axis

GENERIC = {
    "params", "kernel", "bias", "scale", "weight", "w", "b", "embedding", "batch_stats",
    "mean", "var", "raw_value", "layers", "weights", "w_i", "w_h", "offset",
}  # fmt: skip
KINDS = [
    (r"expert|moe", "expert"),
    (r"att|query|qkv|head|mha|\bq\b.*\bk\b|\bk\b.*\bq\b", "head"),
    (r"conv|norm|group", "group"),
    (r"ensemble|member", "member"),
]
EMBEDDINGS = r"embed|token|patches"
LABELS = ("in", "out")


def name_axes(
    axes: Sequence[Axis],
    places: Mapping[Axis, list[tuple[str, int, int]]],
    parents: Mapping[Axis, Axis],
) -> dict[Axis, str]:
    """A name for each axis, nested ones with the name of what they are nested in.

    Args:
        axes: the axes, in order of appearance.
        places: for each axis, the leaves it stands in: path, position, rank.
        parents: what nested axes are nested in.
    """
    holders = set(parents.values())
    names: dict[Axis, str] = {}
    taken: set[str] = set()

    def name(axis: Axis) -> str:
        if axis in names:
            return names[axis]
        base = axis.label or _base(
            places.get(axis, []), is_parent=axis in holders, is_fixed=axis.fixed is not None
        )
        parent = parents.get(axis)
        prefix = "" if parent is None else f"{name(parent)}."
        unique, count = f"{prefix}{base}", 1
        while unique in taken:
            count += 1
            unique = f"{prefix}{base}_{count}"
        taken.add(unique)
        names[axis] = unique
        return unique

    for axis in sorted(axes, key=lambda axis: axis.label is None):
        name(axis)
    return names


def _base(places: list[tuple[str, int, int]], *, is_parent: bool, is_fixed: bool) -> str:
    if not places:
        return "axis"
    # Where a layer writes: the only axis of a bias or scale, else the last of a kernel.
    path, _, _ = min(places, key=lambda place: (place[2] != 1, place[1] != place[2] - 1))
    if is_parent:
        if is_fixed:
            return "layer"
        paths = " ".join(place[0].lower() for place in places)
        return next((kind for pattern, kind in KINDS if re.search(pattern, paths)), "part")
    if any(re.search(EMBEDDINGS, place[0].lower()) for place in places):
        return "embed"
    return _readable(path)


def _readable(path: str) -> str:
    words = [word for word in path.removesuffix("/value").split("/") if word]
    while len(words) > 1 and words[-1].lower() in {*GENERIC, *LABELS}:
        words.pop()
    word = words[-1] if words else "axis"
    if word.isdigit() and len(words) > 1:
        word = f"{words[-2]}_{word}"
    word = re.sub(r"\W+", "_", word.lower(), flags=re.ASCII).strip("_")
    return word if word and not word[0].isdigit() else f"axis_{word}".rstrip("_")
