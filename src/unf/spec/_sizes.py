"""Solving for the size of every name from the shapes of the arrays."""

from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import prod
from operator import index
from typing import Any, NoReturn

from ._errors import MOST_ELEMENTS, SpecError, shown
from ._grammar import (
    AxisSpec,
    ByIndex,
    Concat,
    Name,
    Number,
    Product,
    braces_in,
    children,
    names_in,
    parse_name,
)


def axis_size(axis: AxisSpec, sizes: Mapping[str, int]) -> int:
    """The number of elements of an axis, given the size of every name."""
    if isinstance(axis, Number):
        return axis.size
    if isinstance(axis, Name):
        return sizes[axis.path]
    if isinstance(axis, ByIndex):  # all have the same size
        return axis_size(axis.options[0], sizes)
    of_children = [axis_size(child, sizes) for child in children(axis)]
    return prod(of_children) if isinstance(axis, Product) else sum(of_children)


@dataclass(frozen=True)
class _Equation:
    """One stored axis of one leaf: `axis` has `size` elements."""

    axis: AxisSpec
    size: int
    path: str
    position: int

    def unknowns(self, sizes: Mapping[str, int]) -> set[str]:
        return {name.path for name in names_in(self.axis) if name.path not in sizes}

    def where(self) -> str:
        return f"axis {self.position} of {self.path!r}"


def solve_sizes(
    leaves: Sequence[tuple[str, tuple[AxisSpec, ...], tuple[int, ...]]],
    given: Mapping[Any, Any],
) -> dict[str, int]:
    """The size of every name, in order of first appearance.

    Each stored axis is an equation. With one unknown name, its length increases with that
    name's size, so bisection finds the size; solving one equation may leave another with a
    single unknown, and so on. `given` are sizes that the shapes need not determine.
    """
    equations = [
        _Equation(plain, size, path, position)
        for path, axes, shape in leaves
        for position, (axis, size) in enumerate(zip(axes, shape, strict=True))
        for plain in _without_braces(axis)
    ]
    order = list(dict.fromkeys(name.path for e in equations for name in names_in(e.axis)))
    sizes = _check_given(given, order)
    source = dict.fromkeys(sizes, "sizes=")
    # Plain axes first: their sizes are what the user meant, so that a wrong product or
    # concatenation is the one reported.
    pending = sorted(equations, key=lambda e: not isinstance(e.axis, Name))
    unknowns = [equation.unknowns(sizes) for equation in pending]
    uses: dict[str, list[int]] = defaultdict(list)
    for i, names in enumerate(unknowns):
        for name in names:
            uses[name].append(i)
    ready = [i for i, names in enumerate(unknowns) if len(names) <= 1]
    solved: set[int] = set()
    while ready:
        i = heappop(ready)
        if i in solved:
            continue
        solved.add(i)
        for name in list(unknowns[i]):
            sizes[name] = _solve_one(pending[i], name, sizes)
            source[name] = pending[i].where()
            for other in uses[name]:
                unknowns[other].discard(name)
                if len(unknowns[other]) == 1:
                    heappush(ready, other)
        _check(pending[i], sizes, source)
    if len(solved) < len(pending):
        _fail_undetermined([e for i, e in enumerate(pending) if i not in solved], sizes)
    return {name: sizes[name] for name in order}


def _without_braces(axis: AxisSpec) -> Iterator[AxisSpec]:
    """The axis with each of the options between braces, all of which have the stored length."""

    def choose(axis: AxisSpec, i: int) -> AxisSpec:
        if isinstance(axis, ByIndex):
            return axis.options[min(i, len(axis.options) - 1)]
        if isinstance(axis, Product | Concat):
            return type(axis)(tuple(choose(child, i) for child in children(axis)))
        return axis

    most = max((len(found.options) for found in braces_in(axis)), default=0)
    yield from (choose(axis, i) for i in range(most)) if most else (axis,)


def _solve_one(equation: _Equation, name: str, sizes: dict[str, int]) -> int:
    """The smallest size of `name` with which the axis has at least its stored length."""
    low, high = 1, equation.size
    while low < high:
        middle = (low + high) // 2
        if axis_size(equation.axis, ChainMap({name: middle}, sizes)) < equation.size:
            low = middle + 1
        else:
            high = middle
    return low


def _check(equation: _Equation, sizes: Mapping[str, int], source: Mapping[str, str]) -> None:
    expected = axis_size(equation.axis, sizes)
    if expected == equation.size:
        return
    names = list(dict.fromkeys(name.path for name in names_in(equation.axis)))
    known = ", ".join(f"{n} = {sizes[n]} from {source[n]}" for n in names)
    here = [n for n in names if source[n] == equation.where()]
    problem = f'axis {equation.position}, "{equation.axis}", does not fit its array'
    if here:
        problem += f": no size of {here[0]!r} makes it {equation.size} long"
    raise SpecError(
        problem,
        path=equation.path,
        expected=f"{expected} elements" + (f" ({known})" if known and not here else ""),
        got=f"{equation.size} elements",
        remedy="use different names for axes that do not permute together, or correct the array",
    )


def _check_given(given: Mapping[Any, Any], order: list[str]) -> dict[str, int]:
    known = set(order)
    for name in map(parse_name, given):
        if name not in known:
            raise SpecError(
                f"sizes= names {name!r}, which no leaf uses",
                expected=f"some of {order}",
                got=repr(name),
            )
    return check_sizes({parse_name(name): size for name, size in given.items()})


def check_sizes(sizes: Mapping[str, Any]) -> dict[str, int]:
    """Sizes as integers.

    Raises:
        SpecError: naming the first that is not a positive integer.
    """
    checked = {}
    for name, size in sizes.items():
        try:
            checked[name] = index(size)
        except TypeError:
            checked[name] = 0
        if not 1 <= checked[name] <= MOST_ELEMENTS:
            raise SpecError(
                f"sizes= gives {name!r} the size {shown(size)}", expected="a positive integer"
            )
    return checked


def _fail_undetermined(pending: list[_Equation], sizes: Mapping[str, int]) -> NoReturn:
    equation = min(pending, key=lambda e: len(e.unknowns(sizes)))
    unknowns = sorted(equation.unknowns(sizes))
    raise SpecError(
        f'the sizes in axis {equation.position}, "{equation.axis}", are not determined',
        path=equation.path,
        expected=f"the sizes of all but one of {unknowns}",
        got=f"only that together they make {equation.size} elements",
        remedy=f"pass sizes={{{unknowns[0]!r}: ...}}",
    )
