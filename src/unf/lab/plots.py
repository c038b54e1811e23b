"""Charts of experiments, on matplotlib: for commands, reports and the documentation.

A chart is a `Panel`: a title and a function that draws on axes. `figure` arranges panels on a
figure; a report shows each panel as a figure of its own. Text has 9 points on figures of 7.2
inches at most, so that they can be read at the width of a page.
"""

import io
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..symmetry import Barrier
from ..zoo import MixedZoo, Zoo, ZooError
from ._scores import standard_error, summary
from .lopt import GRIDS, Comparison
from .lopt._evaluate import TITLES, part_ends, title
from .predict import METHODS, Report
from .tasks._addition import as_text
from .tasks._implicit import Siren
from .zoos import ImplicitZoo, TinyRNN
from .zoos._published import PublishedSirens, known_about
from .zoos._recipe import recipe_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # it takes long to import
    Axes = Figure = Any

Draw = Callable[[Axes], Any]
PALETTE = (
    "#1f77b4", "#d95f02", "#1b9e77", "#9467bd", "#d62728", "#a6761d", "#e7298a", "#0e9bb5",
    "#808080",
)  # fmt: skip
"""Colors with a contrast of at least 3 to white and to dark pages; the last one is gray."""
_IMAGES = 20
"""Networks whose images are drawn."""
_GRAY = PALETTE[-1]
_STYLE = {
    "axes.axisbelow": True, "axes.edgecolor": _GRAY, "axes.grid": True, "axes.titlesize": 10,
    "axes.spines.right": False, "axes.spines.top": False, "figure.constrained_layout.h_pad": 0.08,
    "figure.dpi": 200, "font.size": 9, "grid.alpha": 0.25, "grid.color": _GRAY,
    "legend.frameon": False, "lines.linewidth": 1.5, "svg.fonttype": "none",
}  # fmt: skip
COLORS = {
    "deepset": PALETTE[0], "statnn": PALETTE[1], "nfn": PALETTE[1], "unf": PALETTE[2],
    "unf-plus": PALETTE[3], "sgdm": PALETTE[3], "adam": PALETTE[4], "sgdm-tuned": PALETTE[5],
    "adam-default": PALETTE[-1], "tied": PALETTE[6], "muon": PALETTE[7],
    "reader": PALETTE[4], "probe": PALETTE[5], "reader-probe": PALETTE[7],
}  # fmt: skip
"""The color of each predictor and each optimizer, by name."""
ALIGNED = {"as they are": PALETTE[3], "weights": PALETTE[0], "activations": PALETTE[2]}
"""The color of each way of alignment, by name."""
_TASKS = {
    "mlp": "MLP", "cnn": "CNN", "rnn": "RNN", "transformer": "Transformer", "deep-mlp": "deep MLP",
    "resnet": "ResNet", "lstm": "LSTM", "gru": "GRU", "vit": "ViT", "gpt": "GPT",
}  # fmt: skip


class Panel(NamedTuple):
    """One chart: its title, a function that draws it on axes, and a note for readers."""

    title: str
    draw: Draw
    note: str = ""


def figure(
    panels: Sequence[Panel],
    rows: Sequence[Sequence[Any]] | None = None,
    *,
    heights: Sequence[float] | None = None,
    heading: str = "",
) -> Figure:
    """Arrange panels on a figure, with one legend below.

    Args:
        panels: the charts.
        rows: which panel is at each place of a grid, by default two in a row.
        heights: the height of each row in inches.
        heading: the title of the whole.
    """
    from matplotlib.figure import Figure as Canvas

    places = [*range(len(panels)), *(["."] if len(panels) > 1 and len(panels) % 2 else [])]
    rows = rows or [places[i : i + 2] for i in range(0, len(places), 2)]
    heights = heights or [2.8 if len(panels) > 1 else 3.1] * len(rows)
    width = 7.2 if len(panels) > 1 else 4.8
    with _styled():
        drawn = Canvas(figsize=(width, sum(heights)), layout="constrained")
        axes = drawn.subplot_mosaic([list(row) for row in rows], height_ratios=heights)
        for i, panel in enumerate(panels):
            panel.draw(axes[i])
            axes[i].set_title(_text(panel.title, 60))
        labels: dict[str, Any] = {}
        for axis in axes.values():
            handles, names = axis.get_legend_handles_labels()
            labels |= dict(zip(names, handles, strict=True))
        if labels:
            columns = int(13 * width / (max(map(len, labels)) + 6))
            columns = max(1, min(columns, len(labels)))
            place = {"loc": "outside lower center", "ncols": columns, "markerscale": 2}
            drawn.legend(labels.values(), labels, **place)
        if heading:
            drawn.suptitle(_text(heading, 90), fontsize=10)
    return drawn


