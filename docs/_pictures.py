"""Draw the documentation's pictures: python docs/_pictures.py [FOLDER]; needs Chromium."""

import contextlib
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unf
from unf.lab import (
    demo,
    generalize,
    lopt,
    plots,
    predict,
    readers,
    report,
    zoos,
)
from unf.testing import spaces

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
THEME = """<style>svg{color:#1f2328;background:#fff;border-radius:8px}
@media(prefers-color-scheme:dark){svg{color:#e6edf3;background:#0d1117}}</style>"""
"""For SVGs that are shown as images: light or dark as the reader prefers."""
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--force-device-scale-factor=2", "--window-size=900,1000")  # fmt: skip
CASES = {
    "mlp": "MLP", "cnn": "CNN", "cnn-4x": "CNN, 4×", "resnet": "ResNet", "resnet-4x": "ResNet, 4×",
    "gpt": "GPT",
}  # fmt: skip
FIGURE2 = ("mlp", "cnn", "rnn", "transformer")
FIGURE2 += tuple(f"{task}-baselines" for task in FIGURE2[1:])


def space_of(**leaves: Any) -> unf.WeightSpace:
    """A weight space, from a specification and sizes for each leaf."""
    shapes = {k: jax.ShapeDtypeStruct(tuple(sizes), "float32") for k, (_, *sizes) in leaves.items()}
    return unf.WeightSpace.from_spec({k: spec for k, (spec, *_) in leaves.items()}, shapes)


def matrix(title: str, values: Any, largest: float = 0, below: str = "") -> plots.Panel:
    """A matrix, or with colors in its last axis a picture; red is positive, blue negative."""
    values = np.atleast_2d(values)

    def draw(axis: Any) -> None:
        limit = largest or float(np.abs(values).max())
        lines = {"edgecolors": plots.PALETTE[-1], "linewidth": 0.5, "rasterized": values.size > 50}
        axis.pcolormesh(values, cmap="RdBu_r", vmin=-limit, vmax=limit, **lines)
        axis.set(xticks=[], yticks=[], aspect="equal", xlabel=below)
        axis.invert_yaxis()
        axis.spines[:].set_visible(False)

    return plots.Panel(title, draw)


def network(title: str, order: tuple[int, ...]) -> plots.Panel:
    """A network with three inputs, four hidden neurons in some order and two outputs."""
    left, right = [(0, y) for y in (-1, 0, 1)], [(2, y) for y in (-0.5, 0.5)]

    def draw(axis: Any) -> None:
        for place, neuron in enumerate(order):
            here, color = (1, 1.5 - place), plots.PALETTE[neuron]
            for there in (*left, *right):
                axis.plot(*zip(here, there, strict=True), color=color, zorder=1)
            axis.scatter(*here, color=color, s=120, zorder=2)
        axis.scatter(*zip(*left, *right, strict=True), color=plots.PALETTE[-1], s=120, zorder=2)
        axis.set(xlim=(-0.3, 2.3), ylim=(-1.8, 1.8))
        axis.axis("off")

    return plots.Panel(title, draw)


def permutation() -> Any:
    """The same network with its hidden neurons in another order, and its weights."""
    from matplotlib.colors import to_rgb

    panels = []
    for title, order in (("a network", (0, 1, 2, 3)), ("the same function", (2, 0, 3, 1))):
        colors = np.array([to_rgb(plots.PALETTE[neuron]) for neuron in order])
        panels += [
            network(title, order),
            matrix("W0", np.tile(colors, (3, 1, 1))),
            matrix("b0", colors[None]),
            matrix("W1", np.tile(colors[:, None], (1, 2, 1))),
        ]
    rows = [[0, 0, 0, 4, 4, 4], [1, 2, 3, 5, 6, 7]]
    return plots.figure(panels, rows, heights=[2.3, 1.3])


