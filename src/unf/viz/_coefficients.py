"""The coefficients of a layer as a heat map: which tensor influences which, and how much."""

from html import escape

import numpy as np
from jaxtyping import Float

from ..basis import Term, terms
from ..nn import UNFLinear
from ._svg import CHARACTER, GRAY, MARGIN, Number, document, slanted_height, text

_CELL, _BAR, _LOWEST_BAR = 22, 12, 66
_SHADES = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""From small to large, evenly spaced in lightness."""


def draw_coefficients(layer: UNFLinear, *, strongest: int = 8) -> str:
    """The size of a layer's coefficients between leaves, as an SVG heat map with a color bar.

    There is a column for each input leaf and a row for each output leaf. The color is the
    root mean square of all coefficients between the two. Below, the terms whose own
    coefficients have the largest root mean squares.

    Args:
        layer: the layer, trained or not.
        strongest: how many terms to list below.

    >>> import jax, unf
    >>> space = unf.WeightSpace.from_spec("a b", jax.ShapeDtypeStruct((8, 32), "float32"))
    >>> layer = UNFLinear(space, 1, 1, key=jax.random.key(0))
    >>> draw_coefficients(layer).count("E[a,b] =")
    4
    """
    ranked = _rank_terms(layer)
    values = _between_leaves(layer, ranked)
    sources = [leaf.path for leaf in layer.plan.in_space.leaves]
    targets = [leaf.path for leaf in layer.plan.out_space.leaves]
    left = MARGIN + CHARACTER * max(map(len, targets), default=0) + 10
    top = MARGIN + slanted_height(sources) + 10
    right = left + _CELL * len(sources)
    largest = float(values[np.isfinite(values)].max(initial=0.0))
    parts = []
    for i, source in enumerate(sources):
        parts.append(text(left + _CELL * (i + 0.5), top - 6, source, slanted=True))
    for row, target in enumerate(targets):
        y = top + _CELL * row
        parts.append(text(left - 6, y + 15, target, text_anchor="end"))
        parts += [
            f'<rect class="cell" x="{left + _CELL * i:.1f}" y="{y:.1f}" width="{_CELL - 1}" '
            f'height="{_CELL - 1}" rx="3" fill="{_shade(values[row, i], largest)}">'
            f"<title>{escape(f'{target} from {source}: {values[row, i]:.4g}')}</title></rect>"
            for i, source in enumerate(sources)
        ]
    height = max(_CELL * len(targets), _LOWEST_BAR)
    parts += _color_bar(right + 16, top, height, largest)
    lines = ["color: root mean square of all coefficients between two tensors"]
    lines += ["terms with the largest root mean square of their own coefficients:"] * bool(ranked)
    lines += [f"{size:.3f}  {term}" for term, size in ranked[:strongest]]
    y = top + height + 26
    parts += [text(MARGIN, y + 16 * i, line) for i, line in enumerate(lines)]
    widths = [right + 16 + _BAR + 70, right + slanted_height(sources)]
    widths += [MARGIN + CHARACTER * len(line) for line in lines]
    bottom = y + 16 * len(lines)
    return document(max(widths) + MARGIN, bottom, "root mean square of coefficients", parts)


def _rank_terms(layer: UNFLinear) -> list[tuple[Term, float]]:
    """Every term with the root mean square of its coefficients, largest first."""
    matrices = {name: np.asarray(x, np.float64) for name, x in layer.coefficients.items()}
    found = []
    for term in terms(layer.plan):
        part = matrices[term.core][term.slices(layer.in_channels, layer.out_channels)]
        found.append((term, float(np.sqrt(np.mean(part**2)))))
    return sorted(found, key=lambda pair: -pair[1])


def _between_leaves(
    layer: UNFLinear, ranked: list[tuple[Term, float]]
) -> Float[np.ndarray, "targets sources"]:
    """From each input leaf to each output leaf, the root mean square of all coefficients."""
    rows = {leaf.path: i for i, leaf in enumerate(layer.plan.out_space.leaves)}
    columns = {leaf.path: i for i, leaf in enumerate(layer.plan.in_space.leaves)}
    squares, counts = np.zeros((2, len(rows), len(columns)))
    for term, size in ranked:
        at = rows[term.target], columns[term.source]
        squares[at] += size**2 * term.rows * term.columns
        counts[at] += term.rows * term.columns
    return np.sqrt(squares / np.maximum(counts, 1))


def _color_bar(x: Number, y: Number, height: Number, largest: Number) -> list[str]:
    """The scale of colors, from 0 at the bottom to `largest` at the top."""
    steps = 32
    step = height / steps
    parts = [
        f'<rect x="{x:.1f}" y="{y + height - step * (i + 1):.2f}" width="{_BAR}" '
        f'height="{step + 0.5:.2f}" fill="{_shade((i + 0.5) / steps, 1.0)}"/>'
        for i in range(steps)
    ]
    for share in (0.0, 0.5, 1.0):
        at = y + height * (1 - share)
        parts.append(
            f'<path d="M{x + _BAR:.1f} {at:.1f}h4" stroke="{GRAY}"/>'
            + text(x + _BAR + 7, at + 4, f"{share * largest:.3g}")
        )
    return parts


def _shade(value: float, largest: float) -> str:
    """The color of a value, interpolated between the neighbors on the scale."""
    if not np.isfinite(value) or largest <= 0:
        return GRAY
    at = value / largest * (len(_SHADES) - 1)
    low = min(int(at), len(_SHADES) - 2)
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in _SHADES[low : low + 2]]
    mixed = [round(a + (at - low) * (b - a)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)