def save(drawn: Figure, path: str | os.PathLike) -> None:
    """Write a figure as PNG or SVG, by the suffix; the same figure gives the same bytes."""
    with _styled():
        drawn.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def to_svg(drawn: Figure, label: str = "", *, salt: str = "unf") -> str:
    """A figure as SVG to be put into HTML: no background, and text in the color of the page.

    Args:
        drawn: the figure.
        label: what screen readers say.
        salt: the names of its elements follow from it; use another one for each figure of a page.
    """
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _styled(salt), io.StringIO() as file:
        drawn.savefig(file, format="svg", metadata=nothing, transparent=True)
        _, attributes, body = re.split("<svg([^>]*)>", file.getvalue(), maxsplit=1)
    box = re.findall('viewBox="[^"]*"', attributes)[0]
    body = re.sub('<g id="[^"]*"', "<g", body).replace("*{stroke", ".chart *{stroke")
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    kind = f'class="chart" role="img" aria-label="{escape(label)}" fill="currentColor"'
    return f"<svg {names} {kind} {box}>{body.replace('#000000', 'currentColor')}"


def points(
    x: np.ndarray, y: np.ndarray, labels: tuple[str, str], sizes: np.ndarray | None = None,
    *, color: str = PALETTE[0], diagonal: bool = False,
) -> Draw:  # fmt: skip
    """A function that draws points on axes, leaving out those that are not finite.

    `x` may hold words, which are then the ticks of its axis. With `sizes`, each batch size has a
    color. With `diagonal`, the axes have equal limits and there is a line where x and y are equal.
    """
    words: Any = ()
    if x.dtype.kind == "U":
        words, x = np.unique(x, return_inverse=True)
    x, y = _finite(x), _finite(y)
    shown = x[(x == x) & (y == y)]
    kinds = np.unique(sizes) if sizes is not None else ()

    def draw(axis: Axes) -> None:
        # Many points as pixels: browsers are slow with thousands of elements.
        look: dict[str, Any] = {"s": 8, "alpha": 0.6, "lw": 0, "rasterized": len(x) > 1000}
        if 1 < len(kinds) <= len(PALETTE):
            for kind, each in zip(kinds, PALETTE, strict=False):
                at = sizes == kind
                axis.scatter(x[at], y[at], color=each, label=f"batch {kind:.0f}", **look)
        else:
            axis.scatter(x, y, color=color, **look)
        if diagonal:
            limits = (*axis.get_xlim(), *axis.get_ylim())
            ends = (min(limits), max(limits))
            axis.plot(ends, ends, color=_GRAY, lw=1, zorder=0)
            axis.set(xlim=ends, ylim=ends, aspect="equal")
        elif len(words):
            axis.set_xticks(range(len(words)), [_text(str(word), 12) for word in words])
        elif len(shown) and max(shown) > 30 * min(shown) > 0:
            axis.set_xscale("log")
        axis.set(xlabel=labels[0], ylabel=labels[1])

    return draw


