"""Weight spaces and terms as diagrams: lines join axes that permute together."""

from collections.abc import Callable, Iterable
from html import escape
from itertools import groupby, islice, pairwise

from ..basis import Plan, Term, terms
from ..basis._terms import Index
from ..spec import Leaf, WeightSpace
from ..spec._grammar import names_in
from ..spec._roles import LeafRoles
from ._svg import CHARACTER, GRAY, MARGIN, Number, circle, color_of, document, slanted_height, text

Colors = Callable[[Term, tuple[Index, ...]], str]
_LEAF_ROW, _COLUMN = 26, 28
_AXIS_ROW, _LEFT, _RIGHT, _ACROSS = 20, 18, 84, 900


def draw_space(space: WeightSpace) -> str:
    """The specification as an SVG document.

    Each tensor is a row. Each permutation is a vertical line from the first to the last
    tensor that it acts on, with a dot for each axis: two for a recurrent weight. A residual
    stream is the long line through nearly all of them. Fixed axes are gray and dashed. Beside
    each tensor are the roles of its axes and its shape.

    >>> import jax
    >>> w = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> svg = draw_space(WeightSpace.from_spec({"w": "h h"}, {"w": w}))
    >>> svg.startswith("<svg"), svg.count("<circle"), "in out, 4×4" in svg
    (True, 2, True)
    """
    uses = [_uses(leaf, space.roles[leaf.path]) for leaf in space.leaves]
    names = list(dict.fromkeys(name for leaf in uses for name in leaf))
    names.sort(key=space.fixed.__contains__)  # stable: the permuted ones first
    labels = [(leaf.path, _label(leaf, space.roles[leaf.path])) for leaf in space.leaves]
    box = max((len(path) + len(label) + 4 for path, label in labels), default=8) * CHARACTER
    heads = [f"{name} {space.axis_sizes[name]}" for name in names]
    top = MARGIN + slanted_height(heads) + 10
    width = 2 * MARGIN + box + _COLUMN * (len(names) + 0.5) + slanted_height(heads)
    height = top + _LEAF_ROW * len(labels) + MARGIN
    colors = dict.fromkeys(names, GRAY)
    colors |= color_of(name for name in names if name not in space.fixed)
    column = {name: MARGIN + box + _COLUMN * (i + 0.9) for i, name in enumerate(names)}
    row = [top + _LEAF_ROW * (i + 0.5) for i in range(len(labels))]
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
    for y, leaf, (path, label) in zip(row, uses, labels, strict=True):
        end = max((column[name] for name in leaf), default=MARGIN + box)
        parts.append(
            f'<path d="M{MARGIN + box:.1f} {y:.1f}H{end:.1f}" stroke="{GRAY}" opacity=".5"/>'
            f'<rect class="box" x="{MARGIN}" y="{y - 10:.1f}" '
            f'width="{box:.1f}" height="20" rx="5"/>'
            + text(MARGIN + 8, y + 4, path)
            + text(MARGIN + box - 8, y + 4, label, class_="faint", text_anchor="end")
        )
        for name, axes in leaf.items():
            for k, words in enumerate(axes):
                x = column[name] + (k - (len(axes) - 1) / 2) * 9
                dot = circle(x, y, 5, f'fill="{colors[name]}"')
                parts.append(f"<g><title>{escape(f'{path} {words}: {name}')}</title>{dot}</g>")
    return document(width, height, "the axes of each tensor, and which permute together", parts)


def _uses(leaf: Leaf, roles: LeafRoles) -> dict[str, list[str]]:
    """For each name in a leaf, the axes in which it occurs and their roles."""
    found: dict[str, list[str]] = {}
    for i, (axis, role) in enumerate(zip(leaf.axes, roles, strict=True)):
        for name in names_in(axis):
            found.setdefault(name.path, []).append(f"axis {i}, {role}")
    return found


def _label(leaf: Leaf, roles: LeafRoles) -> str:
    """`in out, 8×32`: roles, the same ones side by side counted, and sizes."""
    runs = [(role, len(list(run))) for role, run in groupby(roles)]
    words = " ".join(role if count == 1 else f"{count} {role}" for role, count in runs)
    return f"{words}, {'×'.join(map(str, leaf.shape))}" if roles else "scalar"


