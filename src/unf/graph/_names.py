"""Names for axes: short, from the structure of the network and the paths of its parameters.

The structure comes first. An axis that a skip connection adds to is a `stream`; one between two
matrices that both touch a stream is an `mlp`; axes that others are nested in are heads, groups,
experts, or layers. Otherwise the path names the axis: its last word that says more than `weight`
or `layers`. Axes that would share a name are told apart by the numbers in their paths
(`mlp_0`, `mlp_1`), then by their words (`encoder_mlp`), and else counted.

Names depend neither on sizes nor on the order in which a dictionary was filled.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import zip_longest

from ._expressions import Variable

_LABELS = {"in", "out"}
_GENERIC = {
    "b", "batch_stats", "bias", "block", "blocks", "buffer", "classifier", "embedding", "features",
    "h", "input", "kernel", "layer", "layers", "mean", "model", "module", "modules", "net",
    "network", "offset", "original", "output", "parametrizations", "params", "proj", "raw_value",
    "running_mean", "running_var", "scale", "self", "stages", "transformer", "value", "var", "w",
    "weight", "weights", *_LABELS,
}  # fmt: skip
"""Words of paths that name no axis."""
_HOLDERS = [
    (r"expert|moe|router", "expert"),
    (r"att|query|qkv|kv\b|head|mha|\bq\b.*\bk\b|\bk\b.*\bq\b", "head"),
    (r"conv|norm|group", "group"),
    (r"ensemble|member", "member"),
]
"""What an axis is called that others are nested in, by the paths of its leaves."""
_OUTPUT = r"o|out|output"
_ROLES = [
    (r"q|quer(y|ies)", "query"),
    (r"k|keys?", "key"),
    (r"v|values?", "value"),
    (r"kv|key_?values?", "key and value"),
    (_OUTPUT, "output"),
]
_NORM = r"norm|bn\d*(?![a-z])|batch_stats|running_"
_EMBEDDING = r"embed|token|patches"
_MLP = r"mlp|ffn|feed_?forward|intermediate"
_RECURRENT = r"lstm|gru|rnn"


@dataclass(frozen=True)
class Place:
    """One occurrence of an axis: a leaf's path, the position in it, and the leaf's rank."""

    path: str
    position: int
    rank: int

    @property
    def writes(self) -> bool:
        """Whether it is where a layer's outputs stand: first in a `weight`, last in a kernel."""
        return self.position == (0 if self.path.endswith("weight") else self.rank - 1)


@dataclass(frozen=True)
class _Draft:
    """What an axis would be called if it were alone: a word, and where it comes from.

    `number` belongs to the word itself, as in `Conv_2`. Without a path, axes of the same name
    are counted.
    """

    variable: Variable
    word: str
    order: tuple
    path: str | None = None
    number: str = ""


def name_variables(
    axes: Sequence[Variable],
    places: Mapping[Variable, Sequence[Place]],
    parents: Mapping[Variable, Variable],
    streams: AbstractSet[Variable],
    indices: AbstractSet[Variable],
) -> dict[Variable, str]:
    """A unique name for each axis; a nested one's begins with its parent's name.

    `places` are the occurrences of each axis, `streams` those along which skip connections add,
    `indices` those at whose indices others differ.
    """
    drafts: dict[tuple, list[_Draft]] = defaultdict(list)
    describe = _Describer(places, parents, streams, indices)
    for variable in axes:
        if variable.label is None:
            draft = describe(variable)
            drafts[parents.get(variable), draft.word].append(draft)
    local = {v: v.label for v in axes if v.label is not None}
    for group in drafts.values():
        local.update(_tell_apart(sorted(group, key=lambda draft: draft.order)))
    names: dict[Variable, str] = {}
    taken: set[str] = set()

    def name(variable: Variable) -> str:
        if variable not in names:
            parent = parents.get(variable)
            wanted = local[variable] if parent is None else f"{name(parent)}.{local[variable]}"
            names[variable], count = wanted, 1
            while names[variable] in taken:
                count += 1
                names[variable] = f"{wanted}_{count}"
            taken.add(names[variable])
        return names[variable]

    for variable in local:  # labels first
        name(variable)
    return names


