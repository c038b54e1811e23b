"""The coefficients of a layer as a heat map: what flows from which tensor to which."""

from html import escape

import numpy as np
from jaxtyping import Float

from .._drawing import CHARACTER, document, text
from ..basis import Term, core_terms
from ._linear import UNFLinear

_CELL, _MARGIN, _SHADES = 22, 12, ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""From weak to strong, evenly spaced in lightness."""


def term_strengths(layer: UNFLinear) -> list[tuple[Term, float]]:
    """Every term with the root mean square of its coefficients, the strongest first.

    >>> import jax, unf
    >>> space = unf.WeightSpace.from_spec("a b", jax.ShapeDtypeStruct((8, 32), "float32"))
    >>> layer = UNFLinear(space, 1, 1, key=jax.random.key(0))
    >>> len(term_strengths(layer))
    4
    """
    found = []
    for core in layer.plan.cores:
        matrix = np.asarray(layer.coefficients[core.name], np.float64)
        for term in core_terms(layer.plan, core):
            rows, columns = term.slices(layer.in_channels, layer.out_channels)
            part = matrix[rows, columns]
            found.append((term, float(np.sqrt(np.mean(part**2))) if part.size else 0.0))
    return sorted(found, key=lambda pair: -pair[1])


def flow(layer: UNFLinear) -> Float[np.ndarray, "targets sources"]:
    """From each input leaf to each output leaf, √(mean λ²) over all coefficients between them."""
    plan = layer.plan
    places = [
        {leaf.path: i for i, leaf in enumerate(space.leaves)}
        for space in (plan.out_space, plan.in_space)
    ]
    squares, counts = np.zeros((2, len(places[0]), len(places[1])))
    for term, strength in term_strengths(layer):
        at = places[0][term.target], places[1][term.source]
        squares[at] += strength**2 * term.rows * term.columns
        counts[at] += term.rows * term.columns
    return np.sqrt(squares / np.maximum(counts, 1))


def picture(layer: UNFLinear, *, strongest: int = 8) -> str:
    """The layer's coefficients between leaves as an SVG heat map, and its strongest terms.

    A column for each input leaf, a row for each output leaf; bright is strong.

    Args:
        layer: the layer, trained or not.
        strongest: how many terms to list below.
    """
    values = flow(layer)
    sources = [leaf.path or "X" for leaf in layer.plan.in_space.leaves]
    targets = [leaf.path or "E" for leaf in layer.plan.out_space.leaves]
    left = _MARGIN + CHARACTER * max(map(len, targets), default=0) + 10
    slant = CHARACTER * 0.75 * max(map(len, sources), default=0)
    top = _MARGIN + slant + 10
    parts = []
    for i, source in enumerate(sources):
        x = left + _CELL * (i + 0.5)
        parts.append(text(x, top - 6, source, transform=f"rotate(-45 {x:.1f} {top - 6:.1f})"))
    largest = float(values.max(initial=0.0))
    for row, target in enumerate(targets):
        y = top + _CELL * row
        parts.append(text(left - 6, y + 15, target, text_anchor="end"))
        parts += [
            f'<rect x="{left + _CELL * i:.1f}" y="{y:.1f}" width="{_CELL - 1}" '
            f'height="{_CELL - 1}" rx="3" fill="{_shade(values[row, i], largest)}">'
            + f"<title>{escape(f'{target} from {source}: {values[row, i]:.4g}')}</title></rect>"
            for i, source in enumerate(sources)
        ]
    y = top + _CELL * len(targets) + 22
    lines = [f"{s:.3f}  {term}" for term, s in term_strengths(layer)[:strongest]]
    heading = [f"brightest: {largest:.3f}; strongest terms:"] if lines else []
    for i, line in enumerate([*heading, *lines]):
        parts.append(text(_MARGIN, y + 16 * i, line))
    right = max([left + _CELL * len(sources) + slant, *(CHARACTER * len(x) + 16 for x in lines)])
    height = y + 16 * (len(lines) + 1)
    return document(right + _MARGIN, height, "root mean square of coefficients", parts)


def _shade(value: float, largest: float) -> str:
    """A colour between two neighbours of the scale."""
    if not np.isfinite(value) or largest <= 0:
        return "#8c8c8c"
    at = value / largest * (len(_SHADES) - 1)
    low = min(int(at), len(_SHADES) - 2)
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in _SHADES[low : low + 2]]
    mixed = [round(a + (at - low) * (b - a)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)
