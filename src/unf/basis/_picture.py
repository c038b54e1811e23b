"""Terms as index diagrams: dots are axes, lines say which run together.

The input's axes stand on the left, the output's on the right, in the colour of their permutation.
A line joins axes with one index. A ring on the left is averaged over, a ring on the right is
broadcast to.
"""

from collections.abc import Callable, Iterable
from itertools import groupby, islice, pairwise

from .._drawing import CHARACTER, Number, color_of, document, text
from ._plan import Plan
from ._terms import Index, Term, core_terms

Colors = Callable[[Term, tuple[Index, ...]], str]
_ROW, _MARGIN, _LEFT, _RIGHT, _ACROSS = 20, 14, 18, 84, 900


def picture(
    plan: Plan, *, source: str | None = None, target: str | None = None, most: int = 60
) -> str:
    """The terms of a layer, or some of them, as an SVG document.

    Args:
        plan: the layer's.
        source: only terms that read this leaf, named by its path.
        target: only terms that write this leaf.
        most: draw the first so many, and say how many are left out.

    >>> import jax
    >>> from unf import WeightSpace
    >>> from unf.basis import make_plan
    >>> space = WeightSpace.from_spec("a b", jax.ShapeDtypeStruct((8, 32), "float32"))
    >>> picture(make_plan(space)).count("mean_c X[a,c]")
    1
    """
    for path, space in ((source, plan.in_space), (target, plan.out_space)):
        known = [leaf.path for leaf in space.leaves]
        if path is not None and path not in known:
            raise ValueError(f"there is no leaf {path!r}; expected one of {known}")
    found = (
        term
        for core in plan.cores
        for term in core_terms(plan, core)
        if source in (None, term.source) and target in (None, term.target)
    )
    chosen = list(islice(found, most))
    return draw_terms(plan, chosen, left_out=sum(1 for _ in found))


def draw_terms(plan: Plan, terms: list[Term], *, left_out: int = 0) -> str:
    """These terms, those between the same two leaves together."""
    blocks = {"i": plan.in_space.blocks, "o": plan.out_space.blocks}
    colors = color_of(
        label.name for side in blocks.values() for block in side for label in block.labels
    )

    def color(term: Term, group: tuple[Index, ...]) -> str:
        side, position = group[0]
        block = term.source_block if side == "i" else term.target_block
        return colors[blocks[side][block].labels[position].name]

    parts, y, width = [], _MARGIN + 8, 0.0
    x = _MARGIN
    for name, shade in colors.items():
        parts.append(f'<circle cx="{x + 5:.1f}" cy="{y - 4:.1f}" r="5" fill="{shade}"/>')
        parts.append(text(x + 14, y, name))
        x += 30 + CHARACTER * len(name)
    width, y = max(width, x), y + 16
    ordered = sorted(terms, key=lambda term: (term.target_block, term.source_block))
    for (target, source), group in groupby(ordered, key=lambda term: (term.target, term.source)):
        parts.append(text(_MARGIN, y + 10, f"{target or 'E'} ← {source or 'X'}"))
        drawn, bottom, right = _section(list(group), y + 18, color)
        parts, y, width = parts + drawn, bottom + 8, max(width, right)
    if left_out:
        parts.append(text(_MARGIN, y + 10, f"and {left_out:,} more terms"))
        y += 18
    return document(width + _MARGIN, y + _MARGIN, "terms as index diagrams", parts)


def draw_term(term: Term) -> str:
    """One term, a colour for each index."""
    colors = color_of(map(str, term.partition))
    parts, bottom, right = _section([term], 4, lambda _, group: colors[str(group)])
    return document(right, bottom, str(term), parts)


def _section(terms: list[Term], top: Number, color: Colors) -> tuple[list[str], Number, Number]:
    """Diagrams side by side in rows; where they end, below and to the right."""
    cell = max(_RIGHT + 30, *(CHARACTER * len(term.formula) + 24 for term in terms))
    most = max((len(_axes(t, side)) for t in terms for side in "io"), default=0)
    height, per_row = _ROW * max(most, 1) + 34, max(1, int(_ACROSS // cell))
    parts = []
    for i, term in enumerate(terms):
        x, y = _MARGIN + cell * (i % per_row), top + height * (i // per_row)
        parts += _diagram(term, x, y, cell, height, color)
    rows = -(-len(terms) // per_row)
    return parts, top + height * rows, _MARGIN + cell * min(len(terms), per_row)


def _diagram(
    term: Term, x: Number, y: Number, cell: Number, height: Number, color: Colors
) -> list[str]:
    def place(index: tuple[str, int]) -> tuple[Number, Number]:
        side, position = index
        return x + (_LEFT if side == "i" else _RIGHT), y + 12 + _ROW * position

    parts = [
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{cell - 8:.1f}" '
        f'height="{height - 8:.1f}" rx="5"/>',
        text(x + 8, y + height - 15, term.formula),
    ]
    for group in term.partition:
        shade, points = color(term, group), [place(index) for index in group]
        kept = len({side for side, _ in group}) == 2
        parts += _lines(points, shade)
        filled = f'fill="{shade}"' if kept else 'class="box"'
        ring = "" if kept else f' style="stroke:{shade};stroke-width:2.5"'
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4.5" {filled}{ring}/>' for a, b in points]
    return parts


def _lines(points: Iterable[tuple[Number, Number]], color: str) -> list[str]:
    """From each to the next; those of one column bend, so as not to run through others."""
    lines = []
    for (a, b), (c, d) in pairwise(points):
        bend = f"Q{a + 18:.1f} {(b + d) / 2:.1f} {c:.1f} {d:.1f}" if a == c else f"L{c:.1f} {d:.1f}"
        lines.append(f'<path d="M{a:.1f} {b:.1f}{bend}" fill="none" stroke="{color}" '
                     f'stroke-width="2"/>')  # fmt: skip
    return lines


def _axes(term: Term, side: str) -> list[int]:
    return [position for group in term.partition for s, position in group if s == side]