class _Describer:
    """Finds the word for one axis from its role in the network."""

    def __init__(
        self,
        places: Mapping[Variable, Sequence[Place]],
        parents: Mapping[Variable, Variable],
        streams: AbstractSet[Variable],
        indices: AbstractSet[Variable],
    ):
        self.places, self.parents, self.streams, self.indices = places, parents, streams, indices
        self.nested: dict[Variable, list[Variable]] = defaultdict(list)
        for child, parent in parents.items():
            self.nested[parent].append(child)
        self.on_stream = {place.path for v in streams for place in places.get(v, ())}
        paths = {place.path for found in places.values() for place in found}
        self.attends = {"query", "key"} <= _attention_roles(paths)

    def __call__(self, variable: Variable) -> _Draft:
        found = self.places[variable]
        best = min(found, key=_preference)
        order = _natural(best.path)
        word = self._role(variable, found)
        if word == "stream":
            return _Draft(variable, word, order)
        if word is not None:
            return _Draft(variable, word, order, best.path)
        word, number = _last_word(best.path)
        if word:
            return _Draft(variable, word, order, best.path, number)
        word = "conv" if any(place.rank > 3 for place in found) else "hidden"
        return _Draft(variable, word, order, best.path)

    def _role(self, variable: Variable, found: Sequence[Place]) -> str | None:
        if variable in self.nested:
            return self._holder(variable, found)
        if variable in self.indices:
            return _last_word(found[0].path)[0] or "layer"
        parent = self.parents.get(variable)
        in_head = parent is not None and self._holder(parent, self.places[parent]) == "head"
        if in_head or variable.fixed is not None:
            return _attention_role(found, in_head)
        twice = _occurs_twice(found)
        for path in sorted(twice):
            if match := re.search(_RECURRENT, path.lower()):
                return match[0]
        paths = {place.path for place in found if place.rank > 1}
        if twice and 3 * len(twice) >= len(paths) and not _matches(_EMBEDDING, found):
            return "state"
        if variable in self.streams:
            return "stream"
        if _matches(_EMBEDDING, found):
            return "embed"
        largest = max(place.rank for place in found)
        if largest > 3:  # a convolution
            return None
        if self.attends and (role := _attention_role(found, in_head)):
            return role
        matrices = {place.path for place in found if place.rank == largest}
        if _matches(_MLP, found) or (len(matrices) > 1 and matrices <= self.on_stream):
            return "mlp"
        return None

    def _holder(self, variable: Variable, found: Sequence[Place]) -> str:
        children = self.nested[variable]
        if variable.fixed is not None and any(child.layered for child in children):
            return "layer"
        paths = " ".join(place.path.lower() for place in found)
        for pattern, word in _HOLDERS:
            if re.search(pattern, paths):
                return word
        leaves = [{place.path for place in self.places[child]} for child in children]
        if len(leaves) > 1 and not set.intersection(*leaves):
            return "head"  # keys and values, which no array joins
        return "group" if any(place.rank > 3 for place in found) else "part"


def _preference(place: Place) -> tuple:
    """The layer that writes an axis first: its bias, else its kernel. Norms only follow."""
    is_norm = re.search(_NORM, place.path.lower()) is not None
    return is_norm, place.rank != 1, not place.writes, _natural(place.path)


def _attention_role(found: Sequence[Place], in_head: bool) -> str | None:
    """`key` for an axis that queries and keys share, `value` for that of values and outputs."""
    roles = _attention_roles({place.path for place in found})
    if {"query", "key"} <= roles or (in_head and "key" in roles):
        return "key"
    if "value" in roles and (in_head or "output" in roles):
        return "value"
    if "key and value" in roles and roles & {"query", "output"}:
        return "key" if "query" in roles else "value"
    if not in_head:
        return None
    if "query" in roles:
        return "query"
    # Queries and keys are made alike; values and outputs stand on opposite sides.
    largest = max(place.rank for place in found)
    sides = [place.position for place in found if place.rank == largest]
    if len(sides) < 2:
        return None
    return "key" if len(set(sides)) == 1 else "value"


