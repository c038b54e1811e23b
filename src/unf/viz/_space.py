"""A weight space as a picture: tensors are boxes, permutations are colored lines."""

from collections import Counter

from ..spec import WeightSpace
from ..spec._grammar import names_in
from ._svg import CHARACTER, GRAY, MARGIN, circle, color_of, document, slanted_height, text

_ROW, _COLUMN = 26, 28


def draw_space(space: WeightSpace) -> str:
    """The specification as an SVG document.

    Each tensor is a row. Each permutation is a vertical line from the first to the last
    tensor that it acts on, with a dot for each axis: two for a recurrent weight. A residual
    stream is the long line through nearly all of them. Fixed axes are gray and dashed.

    >>> import jax
    >>> w = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> svg = draw_space(WeightSpace.from_spec({"w": "h h"}, {"w": w}))
    >>> svg.startswith("<svg"), svg.count("<circle")
    (True, 2)
    """
    uses = [
        Counter(name.path for axis in leaf.axes for name in names_in(axis)) for leaf in space.leaves
    ]
    names = list(dict.fromkeys(name for leaf in uses for name in leaf))
    names.sort(key=space.fixed.__contains__)  # stable: the permuted ones first
    labels = [(leaf.path, "×".join(map(str, leaf.shape)) or "scalar") for leaf in space.leaves]
    box = max((len(path) + len(shape) + 4 for path, shape in labels), default=8) * CHARACTER
    heads = [f"{name} {space.axis_sizes[name]}" for name in names]
    top = MARGIN + slanted_height(heads) + 10
    width = 2 * MARGIN + box + _COLUMN * (len(names) + 0.5) + slanted_height(heads)
    height = top + _ROW * len(labels) + MARGIN
    colors = dict.fromkeys(names, GRAY)
    colors |= color_of(name for name in names if name not in space.fixed)
    column = {name: MARGIN + box + _COLUMN * (i + 0.9) for i, name in enumerate(names)}
    row = [top + _ROW * (i + 0.5) for i in range(len(labels))]
    parts = []
    for name, head in zip(names, heads, strict=True):
        at = [row[i] for i, leaf in enumerate(uses) if name in leaf]
        dash = ' stroke-dasharray="3 4"' if name in space.fixed else ""
        x, color = column[name], colors[name]
        parts.append(
            f'<path d="M{x:.1f} {top - 4:.1f}V{at[-1]:.1f}" stroke="{color}" opacity=".25"{dash}/>'
            f'<path d="M{x:.1f} {at[0]:.1f}V{at[-1]:.1f}" stroke="{color}" stroke-width="3"{dash}/>'
            + text(x, top - 8, head, slanted=True)
        )
    for y, leaf, (path, shape) in zip(row, uses, labels, strict=True):
        end = max((column[name] for name in leaf), default=MARGIN + box)
        parts.append(
            f'<path d="M{MARGIN + box:.1f} {y:.1f}H{end:.1f}" stroke="{GRAY}" opacity=".5"/>'
            f'<rect class="box" x="{MARGIN}" y="{y - 10:.1f}" '
            f'width="{box:.1f}" height="20" rx="5"/>'
            + text(MARGIN + 8, y + 4, path)
            + text(MARGIN + box - 8, y + 4, shape, class_="faint", text_anchor="end")
        )
        for name, times in leaf.items():
            places = [column[name] + (k - (times - 1) / 2) * 9 for k in range(times)]
            parts += [circle(x, y, 5, f'fill="{colors[name]}"') for x in places]
    return document(width, height, "the axes of each tensor, and which permute together", parts)
