"""Draw the documentation's pictures: python docs/_pictures.py [FOLDER]."""

import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import unf
from unf.testing import spaces

COLORS = ("#d1495b", "#00798c", "#edae49", "#66a182")
STYLE = """
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.small{font-size:11px;fill:#656d76}.mono{font-family:ui-monospace,Menlo,Consolas,monospace}
.card{fill:#ffffff;stroke:#d0d7de}.line{stroke:#8c959f;fill:none}.head{fill:#8c959f}
.cell{stroke:#d0d7de;fill:#f6f8fa}.plus{fill:#d1495b}.minus{fill:#00798c}.node{fill:#f6f8fa}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}
.card{fill:#0d1117;stroke:#3d444d}.line{stroke:#9198a1}.head{fill:#9198a1}
.cell{stroke:#3d444d;fill:#161b22}.plus{fill:#ff7b8a}.minus{fill:#39b3c6}.node{fill:#161b22}}
"""
CELL = 18


def document(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """A picture on a card, so that it can be read on any page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"><style>{STYLE}</style>'
        f'<rect class="card" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>'
        + "".join(parts)
        + "</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def arrow(x0: float, y0: float, x1: float, y1: float, words: str = "", below: str = "") -> str:
    """A straight arrow, with words above and below, or beside it if it points down."""
    length = np.hypot(x1 - x0, y1 - y0)
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    head = [(x1, y1), *((x1 - 8 * dx + s * dy, y1 - 8 * dy - s * dx) for s in (4, -4))]
    points = " ".join(f"{x:g},{y:g}" for x, y in head)
    shaft = f'<path class="line" d="M{x0:g} {y0:g}L{x1 - 6 * dx:g} {y1 - 6 * dy:g}"/>'
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    said = [text(x, y - 8, words), text(x, y + 18, below, "small")]
    if not dx:
        said = [text(x + 10, y + 4, words, anchor="start")]
    return f'{shaft}<polygon class="head" points="{points}"/>' + "".join(said)


def heat(values: np.ndarray, x: float, y: float, scale: float, cell: float = CELL) -> str:
    """A matrix: red where positive, blue where negative, strong where large."""
    parts = []
    for (i, j), value in np.ndenumerate(np.atleast_2d(values)):
        place = f'x="{x + j * cell:g}" y="{y + i * cell:g}" width="{cell:g}" height="{cell:g}"'
        kind, strength = "plus" if value > 0 else "minus", min(abs(value) / scale, 1)
        parts.append(f'<rect class="cell" {place}/>')
        parts.append(f'<rect class="{kind}" {place} fill-opacity="{strength:.2f}"/>')
    return "".join(parts)


def marked(matrix: np.ndarray, x: float, y: float, cell: float) -> str:
    """A matrix of zeros and ones."""
    size = f'width="{matrix.shape[1] * cell:g}" height="{matrix.shape[0] * cell:g}"'
    parts = [f'<rect class="cell" x="{x:g}" y="{y:g}" {size}/>']
    for i, j in np.argwhere(matrix):
        place = f'x="{x + j * cell + 0.5:g}" y="{y + i * cell + 0.5:g}"'
        side = f'width="{cell - 1:g}" height="{cell - 1:g}" rx="1.5"'
        parts.append(f'<rect class="plus" {place} {side}/>')
    return "".join(parts)


def stripes(colors: Sequence[str], x: float, y: float, length: int, down: bool) -> str:
    """A matrix with a colour for each neuron: `down`, a row each, otherwise a column each."""
    parts = []
    for i, color in enumerate(colors):
        for j in range(length):
            row, column = (i, j) if down else (j, i)
            parts.append(
                f'<rect class="cell" x="{x + column * CELL:g}" y="{y + row * CELL:g}" '
                f'width="{CELL}" height="{CELL}" style="fill:{color};fill-opacity:.75"/>'
            )
    return "".join(parts)


def permutation() -> str:
    """The same network with its hidden neurons in another order, and its weights."""
    orders = ((0, 1, 2, 3), (2, 0, 3, 1))
    parts = []
    for side, order in enumerate(orders):
        left = 40 + 330 * side
        columns = [[(left, 60 + 40 * i) for i in range(3)], [], []]
        columns[1] = [(left + 90, 40 + 40 * i) for i in range(4)]
        columns[2] = [(left + 180, 80 + 40 * i) for i in range(2)]
        for k, neuron in enumerate(order):
            x, y = columns[1][k]
            for ends in (columns[0], columns[2]):
                parts += [
                    f'<path d="M{a} {b}L{x} {y}" stroke="{COLORS[neuron]}" stroke-width="1.6"/>'
                    for a, b in ends
                ]
        for nodes, colors in zip(columns, ([None] * 3, order, [None] * 2), strict=True):
            for (x, y), neuron in zip(nodes, colors, strict=True):
                fill = "" if neuron is None else f' style="fill:{COLORS[neuron]}"'
                parts.append(f'<circle class="node line" cx="{x}" cy="{y}" r="9"{fill}/>')
        top, colors = 220, [COLORS[n] for n in order]
        for name, x, length, down in (
            ("W0", 0, 3, False),
            ("b0", 92, 1, False),
            ("W1", 184, 2, True),
        ):
            parts.append(stripes(colors, left + x - 10, top, length, down))
            parts.append(text(left + x - 10, top - 8, name, "mono small", "start"))
    parts.append(arrow(252, 100, 338, 100, "reorder", "same function"))
    parts.append(arrow(286, 250, 338, 250, "σ", "new weights"))
    return document(620, 310, "A network before and after its hidden neurons are reordered", parts)


def equivariance() -> str:
    """A layer applied to a recurrent weight and to the same with neurons reordered."""
    space = unf.WeightSpace.from_spec({"w": "n n"}, {"w": jax.ShapeDtypeStruct((5, 5), "float32")})
    layer = unf.nn.UNFLinear(space, 1, 1, key=jax.random.key(3))
    x = unf.testing.random_features(space, 1, key=jax.random.key(1))
    group = {"n": jnp.array([3, 0, 4, 1, 2])}
    moved = space.permute(x, group)
    rows = [(x, layer(x)), (moved, layer(moved))]
    size, parts = 5 * CELL, []
    for i, (before, after) in enumerate(rows):
        y = 50 + 170 * i
        a, b = (np.asarray(tree["w"][..., 0]) for tree in (before, after))
        parts += [heat(a, 60, y, 2), heat(b, 300, y, 1.5), arrow(165, y + 45, 285, y + 45, "layer")]
        parts.append(arrow(405, y + 45, 525, y + 45, "pool"))
        parts += [heat(b.mean(), 540, y + 27, 0.3), heat(b.std(), 540, y + 27 + CELL, 1)]
    names = (("X", "T(X)", "P"), ("σX", "T(σX) = σT(X)", "the same"))
    for i, row in enumerate(names):
        for x0, name in zip((105, 345, 549), row, strict=True):
            parts.append(text(x0, 40 + i * (170 + size + 30), name))
    for x0 in (105, 345):
        parts.append(arrow(x0, 50 + size + 8, x0, 212, "σ"))
    return document(620, 345, "Permuting before a layer is permuting after it", parts)


def term() -> str:
    """One term of a layer in three steps, with the numbers of a real matrix."""
    x = np.asarray(jax.random.normal(jax.random.key(5), (4, 5)))
    reduced = x.mean(axis=1, keepdims=True)
    mixed = -0.8 * reduced
    y = 50
    parts = [
        heat(x, 30, y, 2),
        heat(reduced, 225, y, 0.75),
        heat(mixed, 375, y, 0.75),
        heat(np.repeat(mixed, 5, axis=1), 510, y, 0.75),
        arrow(130, y + 36, 215, y + 36, "reduce", "mean over b"),
        arrow(253, y + 36, 365, y + 36, "mix", "channels · Λ"),
        arrow(403, y + 36, 500, y + 36, "embed", "copy along b"),
        text(75, 38, "X[a, b]", "mono"),
        text(234, 38, "[a]", "mono"),
        text(384, 38, "[a]", "mono"),
        text(555, 38, "Y[a, b]", "mono"),
    ]
    return document(630, 145, "Reduce, mix, embed", parts)


def fifteen() -> str:
    """Every term from "n n" to "n n", as the matrix of a linear map, for n = 3."""
    n, cell, step = 3, 9, 120
    space = unf.WeightSpace.from_spec({"w": "n n"}, {"w": jax.ShapeDtypeStruct((8, 8), "float32")})
    parts = []
    for k, one in enumerate(unf.basis.terms(space)):
        matrix = np.zeros((n * n, n * n))
        for index in np.ndindex(*[n] * len(one.partition)):
            at = {slot: i for group, i in zip(one.partition, index, strict=True) for slot in group}
            row, column = (n * at[side, 0] + at[side, 1] for side in "oi")
            matrix[row, column] = 1
        x, y = 30 + step * (k % 5), 48 + 142 * (k // 5)
        parts.append(marked(matrix, x, y, cell))
        for line, words in enumerate(one.formula.split(" = ")):
            said = f"{words} =" if not line else words
            parts.append(text(x + 4.5 * cell, y - 21 + 13 * line, said, "mono small"))
    return document(20 + 5 * step, 434, "The fifteen maps of a square matrix", parts)


def terms() -> str:
    """The terms of a layer from an MLP's weights to a score for each neuron."""
    shapes = {"w0": (4, 16), "b0": (16,), "w1": (16, 2)}
    spec = {"w0": "[in] hidden", "b0": "hidden", "w1": "hidden out"}
    given = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in shapes.items()}
    scores = jax.ShapeDtypeStruct((16,), "float32")
    space = unf.WeightSpace.from_spec(spec, given)
    neurons = unf.WeightSpace.from_spec({"score": "hidden"}, {"score": scores})
    return unf.viz.draw_terms(unf.basis.make_plan(space, neurons))


def main(folder: Path) -> None:
    """Write all pictures."""
    pictures = {
        "idea-permutation": permutation(),
        "idea-space": unf.viz.draw_space(spaces.mlp(8, 32, 32, 10)),
        "idea-equivariance": equivariance(),
        "idea-fifteen": fifteen(),
        "idea-term": term(),
        "terms": terms(),
        "coefficients": unf.viz.draw_coefficients(unf.optim.load("unf-mlp-fashion-mnist").head),
        "transformer": unf.viz.draw_space(spaces.transformer()),
    }
    for name, picture in pictures.items():
        (folder / f"{name}.svg").write_text(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
