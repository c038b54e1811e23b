"""Readable names for the permutations found, from the paths of their leaves."""

import re
from collections.abc import Mapping, Sequence

from ._expressions import Variable

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


def name_variables(
    variables: Sequence[Variable],
    places: Mapping[Variable, list[tuple[str, int, int]]],
    parents: Mapping[Variable, Variable],
) -> dict[Variable, str]:
    """A unique name for each variable; a nested one's begins with its parent's name.

    `places` are the leaves each variable occurs in: path, position, rank.
    """
    holders = set(parents.values())
    names: dict[Variable, str] = {}
    taken: set[str] = set()

    def name(variable: Variable) -> str:
        if variable in names:
            return names[variable]
        base = variable.label or _base(
            places.get(variable, []), variable in holders, variable.fixed is not None
        )
        parent = parents.get(variable)
        prefix = "" if parent is None else f"{name(parent)}."
        unique, count = f"{prefix}{base}", 1
        while unique in taken:
            count += 1
            unique = f"{prefix}{base}_{count}"
        taken.add(unique)
        names[variable] = unique
        return unique

    for variable in sorted(variables, key=lambda variable: variable.label is None):
        name(variable)
    return names


def _base(places: list[tuple[str, int, int]], is_parent: bool, is_fixed: bool) -> str:
    if not places:
        return "axis"
    # Prefer the layer that writes it: the only axis of a bias or scale, else a kernel's last.
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
