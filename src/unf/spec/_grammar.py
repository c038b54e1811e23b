"""The grammar of axes: how a leaf's specification is parsed and printed.

    leaf    := item*
    item    := NAME | INTEGER | "[" item+ "]" | "(" sum ")" | NAME "{" options "}"
    sum     := product ("+" product)*
    options := product ("|" product)*
    product := item+
    NAME    := identifier ("." identifier)*  |  "#" integer

Square brackets mark fixed axes; a dot nests a name in another; braces give an axis for each index
of a fixed axis; `#0` is how the integer name 0 of the tuple form is printed.
"""

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ._errors import MOST_ELEMENTS, SpecError, shown


@dataclass(frozen=True)
class Name:
    """A named axis: permuted by the permutation of that name, or fixed."""

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

    factors: tuple["AxisSpec", ...]

    def __str__(self) -> str:
        return f"({format_axes(self.factors)})"


@dataclass(frozen=True)
class Concat:
    """One stored axis that is the concatenation of its parts."""

    parts: tuple["AxisSpec", ...]

    def __str__(self) -> str:
        return f"({' + '.join(str(part) for part in self.parts)})"


@dataclass(frozen=True)
class ByIndex:
    """One stored axis that is another at each index of a fixed axis of the same leaf."""

    index: str
    options: tuple["AxisSpec", ...]

    def __str__(self) -> str:
        return f"{self.index}{{{' | '.join(str(option) for option in self.options)}}}"


AxisSpec = Name | Number | Product | Concat | ByIndex
"""What a specification says about one stored axis."""

_MOST_NESTED = 32
"""Levels of brackets, and dots in a name: far more than people write."""
_IDENTIFIER = r"(?:[A-Za-z_]\w*|\#-?\d+)"
_NAME = re.compile(rf"{_IDENTIFIER}(?:\.{_IDENTIFIER}){{0,{_MOST_NESTED}}}", re.ASCII)
_TOKEN = re.compile(rf"\s*(?:({_NAME.pattern}(?!\.))|(\d+(?![\w.]))|([()\[\]{{}}+|]))", re.ASCII)


def format_axes(axes: tuple[AxisSpec, ...]) -> str:
    """Print axes so that `parse_leaf` reads them back; consecutive fixed axes share brackets."""
    words: list[str] = []
    run: list[AxisSpec] = []

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


def _bare(axis: AxisSpec) -> str:
    return axis.path if isinstance(axis, Name) else str(axis)


def parse_leaf(spec: Any, path: str | None = None) -> tuple[AxisSpec, ...]:
    """Parse one leaf's specification: a string, or a tuple with one entry per stored axis.

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


def parse_name(name: Any, path: str | None = None) -> str:
    """Normalize the name of a permutation: integers become `#i`."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    try:
        number: Any = None if isinstance(name, str | bool) else operator.index(name)
    except TypeError:  # arrays have __index__ too
        number = None
    if number is not None and abs(number) <= MOST_ELEMENTS:
        return f"#{number}"
    raise SpecError(
        "not the name of an axis",
        path=path,
        expected="an identifier such as 'hidden', a nested one such as 'head.key', or an integer",
        got=shown(name),
    )