def draw_terms(what: Plan | Iterable[Term], *, most: int = 60) -> str:
    """Terms as index diagrams, in an SVG document.

    The input's axes are on the left, the output's on the right. A line joins axes that share
    an index. A ring on the left is averaged over, a ring on the right is broadcast to. Colors
    are those of the permutations if a plan is given; else each index has its own.

    Args:
        what: the plan of a layer, or some terms.
        most: draw at most this many, and say how many are left out.

    >>> import jax, unf
    >>> space = unf.WeightSpace.from_spec("a b", jax.ShapeDtypeStruct((8, 32), "float32"))
    >>> draw_terms(unf.basis.make_plan(space)).count("mean_c X[a,c]")
    1
    """
    found = iter(terms(what) if isinstance(what, Plan) else what)
    chosen = sorted(islice(found, most), key=lambda term: (term.target_block, term.source_block))
    left_out = sum(1 for _ in found)
    parts, color, y, width = [], _index_color, MARGIN + 10, 0
    if isinstance(what, Plan):
        parts, color, width = _permutation_colors(what, y)
        y += 16
    for (target, source), group in groupby(chosen, key=lambda term: (term.target, term.source)):
        parts.append(text(MARGIN, y + 10, f"{target} ← {source}"))
        drawn, bottom, right = _section(list(group), y + 18, color)
        parts, y, width = parts + drawn, bottom + 8, max(width, right)
    if left_out:
        parts.append(text(MARGIN, y + 10, f"and {left_out:,} more terms"))
        y += 18
    return document(width + MARGIN, y + MARGIN, "terms as index diagrams", parts)


def _permutation_colors(plan: Plan, y: Number) -> tuple[list[str], Colors, Number]:
    """A legend of the permutations, the color of each group of axes, and the legend's width."""
    blocks = {"i": plan.in_space.blocks, "o": plan.out_space.blocks}
    colors = color_of(
        label.name for side in blocks.values() for block in side for label in block.labels
    )

    def color(term: Term, group: tuple[Index, ...]) -> str:
        side, position = group[0]
        block = term.source_block if side == "i" else term.target_block
        return colors[blocks[side][block].labels[position].name]

    legend, x = [], float(MARGIN)
    for name, shade in colors.items():
        legend += [circle(x + 5, y - 4, 5, f'fill="{shade}"'), text(x + 14, y, name)]
        x += 30 + CHARACTER * len(name)
    return legend, color, x


def _index_color(term: Term, group: tuple[Index, ...]) -> str:
    return color_of(map(str, term.partition))[str(group)]


def _section(terms: list[Term], top: Number, color: Colors) -> tuple[list[str], Number, Number]:
    """Diagrams side by side in rows, and where they end: below and to the right."""
    cell = max(_RIGHT + 30, *(CHARACTER * len(term.formula) + 24 for term in terms))
    positions = [position for t in terms for group in t.partition for _, position in group]
    height, per_row = _AXIS_ROW * (max(positions, default=0) + 1) + 34, max(1, int(_ACROSS // cell))
    parts = []
    for i, term in enumerate(terms):
        x, y = MARGIN + cell * (i % per_row), top + height * (i // per_row)
        parts += _diagram(term, x, y, cell, height, color)
    rows = -(-len(terms) // per_row)
    return parts, top + height * rows, MARGIN + cell * min(len(terms), per_row)


def _diagram(
    term: Term, x: Number, y: Number, cell: Number, height: Number, color: Colors
) -> list[str]:
    parts = [
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{cell - 8:.1f}" '
        f'height="{height - 8:.1f}" rx="5"/>',
        text(x + 8, y + height - 15, term.formula),
    ]
    for group in term.partition:
        shade = color(term, group)
        points = [(x + (_LEFT if s == "i" else _RIGHT), y + 12 + _AXIS_ROW * p) for s, p in group]
        parts += [_line(a, b, shade) for a, b in pairwise(points)]
        kept = len({side for side, _ in group}) == 2
        ring = f'class="box" style="stroke:{shade};stroke-width:2.5"'
        parts += [circle(*point, 4.5, f'fill="{shade}"' if kept else ring) for point in points]
    return parts


def _line(start: tuple[Number, Number], end: tuple[Number, Number], color: str) -> str:
    """A line; in one column it bends, so as not to run through other dots."""
    (a, b), (c, d) = start, end
    path = f"Q{a + 18:.1f} {(b + d) / 2:.1f} {c:.1f} {d:.1f}" if a == c else f"L{c:.1f} {d:.1f}"
    return f'<path d="M{a:.1f} {b:.1f}{path}" fill="none" stroke="{color}" stroke-width="2"/>'
