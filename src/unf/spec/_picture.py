"""A specification as a picture: tensors are boxes, permutations coloured lines.

Tensors stand below each other; each permutation is a vertical line from the first to the last
tensor that it acts on, with a dot for each of their axes, two for a recurrent weight. A residual
stream is the long line through nearly all of them. Fixed axes are grey and dashed.
"""

from collections import Counter
from html import escape
from typing import TYPE_CHECKING

from ._grammar import names_in

if TYPE_CHECKING:
    from ._space import WeightSpace

_COLORS = ("#d1495b", "#00798c", "#edae49", "#66a182", "#8d6a9f", "#e07a3f", "#4f86c6", "#b5838d")
_GREY = "#8c8c8c"
_ROW, _COLUMN, _CHARACTER, _MARGIN = 26, 28, 7.3, 12
_STYLE = """\
text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}
.box{fill:#f6f8fa;stroke:#8c959f}.shape{fill:#656d76}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.box{fill:#161b22;stroke:#6e7681}
.shape{fill:#9198a1}}"""


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
    box: float = max((len(path) + len(shape) + 4 for path, shape in labels), default=8) * _CHARACTER
    heads = [f"{name} {space.axis_sizes[name]}" for name in names]
    top = _MARGIN + max(map(len, heads), default=0) * _CHARACTER * 0.75 + 10
    slant = max(map(len, heads), default=0) * _CHARACTER * 0.75
    width = 2 * _MARGIN + box + _COLUMN * (len(names) + 0.5) + slant
    height = top + _ROW * len(labels) + _MARGIN
    colors = _colors(space, names)
    column = {name: _MARGIN + box + _COLUMN * (i + 0.9) for i, name in enumerate(names)}
    row = [top + _ROW * (i + 0.5) for i in range(len(labels))]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img"><style>{_STYLE}</style>'
    ]
    for name, head in zip(names, heads, strict=True):
        at = [row[i] for i, leaf in enumerate(uses) if name in leaf]
        dash = ' stroke-dasharray="3 4"' if name in space.fixed else ""
        x, color = column[name], colors[name]
        parts.append(
            f'<path d="M{x:.1f} {top - 4:.1f}V{at[-1]:.1f}" stroke="{color}" opacity=".25"{dash}/>'
            f'<path d="M{x:.1f} {at[0]:.1f}V{at[-1]:.1f}" stroke="{color}" stroke-width="3"{dash}/>'
            f'<text x="{x:.1f}" y="{top - 8:.1f}" transform="rotate(-45 {x:.1f} {top - 8:.1f})">'
            f"{escape(head)}</text>"
        )
    for y, leaf, (path, shape) in zip(row, uses, labels, strict=True):
        end = max((column[name] for name in leaf), default=_MARGIN + box)
        parts.append(
            f'<path d="M{_MARGIN + box:.1f} {y:.1f}H{end:.1f}" stroke="{_GREY}" opacity=".5"/>'
            f'<rect class="box" x="{_MARGIN}" y="{y - 10:.1f}" '
            f'width="{box:.1f}" height="20" rx="5"/>'
            f'<text x="{_MARGIN + 8}" y="{y + 4:.1f}">{escape(path)}</text>'
            f'<text class="shape" x="{_MARGIN + box - 8:.1f}" y="{y + 4:.1f}" '
            f'text-anchor="end">{shape}</text>'
        )
        for name, times in leaf.items():
            spread = [(k - (times - 1) / 2) * 9 for k in range(times)]
            parts += [
                f'<circle cx="{column[name] + dx:.1f}" cy="{y:.1f}" r="5" fill="{colors[name]}"/>'
                for dx in spread
            ]
    return "".join([*parts, "</svg>"])


def _colors(space: "WeightSpace", names: list[str]) -> dict[str, str]:
    permuted = [name for name in names if name not in space.fixed]
    colors = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(permuted)}
    return dict.fromkeys(names, _GREY) | colors
