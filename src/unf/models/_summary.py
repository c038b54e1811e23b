"""A model in a notebook: its parts, and how many parameters each has."""

from typing import Any

import equinox as eqx
import jax

from .._drawing import card, table


def summary(model: eqx.Module) -> str:
    """HTML: a row for each part that has parameters, layers one by one."""
    rows = [(name, kind, f"{count:,}") for name, kind, count in _parts(model, "")]
    total = f"{_count(model):,}"
    header = (type(model).__name__, "", "parameters")
    return card(table(header, [*rows, ("total", "", total)], texts=2))


def _parts(x: Any, path: str) -> list[tuple[str, str, int]]:
    """Name, description and size of what a model is made of, tuples and `UNF`s opened."""
    found = []
    for name, value in vars(x).items():
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