def _attention_roles(paths: AbstractSet[str]) -> set[str]:
    """Which of queries, keys, values, and outputs the last words of paths mention."""
    words = {_last_word(path, keep=_OUTPUT)[0] for path in paths}
    return {role for pattern, role in _ROLES for w in words if re.fullmatch(f"w?({pattern})", w)}


def _occurs_twice(found: Sequence[Place]) -> set[str]:
    """The leaves that an axis occurs in at two positions, such as recurrent weights."""
    positions = defaultdict(set)
    for place in found:
        positions[place.path].add(place.position)
    return {path for path, where in positions.items() if len(where) > 1}


def _matches(pattern: str, found: Sequence[Place]) -> bool:
    return any(re.search(pattern, place.path.lower()) for place in found)


def _tell_apart(group: Sequence[_Draft], prefix: str = "") -> Iterator[tuple[Variable, str]]:
    """Names for axes that share a word: by the numbers in their paths, or by other words."""
    word = f"{prefix}{group[0].word}"
    if len(group) == 1:
        yield group[0].variable, f"{word}_{group[0].number}".rstrip("_")
        return
    paths = [draft.path for draft in group if draft.path is not None]
    numbers = _differing([re.findall(r"[0-9]+", path) for path in paths])
    if len(set(numbers)) == len(group):
        for draft, differing in zip(group, numbers, strict=True):
            yield draft.variable, "_".join([word, *filter(None, differing)])
        return
    words = _differing([_telling_words(path) for path in paths])
    parts: dict[str, list[_Draft]] = defaultdict(list)
    for draft, differing in zip(group, words, strict=False):
        parts[differing[0] if differing else ""].append(draft)
    if len(parts) > 1 and len(paths) == len(group):
        for extra, part in parts.items():
            yield from _tell_apart(part, f"{prefix}{extra}_" if extra else prefix)
        return
    for i, draft in enumerate(group):
        yield draft.variable, f"{word}_{i}"


def _telling_words(path: str) -> list[str]:
    """The words that may tell apart axes of the same name: `decoder`, `self`."""
    words = [re.sub(r"_?(\d+|attn|attention)(?=_|$)", "", word) for word, _ in _words(path)]
    return [word for word in words if len(word) > 1 and word not in _GENERIC - {"self"}]


def _differing(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The rows, filled to one length, without the columns that agree."""
    columns = [column for column in zip_longest(*rows, fillvalue="") if len(set(column)) > 1]
    return list(zip(*columns, strict=True)) if columns else [()] * len(rows)


def _last_word(path: str, keep: str = "(?!)") -> tuple[str, str]:
    """The last word of a path that is not generic, or matches `keep`, and its number."""
    for word, number in reversed(list(_words(path))):
        if word not in _GENERIC or re.fullmatch(keep, word):
            return word, number
    return "", ""


def _words(path: str) -> Iterator[tuple[str, str]]:
    """The words of a path in lower case, each with the number at its end."""
    for part in re.split(r"[/.]", path.removesuffix("/value").lower()):
        part = re.sub(r"\W+", "_", part, flags=re.ASCII).strip("_")
        part = re.sub(r"^(w|b|c|weight|kernel|bias)_|_(w|b|weight|kernel|bias|proj|lin)$", "", part)
        word, number = re.fullmatch(r"(.*?)_?([0-9]*)", part).groups()  # type: ignore[union-attr]
        if word and not word[0].isdigit():
            yield {"convolution": "conv"}.get(word, word), number


def _natural(path: str) -> tuple:
    """A sort key that puts `block2` before `block10`."""
    parts = re.split(r"([0-9]+)", path)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts))