def zoo_panels(zoo: Zoo | MixedZoo) -> list[Panel]:
    """How well a zoo's networks work, and how that depends on what was drawn for each.

    Raises:
        ZooError: if no network is finished.
    """
    rows = zoo.trained
    if not len(rows):
        raise ZooError(f"{zoo}: no finished networks to draw yet")
    known = known_about(zoo)
    if isinstance(known, ImplicitZoo | PublishedSirens) and isinstance(zoo, Zoo):
        return _image_panels(zoo, known.task)
    settings = {name: column[rows] for name, column in zoo.settings.items()}
    scores = {name: column[rows] for name, column in zoo.scores.items()}
    (name, first), *others = scores.items()
    panels = score_panels(first[:, 0], settings, name)
    for other, values in others[:1]:
        labels = (_score_label(other), _score_label(name))
        draw = points(values[:, 0], first[:, 0], labels, _batch_sizes(settings))
        panels.append(Panel(f"{_title(other)} and {name}", draw, _left_out(values[:, 0])))
    if first.shape[1] > 1:
        draw = points(
            first[:, 0], first[:, 1], (_score_label(name), "measured again"), diagonal=True
        )
        note = "How far points are from the diagonal is noise, which no predictor can explain."
        panels.append(Panel("Two measurements of the same networks", draw, note))
    return panels


def _image_panels(zoo: Zoo, task: Siren) -> list[Panel]:
    """What implicit networks have learned, and how exactly, or how bright it is."""
    name, score = next(iter(zoo.scores.items()))
    score = score[zoo.trained].mean(axis=1)
    title, label = f"How the {name} is distributed", _score_label(name)
    if "loss" in zoo.scores:
        error = np.maximum(zoo.scores["loss"][zoo.trained].mean(axis=1), 1e-20)
        score = -10 * np.log10(error)
        title, label = "How exact the images are", "peak signal-to-noise ratio (dB)"

    def histogram(axis: Axes) -> None:
        axis.hist(score, bins=40, color=PALETTE[0])
        axis.set(xlabel=label, ylabel="networks")

    note = f"The images of {min(_IMAGES, len(score))} networks, by class."
    draw = partial(_draw_images, zoo=zoo, task=task)
    return [Panel("Images drawn from the weights", draw, note), Panel(title, histogram)]


def score_panels(
    score: Float[np.ndarray, " networks"],
    settings: Mapping[str, np.ndarray],
    name: str = "success",
) -> list[Panel]:
    """A histogram of a score, and the score against up to two settings that vary."""
    values, label = _finite(score), _score_label(name)

    def histogram(axis: Axes) -> None:
        axis.hist(values[values == values], bins=40, color=PALETTE[0])
        axis.set(xlabel=label, ylabel="networks")

    panels = [Panel("How well the networks work", histogram, _left_out(score))]
    varied = [n for n, x in settings.items() if n != "batch_size" and _varies(x)]
    for setting in sorted(varied, key=lambda setting: (setting != "learning_rate", setting))[:2]:
        words = _text(setting.replace("_", " "))
        draw = points(settings[setting], score, (words, label), _batch_sizes(settings))
        panels.append(Panel(f"{_title(name)} against {words}", draw))
    return panels


def _score_label(name: str) -> str:
    return "success rate" if name == "success" else _text(name.replace("_", " "))


def _title(name: str) -> str:
    words = _text(name.replace("_", " "))
    return words[:1].upper() + words[1:]


def _varies(setting: np.ndarray) -> bool:
    """Whether a setting has several values, and not more words than an axis has room for."""
    return 1 < len(np.unique(setting)) <= (12 if setting.dtype.kind == "U" else len(setting))


def _batch_sizes(settings: Mapping[str, np.ndarray]) -> np.ndarray | None:
    sizes = settings.get("batch_size")
    return None if sizes is None or sizes.dtype.kind == "U" else sizes


def zoo_overview(zoo: Zoo | MixedZoo) -> Figure:
    """The first score, the score against a setting, and what some Tiny RNNs answer."""
    panels = zoo_panels(zoo)[:2]
    heading = f"{zoo.kind}: {len(zoo.trained):,} networks, {int(zoo.diverged.sum()):,} diverged"
    if isinstance(zoo, MixedZoo) or zoo.kind != TinyRNN.name:
        return figure(panels, heading=heading)
    panels.append(Panel("", partial(_write_sums, zoo=zoo)))
    return figure(panels, [[0, 1], [2, 2]], heights=[2.8, 1.25], heading=heading)


