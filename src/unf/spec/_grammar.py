"""The grammar of axes: how a leaf's specification is read and printed.

    leaf    := item*
    item    := NAME | INTEGER | "[" item+ "]" | "(" sum ")"
    sum     := product ("+" product)*
    product := item+
    NAME    := identifier ("." identifier)*  |  "#" integer

Brackets mark what they hold as fixed; a dot nests a name in another; `#0` is how the
integer name 0 of the tuple form is printed.
"""

import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from ._errors import MOST_ELEMENTS, SpecError, shown


@dataclass(frozen=True)
class Name:
    """An axis whose indices are permuted by the permutation of that name, or fixed."""

    path: str
    fixed: bool = False

    def __str__(self) -> str:
        return format_axes((self,))


@dataclass(frozen=True)
class Number:
    """An anonymous fixed axis."""

    size: int

    def __str__(self) -> str:
        return str(self.size)


@dataclass(frozen=True)
class Product:
    """One stored axis that is the row-major product of its factors."""

    factors: tuple["Axis", ...]

    def __str__(self) -> str:
        return f"({format_axes(self.factors)})"


@dataclass(frozen=True)
class Concat:
    """One stored axis that is the concatenation of its parts."""

    parts: tuple["Axis", ...]

    def __str__(self) -> str:
        return f"({' + '.join(str(part) for part in self.parts)})"


Axis = Name | Number | Product | Concat

_DEEPEST = 32
"""Brackets in brackets, and names in names: far more than people write."""
_IDENTIFIER = r"(?:[A-Za-z_]\w*|\#-?\d+)"
_NAME = re.compile(rf"{_IDENTIFIER}(?:\.{_IDENTIFIER}){{0,{_DEEPEST}}}", re.ASCII)
_TOKEN = re.compile(rf"\s*(?:({_NAME.pattern}(?!\.))|(\d+(?![\w.]))|([()\[\]+]))", re.ASCII)


def format_axes(axes: tuple[Axis, ...]) -> str:
    """Print axes so that `parse_leaf` reads them back; a run of fixed ones shares brackets."""
    words: list[str] = []
    run: list[Axis] = []

    def close_run() -> None:
        if len(run) == 1 and isinstance(run[0], Number):
            words.append(str(run[0].size))
        elif run:
            words.append(f"[{' '.join(_bare(axis) for axis in run)}]")
        run.clear()

    for axis in axes:
        if isinstance(axis, Number) or (isinstance(axis, Name) and axis.fixed):
            run.append(axis)
        else:
            close_run()
            words.append(_bare(axis))
    close_run()
    return " ".join(words)


def _bare(axis: Axis) -> str:
    return axis.path if isinstance(axis, Name) else str(axis)


def parse_leaf(spec: Any, path: str | None = None) -> tuple[Axis, ...]:
    """Read one leaf's specification, a string or a tuple with one entry per stored axis.

    >>> [str(axis) for axis in parse_leaf("[kh kw] (head dim) (a + b)")]
    ['[kh]', '[kw]', '(head dim)', '(a + b)']
    """
    if isinstance(spec, str):
        return _Parser(spec, path).leaf()
    if isinstance(spec, tuple | list):
        return tuple(_parse_entry(entry, spec, path) for entry in spec)
    raise SpecError(
        "a leaf's specification is a string or a tuple of names",
        path=path,
        expected='e.g. "a b" or ("a", "b")',
        got=f"{shown(spec)} ({type(spec).__name__})",
    )


