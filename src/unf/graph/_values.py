"""Abstract values: what is known of the axes of every array in a computation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ._terms import Axis, Reason, Term, Uniform, atoms, axis, has_family, resolve
from ._unification import collapse, split, unify

_SPLIT = Reason("split by a reshape")


@dataclass(frozen=True)
class Segment:
    """Consecutive dimensions that share one term: a reshape splits an axis only when needed."""

    term: Term
    sizes: tuple[int, ...]
    reason: Reason = _SPLIT

    def axes(self) -> list[Term]:
        """One term per dimension."""
        terms, rest = [], self.term
        for i, size in enumerate(self.sizes[:-1]):
            first, rest = split(rest, size, self.reason)
            assert rest.size == prod(self.sizes[i + 1 :])
            terms.append(first)
        return [*terms, rest]


class Value:
    """An array whose entries depend on parameters or inputs.

    Attributes:
        segments: its dimensions.
        is_parameter: whether it is a parameter, at most transposed or mapped element by element.
        sources: the parameters it depends on, as bits.
    """

    sources = 0

    def __init__(self, segments: Sequence[Segment], is_parameter: bool = False):
        self.segments = tuple(segments)
        self.is_parameter = is_parameter

    @classmethod
    def of(cls, axes: Sequence[Term], is_parameter: bool = False) -> "Value":
        """A value with one term per dimension."""
        return cls([Segment(term, (term.size,)) for term in axes], is_parameter)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(size for segment in self.segments for size in segment.sizes)

    @property
    def ndim(self) -> int:
        """Its number of dimensions."""
        return len(self.shape)

    @property
    def axes(self) -> list[Term]:
        """One resolved term per dimension; splits what a reshape left unsplit."""
        return [resolve(term) for segment in self.segments for term in segment.axes()]

    @property
    def terms(self) -> list[Term]:
        """The terms it is made of, unsplit."""
        return [segment.term for segment in self.segments]

    @property
    def known(self) -> np.ndarray | None:
        """Its entries, if they can be computed now."""
        return None


class Constant(Value):
    """An array that depends on neither parameters nor inputs, computed when its entries matter.

    Args:
        shape: its shape.
        describe: its axes without knowing its entries.
        compute: its entries.
    """

    LIMIT = 2**20

    def __init__(
        self,
        shape: Sequence[int],
        describe: Callable[[], Sequence[Term]],
        compute: Callable[[], Any],
    ):
        self._shape = tuple(shape)
        self._describe, self._compute = describe, compute
        self._entries: Any = None
        self._segments: tuple[Segment, ...] | None = None
        self.is_parameter = False

    @classmethod
    def of_entries(cls, entries: Any) -> "Constant":
        """A constant that is known already."""
        shape = np.shape(entries)
        return cls(shape, lambda: [axis(n, fixed=CONSTANT) for n in shape], lambda: entries)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._shape

    @property
    def segments(self) -> tuple[Segment, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Its dimensions, free where the entries show it."""
        if self._segments is None:
            axes = list(self._describe())
            if not all(isinstance(resolve(term), Uniform) for term in axes):
                entries = self.known
                axes = axes if entries is None else axes_of_entries(entries)
            self._segments = tuple(Segment(term, (term.size,)) for term in axes)
        return self._segments

    @property
    def known(self) -> np.ndarray | None:
        """Its entries, if they can be computed and are not too many."""
        if prod(self._shape) > self.LIMIT:
            return None
        try:
            entries = self.raw()
        except Exception:  # whatever an operation may need to run: not knowing is always right
            return None
        return entries if isinstance(entries, np.ndarray) else None

    def raw(self) -> Any:
        """Its entries as computed: a NumPy array, or something else such as a random key."""
        if self._entries is None:
            self._entries = self._compute()
            if not isinstance(self._entries, np.ndarray) and _is_plain(self._entries):
                self._entries = np.asarray(self._entries)
        return self._entries


def _is_plain(entries: Any) -> bool:
    dtype = getattr(entries, "dtype", None)
    return dtype is None or isinstance(dtype, np.dtype)


CONSTANT = Reason("met by a constant whose entries differ along it")


def axes_of_entries(entries: np.ndarray) -> list[Term]:
    """The axes of a constant: uniform, one name for a multiple of the identity, else fixed."""
    axes: list[Term] = []
    if not entries.size:
        return [Uniform(size) for size in entries.shape]
    for i, size in enumerate(entries.shape):
        first = np.take(entries, [0], axis=i)
        uniform = size == 1 or _equal(entries, np.broadcast_to(first, entries.shape))
        axes.append(Uniform(size) if uniform else Axis(size, fixed=CONSTANT))
    varying = [i for i, term in enumerate(axes) if isinstance(term, Axis)]
    if len(varying) == 2 and _is_scaled_identity(entries, *varying):
        axes[varying[0]] = axes[varying[1]] = Axis(entries.shape[varying[0]])
    return axes


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays are equal bit by bit: zeros have a sign, and NaN equals itself."""
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def _is_scaled_identity(entries: np.ndarray, i: int, j: int) -> bool:
    """Whether entries are `a δ_ij + b` along two axes, constant along all others."""
    n = entries.shape[i]
    if entries.shape[j] != n:
        return False
    index = [slice(None) if k in (i, j) else 0 for k in range(entries.ndim)]
    matrix = entries[tuple(index)]
    expected = np.full((n, n), matrix[0, 1], matrix.dtype)
    np.fill_diagonal(expected, matrix[0, 0])
    return _equal(matrix, expected)


def settle(x: Value, reason: Reason) -> Value:
    """The value with stacked layers made one, and its axes no longer free to become such.

    What every operation is given that does not know of layers.
    """
    if isinstance(x, Constant):
        return x
    for term in x.terms:
        for atom in atoms(term):
            atom.touched = True
    if any(has_family(term) for term in x.terms):
        return Value.of([collapse(term, reason) for term in x.axes])
    return x


def unify_axes(values: Sequence[Value], reason: Reason) -> list[Term]:
    """The axes of an element-wise combination; scalars and axes of size one broadcast."""
    values = [value for value in values if value.ndim]
    if not values:
        return []
    joined = list(values[0].axes)
    for value in values[1:]:
        for i, term in enumerate(value.axes):
            joined[i] = _meet(joined[i], term, reason)
    return [resolve(term) for term in joined]


def _meet(a: Term, b: Term, reason: Reason) -> Term:
    if a.size == b.size:
        return unify(a, b, reason)
    wide, narrow = (a, b) if a.size > b.size else (b, a)
    assert narrow.size == 1
    return wide