def _parse_entry(entry: Any, spec: tuple | list, path: str | None) -> AxisSpec:
    if not isinstance(entry, str):
        return Name(parse_name(entry, path))
    axes = _Parser(entry, path).leaf()
    if len(axes) == 1:
        return axes[0]
    raise SpecError(
        f"each entry of a tuple describes one stored axis, but {entry!r} describes {len(axes)}",
        path=path,
        got=shown(spec),
        remedy="write the whole leaf as one string, or put a product in parentheses",
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
                self._fail(f"unexpected {self.text[start]!r}", start)
            yield match.group().strip(), match.start(match.lastindex or 0)
            position = match.end()

    def _fail(self, problem: str, position: int | None = None) -> NoReturn:
        if position is None:
            more = self.next < len(self.tokens)
            position = self.tokens[self.next][1] if more else len(self.text)
        raise SpecError(
            f"cannot parse the specification: {problem}",
            path=self.path,
            expected='axes such as "a b", "(a b)", "(a + b)", "[a] 3", "h h.k" or "[l] l{a | b}"',
            got=f"{self.text}\n{' ' * (position + 7)}^",
        )

    def _peek(self) -> str | None:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else None

    def leaf(self) -> tuple[AxisSpec, ...]:
        axes = self._items(fixed=False)
        if self._peek() is not None:
            self._fail(f"unexpected {self._peek()!r}")
        return axes

    def _items(self, fixed: bool) -> tuple[AxisSpec, ...]:
        axes: list[AxisSpec] = []
        while (token := self._peek()) is not None and token not in ")]}+|":
            self.next += 1
            if token == "[":
                axes.extend(self._closed(lambda: self._items(fixed=True), "]"))
            elif token == "(":
                axes.append(self._closed(lambda: self._sum(fixed), ")"))
            elif token == "{":
                self.next -= 1
                self._fail("no name before the braces")
            elif token.isdecimal():
                axes.append(Number(self._number(token)))
            elif self._peek() == "{":
                self.next += 1
                options = self._closed(lambda: self._separated("|", fixed), "}")
                if any(True for option in options for _ in braces_in(option)):
                    self._fail("braces inside braces")
                axes.append(ByIndex(token, options))
            else:
                axes.append(Name(token, fixed))
        return tuple(axes)

    def _number(self, token: str) -> int:
        size = int(token) if len(token) < len(str(MOST_ELEMENTS)) else None
        if not size:
            self.next -= 1
            problem = "needs at least one element" if size == 0 else "cannot be that long"
            self._fail(f"a fixed axis {problem}")
        return size

    def _closed(self, inside: Callable[[], Any], bracket: str) -> Any:
        """Parse with `inside`, which must find something, up to the closing `bracket`."""
        self.depth += 1
        if self.depth > _MOST_NESTED:
            self._fail(f"brackets are nested more than {_MOST_NESTED} deep")
        content = inside()
        self.depth -= 1
        if content == ():
            self._fail("nothing between the brackets")
        if self._peek() != bracket:
            self._fail(f"{bracket!r} is missing")
        self.next += 1
        return content

    def _sum(self, fixed: bool) -> Any:
        parts = self._separated("+", fixed)
        return parts and _flat(Concat, parts)

    def _separated(self, sign: str, fixed: bool) -> tuple[AxisSpec, ...]:
        """Products with a sign between them; none at all is for the caller to judge."""
        parts = [self._items(fixed)]
        while self._peek() == sign:
            self.next += 1
            parts.append(self._items(fixed))
        if parts == [()]:
            return ()
        if () in parts:
            kinds = {"+": "a part of the concatenation", "|": "an axis between the braces"}
            self._fail(f"{kinds[sign]} is empty")
        return tuple(_flat(Product, part) for part in parts)


def _flat(kind: type[Product] | type[Concat], items: Sequence[AxisSpec]) -> AxisSpec:
    """A product or concatenation, with inner ones of the same kind flattened."""
    flat: list[AxisSpec] = []
    for item in items:
        flat.extend(children(item) if isinstance(item, kind) else (item,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def children(axis: AxisSpec) -> tuple[AxisSpec, ...]:
    """The factors, parts or options of an axis; empty for a name or a number."""
    if isinstance(axis, Product):
        return axis.factors
    if isinstance(axis, Concat):
        return axis.parts
    return axis.options if isinstance(axis, ByIndex) else ()


def names_in(axis: AxisSpec) -> Iterator[Name]:
    """Every occurrence of a name in an axis, from left to right."""
    if isinstance(axis, Name):
        yield axis
    for child in children(axis):
        yield from names_in(child)


def map_atoms(axis: AxisSpec, change: Callable[[Name | Number], AxisSpec]) -> AxisSpec:
    """The axis with `change` applied to each name and number in it."""
    changed = tuple(map_atoms(child, change) for child in children(axis))
    if isinstance(axis, Product | Concat):
        return type(axis)(changed)
    if isinstance(axis, ByIndex):
        index = change(Name(axis.index, fixed=True))
        return ByIndex(index.path if isinstance(index, Name) else axis.index, changed)
    return change(axis)


def braces_in(axis: AxisSpec) -> Iterator[ByIndex]:
    """Everything in an axis that differs between the indices of a fixed axis."""
    if isinstance(axis, ByIndex):
        yield axis
    for child in children(axis):
        yield from braces_in(child)


def ancestors(name: str) -> list[str]:
    """The names that a name is nested in, outermost first."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def base_name(name: str) -> str:
    """A block's name as the specification spells it: `layer.m` for `layer[2].m`."""
    return re.sub(r"\[\d+\]", "", name)


def fixed_indices(name: str) -> tuple[int | slice, ...]:
    """Where a block's name is nested: an index of each fixed ancestor, a slice for the others.

    >>> fixed_indices("h.layer[2].m")
    (slice(None, None, None), 2)
    """
    parts = [re.fullmatch(r".*\[(\d+)\]", part) for part in name.split(".")[:-1]]
    return tuple(slice(None) if part is None else int(part[1]) for part in parts)
