"""Weight spaces: a pytree of arrays, and which of their axes permute together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import count, zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._html import in_brief, repr_html
from . import _group, _signs
from ._blocks import MOST_CUTS, Block, Layout
from ._errors import SpecError, shown
from ._grammar import (
    AxisSpec,
    Name,
    Number,
    ancestors,
    braces_in,
    format_axes,
    map_atoms,
    names_in,
    parse_leaf,
    parse_name,
)
from ._roles import LeafRoles, parse_roles, roles_by_position
from ._sizes import axis_size, check_sizes, solve_sizes
from ._tree import (
    align,
    dump_json,
    fail_structure,
    flatten_params,
    is_under,
    keep_leaves,
    load_json,
    shape_remedy,
)

Permutation = dict[str, Array]


@dataclass(frozen=True)
class Leaf:
    """One array of a weight space: its path in the tree, its axes and its shape."""

    path: str
    axes: tuple[AxisSpec, ...]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return format_axes(self.axes)


@dataclass(frozen=True, repr=False)
class WeightSpace:
    """A pytree of arrays together with the permutations that act on their axes (eq. 1 to 5).

    Immutable and hashable. Make one with `from_spec` or `unf.infer`.

    >>> import jax
    >>> params = {"w1": jax.ShapeDtypeStruct((8, 32), "float32"),
    ...           "w2": jax.ShapeDtypeStruct((32, 10), "float32")}
    >>> space = WeightSpace.from_spec({"w1": "[in] hidden", "w2": "hidden [out]"}, params)
    >>> space.sizes, space.fixed
    ({'hidden': 32}, ('in', 'out'))
    >>> space
    WeightSpace(2 leaves, 576 weights; hidden=32; fixed in=8, out=10)
      w1  [in] hidden
      w2  hidden [out]

    Attributes:
        treedef: the structure of the pytree.
        leaves: its arrays.
        notes: what `unf.infer` learned while finding the space; None for one made by hand.
    """

    treedef: Any
    leaves: tuple[Leaf, ...]
    _sizes: tuple[tuple[str, int], ...]
    _roles: tuple[LeafRoles, ...]
    notes: Any = field(default=None, compare=False)

    @classmethod
    def from_spec(
        cls,
        spec: PyTree,
        params: PyTree,
        *,
        sizes: Mapping[Any, int] | None = None,
        roles: PyTree = None,
    ) -> "WeightSpace":
        """The weight space of `params` that a specification describes (Appendix A).

        Args:
            spec: a pytree like `params` with a tuple of names or a string for each leaf.
                A mapping may replace a dataclass or a module.
            params: arrays or `jax.ShapeDtypeStruct`s.
            sizes: sizes of names that the arrays' shapes do not determine.
            roles: a pytree like `spec` with the role of each leaf's axes, such as `"out in"`; by
                default those of JAX's order, see `roles`.

        Raises:
            SpecError: if the specification does not describe the arrays.
        """
        shapes, treedef = flatten_params(params)
        if not shapes:
            raise SpecError("no arrays", expected="at least one", got=repr(params))
        leaves = []
        for leaf_spec, (path, shape) in zip(align(spec, params), shapes, strict=True):
            axes = parse_leaf(leaf_spec, path)
            _check_rank(axes, shape, path)
            leaves.append(Leaf(path, axes, shape))
        found = None
        if roles is not None:
            aligned = zip(align(roles, params), shapes, strict=True)
            found = tuple(parse_roles(x, len(shape), path) for x, (path, shape) in aligned)
        return cls.from_leaves(treedef, tuple(leaves), sizes or {}, roles=found)

    @classmethod
    def from_leaves(
        cls,
        treedef: Any,
        leaves: tuple[Leaf, ...],
        sizes: Mapping[Any, int],
        notes: Any = None,
        roles: tuple[LeafRoles, ...] | None = None,
    ) -> "WeightSpace":
        """The weight space with these leaves, checked for consistency; see `from_spec`."""
        _check_fixed(leaves)
        solved = solve_sizes([(leaf.path, leaf.axes, leaf.shape) for leaf in leaves], sizes)
        roles = roles or tuple(roles_by_position(len(leaf.shape)) for leaf in leaves)
        space = cls(treedef, leaves, tuple(solved.items()), roles, notes)
        _ = space.layouts  # checked as they are made
        return space

    @cached_property
    def _hash(self) -> int:
        return hash((self.treedef, self.leaves, self._sizes, self._roles))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def axis_sizes(self) -> dict[str, int]:
        """The size of every name, permuted or fixed, in order of first appearance."""
        return dict(self._sizes)

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """The names of the fixed axes."""
        occurrences = [n for leaf in self.leaves for axis in leaf.axes for n in names_in(axis)]
        return tuple(dict.fromkeys(name.path for name in occurrences if name.fixed))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The name and size of every permutation."""
        fixed = set(self.fixed)
        return {name: size for name, size in self._sizes if name not in fixed}

    @cached_property
    def num_weights(self) -> int:
        """The number of scalars in one set of weights."""
        return sum(int(np.prod(leaf.shape, dtype=np.int64)) for leaf in self.leaves)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """How each leaf is cut into labeled blocks."""
        found: list[Layout] = []
        cuts = MOST_CUTS
        for i, leaf in enumerate(self.leaves):
            try:
                found.append(Layout(i, leaf.axes, self.axis_sizes, cuts + 1))
                _ = [block.labels for block in found[-1].blocks]
            except SpecError as error:
                problem, expected, remedy = error.problem, error.expected, error.remedy
                got = shown(str(leaf))
                raise SpecError(
                    problem, path=leaf.path, expected=expected, got=got, remedy=remedy
                ) from None
            cuts -= len(found[-1].blocks) - 1
        return tuple(found)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All labeled tensors of the space, in the order of its leaves."""
        return tuple(block for layout in self.layouts for block in layout.blocks)

    @cached_property
    def roles(self) -> dict[str, LeafRoles]:
        """The role of each axis of each leaf, by path: how the array meets activations.

        `unf.infer` reads roles off the computation, so that they do not depend on the order in
        which a framework stores axes. Otherwise they are those that were given, or those of
        JAX's order: `in out` for matrices, windows before these, `shift` for vectors. Spaces with
        other roles are not equal, because tied layers compute something else on them.

        >>> import jax
        >>> params = {"w": jax.ShapeDtypeStruct((32, 8), "float32")}
        >>> WeightSpace.from_spec({"w": "hidden [x]"}, params, roles={"w": "out in"}).roles
        {'w': ('out', 'in')}
        """
        return {leaf.path: each for leaf, each in zip(self.leaves, self._roles, strict=True)}

    def to_spec(self) -> PyTree:
        """The specification as a pytree of strings, without roles; `from_spec` reads it back."""
        return self.treedef.unflatten([str(leaf) for leaf in self.leaves])

    def to_shapes(self, channels: int | None = None, dtype: Any = np.float32) -> PyTree:
        """A pytree of `ShapeDtypeStruct`s like the weights, or like features with channels."""
        extra = () if channels is None else (channels,)
        shapes = [jax.ShapeDtypeStruct(leaf.shape + extra, dtype) for leaf in self.leaves]
        return self.treedef.unflatten(shapes)

    def relax(self, *names: str | int, above: int = 0) -> "WeightSpace":
        """Make fixed axes permutable: the named ones, or all of them if none is named.

        The paper assumes that every axis permutes (§2), which `relax()` gives. Anonymous fixed
        axes then get new names. An axis `kv` with `kv{a | b}` beside it stays fixed.

        Args:
            names: the axes, by default all fixed ones.
            above: leave axes fixed that are not longer than this.
        """
        axes = [axis for leaf in self.leaves for axis in leaf.axes]
        told_apart = {found.index for axis in axes for found in braces_in(axis)}
        among = tuple(name for name in self.fixed if name not in told_apart)
        return self._with_fixed(False, names, among, above)

    def fix(self, *names: str | int) -> "WeightSpace":
        """Make permuted axes fixed: the named ones, or all of them if none is named."""
        return self._with_fixed(True, names, tuple(self.sizes))

    def _with_fixed(
        self, fixed: bool, names: tuple, among: tuple[str, ...], above: int = 0
    ) -> "WeightSpace":
        chosen = {parse_name(name) for name in names} or set(among)
        self._check_names(chosen, among)
        chosen = {name for name in chosen if self.axis_sizes[name] > above}
        new_names = (f"axis{i}" for i in count() if f"axis{i}" not in self.axis_sizes)

        sizes = dict(self.axis_sizes)

        def change(atom: Name | Number) -> AxisSpec:
            if isinstance(atom, Name):
                return Name(atom.path, fixed) if atom.path in chosen else atom
            if fixed or names or atom.size <= above:
                return atom
            sizes[name := next(new_names)] = atom.size
            return Name(name)

        return self._changed(change, sizes)

    def _check_names(self, names: Iterable[str], among: tuple[str, ...]) -> None:
        for name in sorted(set(names) - set(self.axis_sizes)):
            raise SpecError(
                f"no axis is named {name!r}", expected=f"some of {list(among)}", got=repr(name)
            )

    def _changed(
        self, change: Callable[[Name | Number], AxisSpec], sizes: Mapping[str, int]
    ) -> "WeightSpace":
        """The space with each name and number of its axes replaced."""
        leaves = tuple(
            Leaf(leaf.path, tuple(map_atoms(axis, change) for axis in leaf.axes), leaf.shape)
            for leaf in self.leaves
        )
        return self.from_leaves(self.treedef, leaves, sizes, self.notes, self._roles)

    def rename(self, names: Mapping[str | int, str]) -> "WeightSpace":
        """The same space with other names; what is nested in a renamed axis stays nested in it.

        >>> import jax
        >>> shapes = {"q": jax.ShapeDtypeStruct((8, 6), "float32")}
        >>> space = WeightSpace.from_spec({"q": "d (h h.k)"}, shapes, sizes={"h": 2})
        >>> space.rename({"h": "head", "h.k": "key", "d": "stream"}).to_spec()
        {'q': 'stream (head head.key)'}

        Args:
            names: new names by old ones. The new name of a nested axis replaces its last part.

        Raises:
            SpecError: if there is no such name, or two axes would have the same one.
        """
        new = {parse_name(old): parse_name(name) for old, name in names.items()}
        self._check_names(new, tuple(self.axis_sizes))
        for old, name in new.items():
            if "." in name:
                raise SpecError(
                    f"the new name of {old!r} has a dot",
                    expected="a name without the axis it is nested in",
                    got=repr(name),
                )

        def renamed(path: str) -> str:
            parts = [*ancestors(path), path]
            return ".".join(new.get(part, part.rpartition(".")[2]) for part in parts)

        sizes: dict[str, int] = {}
        for path, size in self.axis_sizes.items():
            if renamed(path) in sizes:
                raise SpecError(
                    f"two axes would be named {renamed(path)!r}",
                    expected="a name of its own for each axis",
                    remedy="axes that permute together already have one name",
                )
            sizes[renamed(path)] = size
        return self._changed(
            lambda atom: Name(renamed(atom.path), atom.fixed) if isinstance(atom, Name) else atom,
            sizes,
        )

    def drop(self, *paths: str) -> "WeightSpace":
        """The space without some leaves, such as batch statistics.

        >>> import jax
        >>> shapes = {"params": {"w": jax.ShapeDtypeStruct((4,), "float32")}}
        >>> shapes["batch_stats"] = {"mean": jax.ShapeDtypeStruct((4,), "float32")}
        >>> spec = {"params": {"w": "n"}, "batch_stats": {"mean": "n"}}
        >>> WeightSpace.from_spec(spec, shapes).drop("batch_stats").to_spec()
        {'params': {'w': 'n'}}

        Trees of the new space have no entry for them in dictionaries, and None in other containers.

        Args:
            paths: paths of leaves, of the subtrees that hold them, or patterns such as
                "*/running_mean".

        Raises:
            SpecError: if a path matches no leaf, or no leaf remains.
        """
        found = [
            {i for i, leaf in enumerate(self.leaves) if is_under(leaf.path, path)} for path in paths
        ]
        for path, matches in zip(paths, found, strict=True):
            if not matches:
                near = [leaf.path for leaf in self.leaves][:4]
                raise SpecError("no such leaf", path=path, expected=f"paths such as {near}")
        kept = [i for i in range(len(self.leaves)) if not any(i in matches for matches in found)]
        if not kept:
            raise SpecError("no leaf would remain", expected="at least one", got=f"drop{paths}")
        leaves = tuple(self.leaves[i] for i in kept)
        used = {name.path for leaf in leaves for axis in leaf.axes for name in names_in(axis)}
        sizes = {name: size for name, size in self.axis_sizes.items() if name in used}
        roles = tuple(self._roles[i] for i in kept)
        treedef = keep_leaves(self.treedef, set(kept))
        return self.from_leaves(treedef, leaves, sizes, self.notes, roles)

    def resize(self, sizes: Mapping[str | int, int]) -> "WeightSpace":
        """The same axes in other sizes, such as those of a wider network.

        >>> import jax
        >>> shapes = {"w": jax.ShapeDtypeStruct((2, 8), "float32")}
        >>> WeightSpace.from_spec({"w": "[x] n"}, shapes).resize({"n": 64})
        WeightSpace(1 leaf, 128 weights; n=64; fixed x=2)
          w  [x] n

        Args:
            sizes: new sizes by name; other axes keep theirs.

        Raises:
            SpecError: if there is no such name, or a size is not a positive integer.
        """
        new = {n if n in self.axis_sizes else parse_name(n): size for n, size in sizes.items()}
        self._check_names(map(str, new), tuple(self.axis_sizes))
        known = {**self.axis_sizes, **check_sizes(new)}
        leaves = tuple(
            Leaf(leaf.path, leaf.axes, tuple(axis_size(axis, known) for axis in leaf.axes))
            for leaf in self.leaves
        )
        return self.from_leaves(self.treedef, leaves, known, self.notes, self._roles)

    def explain(self, path: str | None = None) -> str:
        """The role of each axis of one leaf, or of all, and why it permutes or is fixed.

        Raises:
            SpecError: if the space was not found by `unf.infer`, or has no leaf at `path`.
        """
        if self.notes is None:
            raise SpecError(
                "this space was written by hand, so there are no reasons to explain",
                remedy="find it with unf.infer(fn, params, *inputs) instead",
            )
        chosen = [leaf for leaf in self.leaves if path is None or leaf.path == path]
        left_out = [n for n in self.notes.left_out if path is None or n == path]
        if not chosen and not left_out:
            near = get_close_matches(str(path), [leaf.path for leaf in self.leaves], n=3, cutoff=0)
            raise SpecError("no such leaf", path=path, expected=f"e.g. {near}")
        lines = []
        for leaf in chosen:
            lines.append(f"{leaf.path}  {leaf}")
            lines.extend(f"  {line}" for line in self.notes.explain(leaf, self.roles[leaf.path]))
        lines.extend(f"{name}  left out: {self.notes.left_out[name]}" for name in left_out)
        return "\n".join(lines)

    @cached_property
    def index_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each permutation's indices: its size, after those of its ancestors."""
        sizes = self.axis_sizes
        return {name: tuple(sizes[n] for n in [*ancestors(name), name]) for name in self.sizes}

    def sample_permutation(self, key: PRNGKeyArray) -> Permutation:
        """A uniformly random element of the group: indices for each name.

        A nested name has one row of indices for every index of the name it is nested in.
        """
        return _group.sample(self.index_shapes, key)

    def permute(self, params: PyTree, permutation: Mapping[str, Any]) -> PyTree:
        """Act with a group element on weights (eq. 4 and 5), with or without channels.

        Entry `i` of a permuted axis becomes what entry `permutation[name][i]` was. Names
        missing from `permutation` are not permuted.

        Raises:
            SpecError: if the leaves or the permutation do not belong to this space.
        """
        permutation = _group.check(permutation, self.index_shapes, self.fixed)
        pairs = zip(self.layouts, self.flatten(params, channels=None), strict=True)
        return self.unflatten([_group.permute_leaf(x, array, permutation) for x, array in pairs])

    def invert(self, permutation: Mapping[str, Any]) -> Permutation:
        """The inverse of a group element: permuting with both gives back the weights."""
        return _group.invert(_group.check(permutation, self.index_shapes, self.fixed))

    def flip(self, params: PyTree, signs: Mapping[str, Any]) -> PyTree:
        """Multiply all weights of a neuron, incoming and outgoing, by its sign.

        Every axis of a name has its signs, so weights between two names are multiplied twice. This
        changes no outputs if the activations of these neurons are odd, such as sin and tanh, and
        if no array with this axis must keep its sign, as a scale, a variance, or a mask of numbers
        must; `unf.verify(signs=)` checks this. Booleans and unsigned integers stay as they are.

        >>> import jax.numpy as jnp, unf
        >>> params = {"w": jnp.array([[1.0, -2.0]]), "v": jnp.array([[3.0], [4.0]])}
        >>> space = unf.WeightSpace.from_spec({"w": "[x] h", "v": "h [y]"}, params)
        >>> flipped = space.flip(params, {"h": jnp.array([1.0, -1.0])})
        >>> flipped["w"].tolist(), flipped["v"].tolist()
        ([[1.0, 2.0]], [[3.0], [-4.0]])

        Args:
            params: weights, or features with one trailing channel axis.
            signs: for some names, 1 or −1 for each neuron, in the shape that
                `sample_permutation` has.

        Raises:
            SpecError: if the leaves or the signs do not belong to this space.
        """
        checked = _signs.check_signs(signs, self.index_shapes)
        pairs = zip(self.layouts, self.flatten(params, channels=None), strict=True)
        return self.unflatten([_signs.flip_leaf(x, array, checked) for x, array in pairs])

    def orientation(self, params: PyTree, names: Sequence[str]) -> dict[str, Any]:
        """Signs for `flip` that a rule chooses, so that all flipped copies become the same.

        The weights w of a neuron then have a sum of w|w| that is not negative, over the arrays in
        which only its own sign is open: matrices before vectors such as biases, and of these first
        the ones with the fewest permuted axes, such as the weights of inputs and outputs. What
        lies between two layers counts once one of them is oriented. A neuron whose sum is zero
        stays as it is.

        Args:
            params: weights, or features with one trailing channel axis.
            names: permutations whose neurons have odd activations.

        Raises:
            SpecError: if the leaves or the names do not belong to this space, or no array tells
                the sign of a name.
        """
        checked, blocks, arrays = _signs.check_names(names, self.index_shapes), [], []
        for layout, leaf in zip(self.layouts, self.flatten(params, channels=None), strict=True):
            blocks += layout.blocks
            arrays += layout.split(leaf if isinstance(leaf, np.ndarray) else jnp.asarray(leaf))
        return _signs.orientation(blocks, arrays, checked, self.index_shapes)

    def orient(self, params: PyTree, names: Sequence[str]) -> PyTree:
        """The weights with the signs of `orientation`: the same for all flipped copies."""
        return self.flip(params, self.orientation(params, names))

    def flatten(self, tree: PyTree, *, channels: bool | None) -> list[Any]:
        """The leaves of a tree of this space, checked for structure and shape.

        Args:
            tree: weights, or features with one trailing channel axis.
            channels: whether a channel axis is expected; None accepts both, the same everywhere.
        """
        leaves, treedef = jax.tree_util.tree_flatten(tree)
        if treedef != self.treedef:
            fail_structure([leaf.path for leaf in self.leaves], tree)
        if channels is None:
            pairs = zip(self.leaves, leaves, strict=True)
            channels = any(np.ndim(array) > len(leaf.shape) for leaf, array in pairs)
        for leaf, array in zip(self.leaves, leaves, strict=True):
            shape = tuple(np.shape(array))
            if shape[: len(leaf.shape)] == leaf.shape and len(shape) == len(leaf.shape) + channels:
                continue
            raise SpecError(
                "the array has the wrong shape",
                path=leaf.path,
                expected=f"shape {leaf.shape}"
                + (" and a trailing channel axis" if channels else ""),
                got=f"shape {shape}",
                remedy=shape_remedy(leaf.shape, shape, channels),
            )
        return leaves

    def unflatten(self, leaves: list[Any]) -> PyTree:
        """The tree with these leaves."""
        return self.treedef.unflatten(leaves)

    def fold(self, leaves: Sequence[Any]) -> list[Any]:
        """Features as blocks, with the fixed axes folded into the channels."""
        return [
            block.fold(part)
            for layout, leaf in zip(self.layouts, leaves, strict=True)
            for block, part in zip(layout.blocks, layout.split(leaf), strict=True)
        ]

    def unfold(self, blocks: Sequence[Any]) -> list[Any]:
        """The inverse of `fold`."""
        remaining = iter(blocks)
        return [
            layout.join([block.unfold(next(remaining)) for block in layout.blocks])
            for layout in self.layouts
        ]

    def to_json(self) -> str:
        """A description as JSON; `from_json` reads it for trees of dicts, lists and tuples."""
        leaves = [(str(leaf), leaf.shape) for leaf in self.leaves]
        roles = [" ".join(each) for each in self._roles]
        return dump_json(self.treedef, leaves, self.axis_sizes, roles)

    @classmethod
    def from_json(cls, text: str) -> "WeightSpace":
        """The space that `to_json` described."""
        return load_json(text, cls.from_spec)

    __pdoc__ = in_brief
    _repr_html_ = repr_html

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        fixed = ", ".join(f"{name}={self.axis_sizes[name]}" for name in self.fixed)
        leaves = "1 leaf" if len(self.leaves) == 1 else f"{len(self.leaves)} leaves"
        parts = [f"{leaves}, {self.num_weights:,} weights", sizes]
        head = "; ".join(part for part in [*parts, fixed and f"fixed {fixed}"] if part)
        width = max((len(leaf.path) for leaf in self.leaves), default=0)
        rows = [f"  {leaf.path:<{width}}  {leaf}".rstrip() for leaf in self.leaves]
        return "\n".join([f"WeightSpace({head})", *rows])


