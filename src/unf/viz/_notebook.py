"""What notebooks show: pictures and tables as HTML."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import equinox as eqx
import jax

from ..basis import CostReport, Plan, Term
from ..nn import UNFLinear
from ..spec import WeightSpace
from ._coefficients import draw_coefficients
from ._diagrams import draw_space, draw_terms

_CARD = "color-scheme:light dark;background:Canvas;color:CanvasText;overflow-x:auto;padding:4px"
_MOST_LEAVES = 64
"""Layers on more leaves are not drawn: nobody could see the cells."""


def to_html(x: object) -> str:
    """HTML for a weight space, a term, a plan, a layer, a model or a cost report.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(x, WeightSpace):
        return _card(draw_space(x))
    if isinstance(x, Term):
        return _card(draw_terms([x]))
    if isinstance(x, Plan):
        return _card(escape(repr(x)), "<br>", draw_terms(x, most=24))
    if isinstance(x, CostReport):
        header, *body = x.cells()
        return _card(_table(header, body), x.note())
    if isinstance(x, UNFLinear):
        leaves = max(len(s.leaves) for s in (x.plan.in_space, x.plan.out_space))
        drawn = draw_coefficients(x) if leaves <= _MOST_LEAVES else ""
        return _card(escape(repr(x)), "<br>", drawn)
    if isinstance(x, eqx.Module):
        rows = [(name, kind, f"{count:,}") for name, kind, count in _parts(x, "")]
        header = (type(x).__name__, "", "parameters")
        return _card(_table(header, [*rows, ("total", "", f"{_count(x):,}")], texts=2))
    raise TypeError(f"unf.viz cannot draw a {type(x).__name__}")


def _card(*parts: str) -> str:
    """A frame that is legible in any theme."""
    return f'<div style="{_CARD}">{"".join(parts)}</div>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """A table; the first columns are text, the others numbers, aligned to the right."""
    cell = '<t{} style="text-align:{};padding:2px 8px">{}</t{}>'

    def line(kind: str, cells: Sequence[str]) -> str:
        sides = ["left"] * texts + ["right"] * (len(cells) - texts)
        made = [cell.format(kind, s, escape(c), kind) for s, c in zip(sides, cells, strict=True)]
        return f"<tr>{''.join(made)}</tr>"

    return f"<table>{line('h', header)}{''.join(line('d', row) for row in rows)}</table>"


def _parts(model: Any, path: str) -> list[tuple[str, str, int]]:
    """The name, description and number of parameters of each part of a model, layers apart."""
    found = []
    for name, value in vars(model).items():
        values = value if isinstance(value, tuple) else (value,)
        for i, part in enumerate(values):
            place = f"{path}{name}[{i}]" if isinstance(value, tuple) else f"{path}{name}"
            if not isinstance(part, eqx.Module) or not _count(part):
                continue
            if hasattr(part, "layers") and not isinstance(part, eqx.nn.MLP):
                found += _parts(part, f"{place}.")
            else:
                found.append((place, _describe(part), _count(part)))
    return found


def _describe(part: Any) -> str:
    if isinstance(part, eqx.nn.MLP):
        return f"MLP({part.in_size} -> {part.out_size}, width {part.width_size})"
    text = repr(part).partition("\n")[0]
    return text if text.endswith(")") else type(part).__name__


def _count(x: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(x, eqx.is_array)))