def equivariance() -> Any:
    """A layer applied to a recurrent weight, and to the same one with its neurons reordered."""
    space = space_of(w=("n n", 5, 5))
    layer = unf.nn.UNFLinear(space, 1, 1, key=jax.random.key(3))
    x = unf.testing.random_features(space, 1, key=jax.random.key(1))
    moved = space.permute(x, {"n": jnp.array([3, 0, 4, 1, 2])})
    panels = []
    titles = ("X", "layer → T(X)", "pool → P(T(X))"), ("σX", "T(σX) = σT(X)", "the same")
    for tree, names in zip((x, moved), titles, strict=True):
        before, after = (np.asarray(each["w"][..., 0]) for each in (tree, layer(tree)))
        pooled = np.array([[after.mean()], [after.std()]])
        matrices = zip(names, (before, after, pooled), (2, 1.5, 1), strict=True)
        panels += [matrix(name, values, largest) for name, values, largest in matrices]
    return plots.figure(panels, [[0, 1, 2], [3, 4, 5]], heights=[2.2, 2.2])


def term() -> Any:
    """One term of a layer in three steps, with the numbers of a real matrix."""
    x = np.asarray(jax.random.normal(jax.random.key(5), (4, 5)))
    reduced = x.mean(axis=1, keepdims=True)
    mixed = -0.8 * reduced
    panels = [
        matrix("X[a, b]", x, 2),
        matrix("reduce", reduced, 0.75, below="[a]: mean over b"),
        matrix("mix", mixed, 0.75, below="[a]: channels · Λ"),
        matrix("embed", np.repeat(mixed, 5, axis=1), 0.75, below="Y[a, b]: copy along b"),
    ]
    return plots.figure(panels, [[0, 1, 2, 3]], heights=[1.9])


def fifteen() -> Any:
    """Every term from "n n" to "n n", as the matrix of a linear map, for n = 3."""
    n, panels = 3, []
    for one in unf.basis.terms(space_of(w=("n n", 8, 8))):
        values = np.zeros((n * n, n * n))
        for index in np.ndindex(*[n] * len(one.partition)):
            at = {slot: i for group, i in zip(one.partition, index, strict=True) for slot in group}
            row, column = (n * at[side, 0] + at[side, 1] for side in "oi")
            values[row, column] = 1
        panels.append(matrix(one.formula.replace(" = ", " =\n"), values))
    return plots.figure(panels, np.arange(15).reshape(3, 5).tolist(), heights=[1.9] * 3)


def terms() -> str:
    """The terms of a layer from an MLP's weights to a score for each neuron."""
    space = space_of(w0=("[in] hidden", 4, 16), b0=("hidden", 16), w1=("hidden out", 16, 2))
    neurons = space_of(score=("hidden", 16))
    return unf.viz.draw_terms(unf.basis.make_plan(space, neurons))


