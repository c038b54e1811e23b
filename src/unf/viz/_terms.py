"""Terms as index diagrams: dots are axes, and lines join those that share an index."""

from collections.abc import Callable, Iterable
from itertools import groupby, islice, pairwise

from ..basis import Plan, Term, terms
from ..basis._terms import Index
from ._svg import CHARACTER, MARGIN, Number, circle, color_of, document, text

Colors = Callable[[Term, tuple[Index, ...]], str]
_ROW, _LEFT, _RIGHT, _ACROSS = 20, 18, 84, 900


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
    height, per_row = _ROW * (max(positions, default=0) + 1) + 34, max(1, int(_ACROSS // cell))
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
        points = [(x + (_LEFT if s == "i" else _RIGHT), y + 12 + _ROW * p) for s, p in group]
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