def prediction_panel(report: Report) -> Panel:
    """Predicted against true scores or classes of the test networks, for the first seed."""
    if report.accuracy is not None:
        return _confusion_panel(report)
    labels = (f"true {_score_label(report.score)}", "predicted")
    color = COLORS.get(report.method, _GRAY)
    draw = points(report.true, report.predicted[0], labels, color=color, diagonal=True)
    note = f"Seed {report.seeds[0]}; points on the diagonal are predicted exactly."
    return Panel(f"Predicted against true {_text(report.score)}", draw, note)


def _confusion_panel(report: Report) -> Panel:
    """How often networks of each class are taken for one of each class."""
    true, chosen = report.true.astype(int), report.predicted[0].astype(int)
    counts = np.zeros((max(true.max(), chosen.max()) + 1,) * 2)
    np.add.at(counts, (true, chosen), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def draw(axis: Axes) -> None:
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axis.set(xlabel="predicted", ylabel=f"true {_text(report.score)}")
        axis.grid(visible=False)

    note = f"Seed {report.seeds[0]}; a row has the networks of one class, and dark is often."
    return Panel(f"Predicted against true {_text(report.score)}", draw, note)


def predictions(reports: Sequence[Report]) -> Figure:
    """Predicted against true scores or classes, with a panel for each report."""
    names = [f"{method_title(r.method)}\n{r.measure} {summary(r.main, 4)}" for r in reports]
    panels = [prediction_panel(r)._replace(title=n) for r, n in zip(reports, names, strict=True)]
    heading, retest = f"{len(reports[0].true):,} test networks", reports[0].retest
    heading += "" if retest is None else f"; test–retest τ {retest:.4f}"
    return figure(panels, heights=[3.6] * (-(-len(panels) // 2)), heading=heading)


def curve_panels(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]], measure: str = "Kendall's τ"
) -> list[Panel]:
    """Training loss and validation scores by epoch, of shape (epochs, seeds), for each method."""

    def draw(axis: Axes, part: int, label: str) -> None:
        for method, series in curves.items():
            values, color = _finite(series[part]), COLORS.get(method, _GRAY)
            epochs, name = np.arange(1, len(values) + 1), _text(method_title(method))
            axis.plot(epochs, np.nanmean(values, axis=1), ".-", color=color, label=name)
            low, high = np.fmin.reduce(values, axis=1), np.fmax.reduce(values, axis=1)
            axis.fill_between(epochs, low, high, color=color, alpha=0.2, lw=0)
        axis.set(xlabel="epoch", ylabel=label)

    note = "A line is the mean over seeds, a band their range."
    return [
        Panel("Training loss", partial(draw, part=0, label="cross entropy"), note),
        Panel("Validation", partial(draw, part=1, label=measure), note),
    ]


def training_curves(reports: Sequence[Report]) -> Figure:
    """Training loss and validation scores after each epoch, for each report."""
    curves = {r.method: (r.losses, r.valid_scores) for r in reports}
    return figure(curve_panels(curves, _measure(reports[0].measure)))


def _measure(name: str) -> str:
    return "Kendall's τ" if name == "τ" else _text(name)


def score_panel(reports: Sequence[Report], names: Sequence[str] = ()) -> Panel:
    """Test scores of every seed, beside the test–retest agreement and what settings alone give."""
    first, names = reports[0], names or [method_title(report.method) for report in reports]

    def draw(axis: Axes) -> None:
        for i, report in enumerate(reports):
            found, color = _finite(report.main), COLORS.get(report.method, _GRAY)
            across = i + np.linspace(-0.2, 0.2, len(found) + 2)[1:-1]
            axis.plot(across, found, ".", color=color, markersize=7)
            axis.hlines(np.nanmean(found), i - 0.3, i + 0.3, color=color)
        levels = {"test–retest agreement": first.retest, "training settings alone": first.settings}
        for (label, level), dashes in zip(levels.items(), ("--", ":"), strict=True):
            if level is not None:
                axis.axhline(float(_finite(level)), ls=dashes, color=_GRAY, label=label)
        labels = [textwrap.fill(_text(name, 30), 12) for name in names]
        axis.set_xticks(range(len(reports)), labels)
        axis.set(ylabel=_measure(first.measure), xlim=(-0.6, len(reports) - 0.4))

    return Panel("Test scores", draw, "A dot for each seed, and a line at their mean.")


def scores_by_size(zoos: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Test scores against the number of parameters, with a panel for each zoo.

    Args:
        zoos: for each method of a zoo, its `method`, `measure`, `parameters`, and the `scores` of
            all seeds.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    def draw(axis: Axes, methods: Sequence[Mapping[str, Any]]) -> None:
        for each in methods:
            found, color = _finite(np.array(each["scores"])), COLORS.get(each["method"], _GRAY)
            name = _text(method_title(each["method"]))
            sizes = [each["parameters"]] * len(found)
            axis.plot(sizes, found, ".", color=color, markersize=7, label=name)
        axis.set(xlabel="parameters", ylabel=_measure(methods[0]["measure"]), xscale="log")
        axis.margins(x=0.1)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(EngFormatter())
        axis.xaxis.set_minor_locator(NullLocator())

    note = "A dot for each seed."
    return figure(
        [Panel(_text(name), partial(draw, methods=each), note) for name, each in zoos.items()]
    )


def mixed_scores(reports: Sequence[Report]) -> Figure:
    """Test τ on networks of known architectures, and on those of held-out ones."""
    known = score_panel(reports)._replace(title="Networks of known architectures")
    if reports[0].held_out is None:
        return figure([known])
    held = score_panel([report.on_held_out for report in reports])
    return figure([known, held._replace(title="Networks of held-out architectures")])


def method_title(method: str) -> str:
    """The name of a method of prediction as readers know it."""
    return METHODS[method].title if method in METHODS else method


def optimizer_panels(comparison: Comparison) -> list[Panel]:
    """Training and held-out loss with each optimizer: mean and standard error, smoothed."""
    lost = []
    for name, trainings in comparison.groups.items():
        train = np.concatenate([comparison.curves[each].train for each in trainings])
        count = int(np.isnan(_finite(train)).any(axis=1).sum())
        lost += [f" {count} of {len(train)} diverge with {title(name)}."] if count else []
    note = f"Mean and standard error over {comparison.over_what}, smoothed.{''.join(lost)}"
    draw = partial(_draw_losses, comparison=comparison.grouped())
    return [
        Panel("Training loss", partial(draw, part="train"), note),
        Panel("Held-out loss", partial(draw, part="heldout"), note),
    ]


def optimizer_curves(comparisons: Sequence[Comparison]) -> Figure:
    """Training loss with each optimizer, with a panel for each task, as in the paper's figure 2."""
    panels = []
    for one in comparisons:
        name = f"{_TASKS.get(one.task, one.task)} on {one.dataset}"
        panels.append(optimizer_panels(one)[0]._replace(title=name))
    return figure(panels)


def barrier_curves(found: Barrier) -> Figure:
    """The loss on the line between two networks, before and after alignment."""

    def draw(axis: Axes) -> None:
        for losses, name, color in (
            (found.before, "as they are", PALETTE[3]),
            (found.after, "aligned", PALETTE[0]),
        ):
            axis.plot(found.positions, losses, ".-", color=color, label=name)
        axis.set(xlabel="from the first network to the second", ylabel="loss")

    heights = f"barrier {found.height_before:.3g}, after alignment {found.height_after:.3g}"
    return figure([Panel(heights, draw)])


def name_of_alignment(way: str) -> str:
    """A way of alignment as readers know it."""
    return way if way == "as they are" else f"aligned by {way}"


def barriers(found: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]) -> Figure:
    """For each kind of network, the training loss between pairs, by how they were aligned."""

    def draw(axis: Axes, losses: Mapping[str, np.ndarray]) -> None:
        for name, rows in losses.items():
            t = np.linspace(0, 1, rows.shape[1])
            axis.plot(t, rows.mean(0), color=ALIGNED[name], label=name_of_alignment(name))
            low, high = rows.min(0), rows.max(0)
            axis.fill_between(t, low, high, color=ALIGNED[name], alpha=0.2, lw=0)
        axis.set(xlabel="from one network to the other", ylabel="training loss")

    note = "A line is the mean over pairs, a band their range."
    panels = [
        Panel(title, partial(draw, losses=parts["train"]), note) for title, parts in found.items()
    ]
    return figure(panels)


def meta_panels(metrics: Mapping[str, np.ndarray]) -> list[Panel]:
    """Loss, meta-gradient and scalars of a learned optimizer by meta-step.

    Args:
        metrics: the columns of a meta-training's metrics.csv.
    """
    steps, panels = metrics["step"], []
    wanted = (
        ("Loss of the networks it trains", "loss", {"loss": None}, "linear"),
        ("Meta-gradient", "norm", {"gradient_norm": None}, "log"),
        ("Scale of the update", "α, β", {"alpha": "α", "beta": "β, of the network's part"}, "log"),
        ("Decay of the learning rate", "τ, p", {"delay": "τ, in steps", "power": "p"}, "log"),
        ("Momentum", "γ", {"gamma": "γ₀", "gamma_squares": "of squares"}, "linear"),
        ("Runs that exploded", "pairs of runs", {"lost": None}, "linear"),
    )

    def draw(axis: Axes, label: str, names: Mapping[str, str | None], scale: str) -> None:
        for (name, legend), color in zip(names.items(), PALETTE, strict=False):
            values, width = _finite(metrics[name]), len(steps) // 20
            smooth = width > 1 and name in ("loss", "gradient_norm")
            axis.plot(steps, values, color=color, alpha=0.35 if smooth else 1, label=legend)
            if smooth:
                axis.plot(steps, _smoothed(values, width), color=color, label=f"mean of {width}")
        axis.set(xlabel="meta-step", ylabel=label, yscale=scale)

    for heading, label, names, scale in wanted:
        found = {n: words for n, words in names.items() if np.any(_finite(metrics.get(n, 0)) > 0)}
        if found:
            chart = partial(draw, label=label, names=found, scale=scale)
            panels.append(Panel(heading, chart, _left_out(*(metrics[name] for name in found))))
    return panels


def _draw_losses(axis: Axes, comparison: Comparison, part: str) -> None:
    ends = part_ends(comparison.horizon)
    steps, means = (ends + np.append(0, ends[:-1])) / 2, []
    order = [*TITLES, *comparison.curves]
    taken = {COLORS.get(name) for name in comparison.curves}
    free = cycle([color for color in PALETTE if color not in taken] or PALETTE)
    for name in sorted(comparison.curves, key=order.index):
        losses = _finite(getattr(comparison.curves[name], part))
        smooth = np.array([_smoothed(row, 5) for row in losses])
        mean, errors = np.nanmean(smooth, 0), [standard_error(x[x == x]) for x in smooth.T]
        color = COLORS.get(name) or next(free)
        dashes = "--" if name in GRIDS else "-"
        axis.plot(steps, mean, dashes, color=color, label=_text(title(name)))
        axis.fill_between(steps, mean - errors, mean + errors, color=color, alpha=0.2, lw=0)
        means.append(np.nanmean(losses, axis=0))
    # The first steps, and runs that explode, would flatten the rest.
    low, high = np.nanmin(means), np.nanmax([mean[len(mean) // 20] for mean in means])
    if high > low:
        axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    axis.set(xlabel="training step", ylabel="loss")


def _draw_images(axis: Axes, zoo: Zoo, task: Siren) -> None:
    """Images of the first networks, in two rows, by class."""
    rows = zoo.trained[:_IMAGES]
    rows = rows[np.argsort(zoo.settings["label"][rows], kind="stable")]
    drawn = np.clip(jax.jit(jax.vmap(task.draw))(zoo.weights(rows)), 0, 1)
    drawn = np.pad(drawn, ((0, -len(drawn) % 2), (1, 1), (1, 1), (0, 0)), constant_values=1)
    grid = np.concatenate(
        [np.concatenate(pair) for pair in zip(drawn[::2], drawn[1::2], strict=True)], axis=1
    )
    axis.imshow(grid[..., 0] if grid.shape[-1] == 1 else grid, cmap="gray", vmin=0, vmax=1)
    axis.axis("off")


def edited_images(rows: Mapping[str, np.ndarray]) -> Figure:
    """Images in rows with a name: before, the targets, and after each editor."""
    drawn = figure([edited_panel("", rows)])
    words = max(len(name) for name in rows)
    columns = len(next(iter(rows.values())))
    drawn.set_size_inches(7.2, (7.0 - 0.075 * words) / columns * len(rows))
    return drawn


def edited_panel(title: str, rows: Mapping[str, np.ndarray]) -> Panel:
    """Images in rows with a name."""

    def draw(axis: Axes) -> None:
        padded = [
            np.pad(np.clip(images, 0, 1), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=1)
            for images in rows.values()
        ]
        grid = np.concatenate([np.concatenate(list(images), axis=1) for images in padded])
        axis.imshow(grid[..., 0] if grid.shape[-1] == 1 else grid, cmap="gray", vmin=0, vmax=1)
        height = len(grid) / len(rows)
        axis.set_yticks(height * (np.arange(len(rows)) + 0.5), [_text(name) for name in rows])
        axis.set_xticks([])
        axis.tick_params(length=0)
        axis.grid(visible=False)
        for spine in axis.spines.values():
            spine.set_visible(False)

    return Panel(title, draw)


def _write_sums(axis: Axes, zoo: Zoo) -> None:
    """Sums by the best, the median and the worst network, green where they are right."""
    axis.axis("off")
    success = zoo.scores["success"][:, 0]
    ranked = zoo.trained[np.argsort(success[zoo.trained])]
    task: Any = recipe_of(zoo).task  # type: ignore[attr-defined]
    problems, answer = task.problems(5, key=jax.random.key(0)), jax.jit(task.answer)
    for i, (name, place) in enumerate((("best", -1), ("median", len(ranked) // 2), ("worst", 0))):
        at, where = ranked[place], {"va": "top", "transform": axis.transAxes}
        axis.text(i / 3, 1, f"the {name}: {success[at]:.1%} right", weight="bold", **where)
        said = answer(jax.tree.map(lambda x: x[0], zoo.weights(np.array([at]))), problems.questions)
        for line, rows in enumerate(zip(problems.questions, said, problems.answers, strict=True)):
            question, found, right = (as_text(np.asarray(row)).split(".")[0] for row in rows)
            look = {"family": "monospace", "color": PALETTE[2 if found == right else 4], **where}
            axis.text(i / 3, 0.8 - line / 6, _text(f"{question}={found}"), **look)


@contextmanager
def _styled(salt: str = "unf") -> Iterator[None]:
    """Our style, and no warnings about characters that no font has or limits that are equal."""
    import matplotlib as mpl

    style: Any = {**_STYLE, "svg.hashsalt": salt}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _text(words: str, longest: int = 40) -> str:
    """Words that matplotlib shows as they are: printable, not too long, no mathematics."""
    words = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in words)
    words = words if len(words) <= longest else f"{words[: longest - 1]}…"
    return words.replace("$", r"\$")


def _finite(values: Any) -> np.ndarray:
    """Values with NaN for those that are infinite or too large to be drawn."""
    values = np.asarray(values, float)
    return np.where(np.abs(values) < 1e30, values, np.nan)


def _left_out(*columns: np.ndarray) -> str:
    lost = sum(int(np.isnan(_finite(column)).sum()) for column in columns)
    return f"{lost:,} values are not finite and left out." if lost else ""


def _smoothed(values: np.ndarray, width: int) -> np.ndarray:
    """Moving means over the finite values; near the ends over those there are."""
    window, known = np.ones(min(width, len(values))), values == values
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    return np.where(known, sums / np.maximum(np.convolve(known, window, "same"), 1), np.nan)