def _check_rank(axes: tuple[AxisSpec, ...], shape: tuple[int, ...], path: str) -> None:
    if len(axes) != len(shape):
        raise SpecError(
            f"the specification has {len(axes)} axes, the array {len(shape)}",
            path=path,
            expected=f"one axis for each of the dimensions {shape}",
            got=f'"{format_axes(axes)}"',
            remedy="put several names that share one stored axis in parentheses"
            if len(axes) > len(shape)
            else "name every axis, and write [name] where the order matters",
        )


def _check_fixed(leaves: tuple[Leaf, ...]) -> None:
    """A name is fixed everywhere or nowhere."""
    seen: dict[str, tuple[bool, str]] = {}
    for leaf in leaves:
        for name in (n for axis in leaf.axes for n in names_in(axis)):
            fixed, where = seen.setdefault(name.path, (name.fixed, leaf.path))
            if fixed != name.fixed:
                kinds = ("permuted", "fixed")
                raise SpecError(
                    f"{name.path!r} is {kinds[name.fixed]} here and {kinds[fixed]} at {where!r}",
                    path=leaf.path,
                    expected="the same everywhere",
                    remedy=f"write [{name.path}] at every occurrence, or at none",
                )


def check_differs_in_sizes(given: WeightSpace, stored: WeightSpace) -> None:
    """Check that two spaces differ only in the sizes of permuted axes.

    Raises:
        SpecError: naming the first leaf that differs, or the first fixed axis of another size.
    """
    check_is_space(given)
    message = "another network, which differs in more than the sizes of permuted axes"
    remedy = "use a tied layer, which fits any network, or make one for this space"
    for ours, theirs in zip_longest(stored.leaves, given.leaves):
        pair = [leaf and (leaf.path, str(leaf)) for leaf in (ours, theirs)]
        if pair[0] != pair[1]:
            expected, got = (x and f'{x[0]!r} with axes "{x[1]}"' for x in pair)
            path = (ours or theirs).path
            got = got or "no more leaves"
            raise SpecError(message, path=path, expected=expected, got=got, remedy=remedy)
    for name in stored.fixed:
        ours, theirs = stored.axis_sizes[name], given.axis_sizes[name]
        if ours != theirs:
            problem = f"{message}: the fixed axis {name!r}"
            raise SpecError(problem, expected=f"size {ours}", got=f"size {theirs}", remedy=remedy)


def check_is_space(x: Any) -> None:
    """Raise a `SpecError` that says how to make a weight space if `x` is something else."""
    if not isinstance(x, WeightSpace):
        raise SpecError(
            "not a weight space",
            expected="a WeightSpace, before any numbers of channels",
            got=f"a {type(x).__name__}: {shown(x)}",
            remedy="make one with unf.infer(fn, params, *inputs) or "
            "unf.WeightSpace.from_spec(spec, params)",
        )