def parse_name(name: str | int) -> str:
    """Normalise a permutation's name as users write it: integers become `#i`."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    number = _integer(name)
    if number is not None:
        return f"#{number}"
    raise SpecError(
        "not a name of an axis",
        expected="an identifier such as 'hidden', a nested one such as 'head.key', or an integer",
        got=shown(name),
    )


def _integer(x: Any) -> int | None:
    """The integer that a name is, if it is one of those people write."""
    try:
        number = None if isinstance(x, bool) else operator.index(x)
    except TypeError:  # arrays have __index__ too
        return None
    return number if number is not None and abs(number) <= MOST_ELEMENTS else None


def _parse_entry(entry: Any, spec: tuple | list, path: str | None) -> Axis:
    if isinstance(entry, str):
        axes = _Parser(entry, path).leaf()
        if len(axes) == 1:
            return axes[0]
        raise SpecError(
            f"each entry of a tuple describes one stored axis, but {entry!r} describes {len(axes)}",
            path=path,
            got=shown(spec),
            remedy="write the whole leaf as one string, or put a product in parentheses",
        )
    number = _integer(entry)
    if number is not None:
        return Name(f"#{number}")
    raise SpecError(
        "an axis is named by a string or an integer",
        path=path,
        expected="str or int",
        got=f"{shown(entry)} in {shown(spec)}",
    )


class _Parser:
    """Recursive descent over the tokens of one string."""

    def __init__(self, text: str, path: str | None):
        self.text, self.path = text, path
        self.tokens = list(self._tokenize())
        self.next = self.depth = 0

    def _tokenize(self) -> Iterator[tuple[str, int]]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                start = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                self._fail(f"{self.text[start]!r} cannot stand here", start)
            start = match.start(match.lastindex or 0)
            yield match.group().strip(), start
            position = match.end()

    def _fail(self, problem: str, position: int) -> NoReturn:
        pointer = f"{self.text}\n{' ' * (position + 7)}^"
        raise SpecError(
            f"cannot read the specification: {problem}",
            path=self.path,
            expected='axes such as "a b", "(a b)", "(a + b)", "[a] 3" or "h h.k"',
            got=pointer,
        )

    def _peek(self) -> str | None:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else None

    def _position(self) -> int:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else len(self.text)

    def leaf(self) -> tuple[Axis, ...]:
        axes = self._items(fixed=False)
        if self._peek() is not None:
            self._fail(f"unexpected {self._peek()!r}", self._position())
        return axes

    def _items(self, fixed: bool) -> tuple[Axis, ...]:
        axes: list[Axis] = []
        while (token := self._peek()) is not None and token not in ")]+":
            self.next += 1
            if token == "[":
                axes.extend(self._closed(lambda: self._items(fixed=True), "]"))
            elif token == "(":
                axes.append(self._closed(lambda: self._sum(fixed), ")"))
            elif token.isdecimal():
                axes.append(Number(self._number(token)))
            else:
                axes.append(Name(token, fixed))
        return tuple(axes)

    def _number(self, token: str) -> int:
        size = int(token) if len(token) < len(str(MOST_ELEMENTS)) else None
        if not size:
            self.next -= 1
            problem = "needs at least one element" if size == 0 else "cannot be that long"
            self._fail(f"a fixed axis {problem}", self._position())
        return size

    def _closed(self, inside, bracket: str):
        """What `inside` reads, which must not be empty, up to the closing `bracket`."""
        self.depth += 1
        if self.depth > _DEEPEST:
            self._fail(f"more than {_DEEPEST} brackets in brackets", self._position())
        content = inside()
        self.depth -= 1
        if content == ():
            self._fail("nothing between the brackets", self._position())
        if self._peek() != bracket:
            self._fail(f"{bracket!r} is missing", self._position())
        self.next += 1
        return content

    def _sum(self, fixed: bool) -> Any:
        parts = [self._product(fixed)]
        while self._peek() == "+":
            self.next += 1
            parts.append(self._product(fixed))
        if () in parts:
            if len(parts) == 1:
                return ()
            self._fail("a part of the concatenation is empty", self._position())
        return concat(parts) if len(parts) > 1 else parts[0]

    def _product(self, fixed: bool) -> Any:
        factors = self._items(fixed)
        return product(factors) if factors else ()


def product(factors: tuple[Axis, ...]) -> Axis:
    """A product axis; products inside it are flattened, one factor stays itself."""
    flat: list[Axis] = []
    for factor in factors:
        flat.extend(factor.factors if isinstance(factor, Product) else (factor,))
    return flat[0] if len(flat) == 1 else Product(tuple(flat))


def concat(parts) -> Axis:
    """A concatenated axis; concatenations inside it are flattened."""
    flat: list[Axis] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Concat) else (part,))
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def names_in(axis: Axis) -> Iterator[Name]:
    """Every occurrence of a name in an axis, from left to right."""
    if isinstance(axis, Name):
        yield axis
    for child in children(axis):
        yield from names_in(child)


def children(axis: Axis) -> tuple[Axis, ...]:
    """The factors or parts of a composite axis; nothing for a name or a number."""
    if isinstance(axis, Product):
        return axis.factors
    return axis.parts if isinstance(axis, Concat) else ()


def rename(axis: Axis, change) -> Axis:
    """The axis with `change` applied to each atom (`Name` or `Number`)."""
    if isinstance(axis, Product):
        return Product(tuple(rename(factor, change) for factor in axis.factors))
    if isinstance(axis, Concat):
        return Concat(tuple(rename(part, change) for part in axis.parts))
    return change(axis)
