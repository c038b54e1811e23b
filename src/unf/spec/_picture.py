"""A specification as a picture: tensors are boxes, permutations coloured lines.

Tensors stand below each other; each permutation is a vertical line from the first to the last
tensor that it acts on, with a dot for each of their axes, two for a recurrent weight. A residual
stream is the long line through nearly all of them. Fixed axes are grey and dashed.
"""

from collections import Counter
from typing import TYPE_CHECKING

from .._drawing import CHARACTER, GREY, color_of, document, text
from ._grammar import names_in

if TYPE_CHECKING:
    from ._space import WeightSpace

_ROW, _COLUMN, _MARGIN = 26, 28, 12


def picture(space: "WeightSpace") -> str:
    """The specification as an SVG document, light or dark as its reader prefers.

    >>> import jax
    >>> from unf import WeightSpace
    >>> w = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> svg = picture(WeightSpace.from_spec({"w": "h h"}, {"w": w}))
    >>> svg.startswith("<svg"), svg.count("<circle")
    (True, 2)
    """
    uses = [
        Counter(name.path for axis in leaf.axes for name in names_in(axis)) for leaf in space.leaves
    ]
    names = list(dict.fromkeys(name for leaf in uses for name in leaf))
    names.sort(key=space.fixed.__contains__)  # stable: the permuted ones first
    labels = [(leaf.path, "×".join(map(str, leaf.shape)) or "scalar") for leaf in space.leaves]
    box: float = max((len(path) + len(shape) + 4 for path, shape in labels), default=8) * CHARACTER
    heads = [f"{name} {space.axis_sizes[name]}" for name in names]
    top = _MARGIN + max(map(len, heads), default=0) * CHARACTER * 0.75 + 10
    slant = max(map(len, heads), default=0) * CHARACTER * 0.75
    width = 2 * _MARGIN + box + _COLUMN * (len(names) + 0.5) + slant
    height = top + _ROW * len(labels) + _MARGIN
    colors = dict.fromkeys(names, GREY)
    colors |= color_of(name for name in names if name not in space.fixed)
    column = {name: _MARGIN + box + _COLUMN * (i + 0.9) for i, name in enumerate(names)}
    row = [top + _ROW * (i + 0.5) for i in range(len(labels))]
    parts = []
    for name, head in zip(names, heads, strict=True):
        at = [row[i] for i, leaf in enumerate(uses) if name in leaf]
        dash = ' stroke-dasharray="3 4"' if name in space.fixed else ""
        x, color = column[name], colors[name]
        parts.append(
            f'<path d="M{x:.1f} {top - 4:.1f}V{at[-1]:.1f}" stroke="{color}" opacity=".25"{dash}/>'
            f'<path d="M{x:.1f} {at[0]:.1f}V{at[-1]:.1f}" stroke="{color}" stroke-width="3"{dash}/>'
            + text(x, top - 8, head, transform=f"rotate(-45 {x:.1f} {top - 8:.1f})")
        )
    for y, leaf, (path, shape) in zip(row, uses, labels, strict=True):
        end = max((column[name] for name in leaf), default=_MARGIN + box)
        parts.append(
            f'<path d="M{_MARGIN + box:.1f} {y:.1f}H{end:.1f}" stroke="{GREY}" opacity=".5"/>'
            f'<rect class="box" x="{_MARGIN}" y="{y - 10:.1f}" '
            f'width="{box:.1f}" height="20" rx="5"/>'
            + text(_MARGIN + 8, y + 4, path)
            + text(_MARGIN + box - 8, y + 4, shape, **{"class": "faint"}, text_anchor="end")
        )
        for name, times in leaf.items():
            spread = [(k - (times - 1) / 2) * 9 for k in range(times)]
            parts += [
                f'<circle cx="{column[name] + dx:.1f}" cy="{y:.1f}" r="5" fill="{colors[name]}"/>'
                for dx in spread
            ]
    return document(width, height, "the axes of each tensor, and which permute together", parts)