def tiny_rnn_zoo() -> Any:
    """Success of the full zoo's 1,000 test networks, against the settings drawn for each.

    The zoo itself is not in the repository; success rates are those of the result in RESULTS,
    and settings follow from the seed, as in `unf.lab.zoos.build`.
    """
    found = predict.Report.from_json((RESULTS / "table1-unf.json").read_text())
    recipe = zoos.TinyRNN(**{**found.zoo["config"], "batch_sizes": (64, 128, 256)})
    keys = jax.random.split(jax.random.key(found.zoo["seed"]), found.zoo["models"])[found.tested]
    draw = jax.vmap(lambda key: dict(recipe.draw(key=jax.random.split(key, 4)[0])))
    chunks = -(-found.zoo["models"] // 256)
    sizes = np.random.default_rng(found.zoo["seed"]).permutation(np.resize((64, 128, 256), chunks))
    settings = {name: np.asarray(column) for name, column in draw(keys).items()}
    settings["batch_size"] = sizes[found.tested // 256]
    return plots.figure(plots.score_panels(found.true, settings))


def figure2() -> list[lopt.Comparison]:
    """The results of figure 2; those of one task come from several evaluations."""
    joined: dict[str, lopt.Comparison] = {}
    for name in FIGURE2:
        found = lopt.Comparison.from_json((RESULTS / f"figure2-{name}.json").read_text())
        known = joined.get(found.task, found)
        assert (known.horizon, known.seeds) == (found.horizon, found.seeds)
        curves, notes = known.curves | found.curves, known.notes | found.notes
        joined[found.task] = dataclasses.replace(known, curves=curves, notes=notes)
    return list(joined.values())


def generalized() -> generalize.Result:
    """The results on networks that no optimizer was meta-trained on."""
    files = [RESULTS / f"generalize-{name}.json" for name in generalize.UNSEEN]
    return generalize.Result([lopt.Comparison.from_json(file.read_text()) for file in files])


def barriers() -> Any:
    """Barriers of training loss between pairs of networks, by how they were aligned."""
    found = json.loads((RESULTS / "h200-barriers.json").read_text())["heights"]

    def draw(axis: Any) -> None:
        for i, (way, color) in enumerate(plots.ALIGNED.items()):
            means, errors = zip(*(parts["train"][way] for parts in found.values()), strict=True)
            places, label = np.arange(len(found)) + 0.26 * (i - 1), plots.name_of_alignment(way)
            axis.bar(places, means, 0.24, yerr=errors, color=color, label=label)
        names = [CASES[name] for name in found]
        axis.set_xticks(range(len(names)), names)
        axis.grid(axis="x", visible=False)
        axis.set(ylabel="barrier of training loss")

    return plots.figure([plots.Panel("Between networks trained from different starts", draw)],
                        rows=[[0]], heights=[3.4])  # fmt: skip


def by_size(results: str, rows: dict[str, readers.Row]) -> Any:
    """Test scores on several zoos, against the number of parameters."""
    found = json.loads((RESULTS / results).read_text())["zoos"]
    return plots.scores_by_size(
        {row.title: found[name] for name, row in rows.items() if name in found}
    )


def bolder_digits() -> Any:
    """What the tutorial on implicit networks prints about, by running its code; two minutes."""
    page = (Path(__file__).parent / "tutorials" / "implicit-networks.md").read_text()
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        for code in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            exec(code, names)
        shown = names["test"][:12]
        before = names["zoo"].weights(shown)
        after = names["editor"].predict(before)
        drawn = jax.vmap(unf.models.average(names["draw"]))(after)
    rows = {"before": names["unchanged"][:12], "target": names["targets"][shown], "after": drawn}
    return plots.edited_images({name: np.asarray(images) for name, images in rows.items()})


def main(folder: Path) -> None:
    """Draw everything; training networks takes some minutes."""
    svgs = {
        "idea-space": unf.viz.draw_space(spaces.mlp(8, 32, 32, 10)),
        "terms": terms(),
        "coefficients": unf.viz.draw_coefficients(unf.optim.load("unf-mlp-fashion-mnist").head),
        "transformer": unf.viz.draw_space(spaces.transformer()),
    }
    for draw in (permutation, equivariance, term, fifteen):
        svg = plots.to_svg(draw(), (draw.__doc__ or "").partition("\n")[0])
        svgs[f"idea-{draw.__name__}"] = svg.replace("<defs>", f"<defs>{THEME}", 1)
    for name, svg in svgs.items():
        (folder / f"{name}.svg").write_text(svg)
    plots.save(plots.optimizer_curves(figure2()), folder / "figure2.png")
    plots.save(plots.optimizer_curves(generalized().comparisons), folder / "generalize.png")
    plots.save(tiny_rnn_zoo(), folder / "tiny-rnn-zoo.png")
    plots.save(barriers(), folder / "barriers.png")
    plots.save(bolder_digits(), folder / "implicit-networks.png")
    plots.save(by_size("inr.json", readers.INR), folder / "inr.png")
    plots.save(by_size("zoos.json", readers.ZOOS), folder / "zoos.png")
    with tempfile.TemporaryDirectory() as temporary:
        page = report.write(RESULTS / "table1-unf.json", Path(temporary, "report.html"))
        picture = f"--screenshot={folder / 'report.png'}"
        subprocess.run(["chromium", *CHROMIUM, picture, page.as_uri()], check=True)
        shutil.copy(demo.run(demo.Config(out=Path(temporary))).picture, folder / "demo.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
