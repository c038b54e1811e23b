"""Zoos that others have published, read from their files as they are."""

import ast
import csv
import gzip
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._progress import Progress, say
from ...spec import WeightSpace
from ...zoo import MixedZoo, Zoo, ZooError
from ...zoo._arrays import is_name
from .._weights import Arrays, read_file
from ..tasks._implicit import Siren
from ._recipe import RECIPES, Recipe, recipe_of

_LAYOUT = "layout"
"""Where the attributes of a zoo have the name of its layout."""


@dataclass(frozen=True)
class PublishedSiren(Siren):
    """A SIREN from a published set. The outermost pixels are on the edge of [−1, 1]².

    Images have 28×28 pixels, or 32×32 in color.
    """

    channels: int
    gain: float
    frequency: float = 30.0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, and channels of the image."""
        size = 28 if self.channels == 1 else 32
        return size, size, self.channels

    @property
    def mirrored(self) -> bool:
        """Whether mirroring an image preserves its class, as it does for color images."""
        return self.channels > 1

    @property
    def places(self) -> Float[Array, "pixels 2"]:
        """Pixels, row by row, the first ones on the edge."""
        height, width, _ = self.shape
        lines = (jnp.linspace(-1, 1, n, dtype=jnp.float32) for n in (height, width))
        return jnp.stack(jnp.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)


@dataclass(frozen=True)
class PublishedSirens:
    """What is known of the networks of a published zoo, as a `Recipe` knows it of ours.

    Attributes:
        task: what a network computes.
        signs: permutations whose neurons have odd activations.
    """

    task: PublishedSiren
    signs: tuple[str, ...]
    keeps_fixed: ClassVar[bool] = True


def known_about(zoo: Zoo | MixedZoo) -> Recipe | PublishedSirens | None:
    """What is known of a zoo's networks, besides their weights, scores, and settings."""
    if isinstance(zoo, MixedZoo):
        return None
    if zoo.kind in RECIPES:
        return recipe_of(zoo)
    layout = zoo.attributes.get(_LAYOUT)
    if layout not in _GAINS:
        return None
    return PublishedSirens(_siren(zoo.space, layout), tuple(zoo.space.sizes))


_GAINS = {"dws-siren": 1.0, "nfn-siren": 0.5}
"""What outputs are multiplied by so that, with ½ added, values are from 0 to 1."""


def _siren(space: WeightSpace, layout: str) -> PublishedSiren:
    return PublishedSiren(space.axis_sizes["out"], _GAINS[layout])


def read_published(folder: str | os.PathLike, layout: str, *, show_progress: bool = True) -> Zoo:
    """A zoo that others have published, in memory.

    Args:
        folder: where its files are.
        layout: one of `LAYOUTS`.
        show_progress: show the rate and the time left on standard error.

    Raises:
        ZooError: if the layout is unknown, there are no such files, or one of them does not fit.
    """
    if layout not in LAYOUTS:
        raise ZooError(f"unknown layout {layout!r}; expected one of {list(LAYOUTS)}")
    if not Path(folder).is_dir():
        raise ZooError(f"{folder}: no such folder")
    return LAYOUTS[layout](Path(folder), show_progress)


class _File(NamedTuple):
    """The file of a network, and what it is of."""

    file: Path
    image: int
    label: int
    heldout: bool


def _read_dws(folder: Path, show: bool) -> Zoo:
    """SIRENs of DWSNets: a folder for each, such as mnist_png_training_2_23089."""
    found = []
    for file in sorted(folder.rglob("*.pth")):
        for part in reversed(file.relative_to(folder).parts[:-1]):
            if match := re.fullmatch(r".*_(training|train|testing|test)_(\d+)_(\d+)", part):
                kind, label, number = match.groups()
                found.append(_File(file, int(number), int(label), kind.startswith("test")))
                break
    expected = "folders such as mnist_png_training_2_23089 with a .pth file each"
    return _read_sirens("dws-siren", folder, found, expected, show)


def _read_nfn(folder: Path, show: bool) -> Zoo:
    """SIRENs of NFN: folders such as randinit_smaller_5s, with files such as net123.pth.

    Numbers go through the training images and then the test images.
    """
    found = []
    for file in sorted(folder.rglob("net*.pth")):
        number, label = re.fullmatch(r"net(\d+)", file.stem), re.search(r"_(\d)s", file.parent.name)
        if number and label:
            found.append(_File(file, int(number[1]), int(label[1]), heldout=False))
    expected = "folders such as randinit_smaller_5s with files such as net123.pth"
    if not found:
        raise ZooError(f"{folder}: no networks; expected {expected}")
    colors = len(_layers(read_file(found[0].file), found[0].file)[-1][1])
    first = 60_000 if colors == 1 else 50_000
    found = [each._replace(heldout=each.image >= first) for each in found]
    return _read_sirens("nfn-siren", folder, found, expected, show)


def _read_sirens(layout: str, folder: Path, found: list[_File], expected: str, show: bool) -> Zoo:
    if not found:
        raise ZooError(f"{folder}: no networks; expected {expected}")
    first = _layers(read_file(found[0].file), found[0].file)
    names = ["[in]", *(f"h{i}" for i in range(len(first) - 1)), "[out]"]
    spec, shapes = {}, {}
    for i, (source, target) in enumerate(pairwise(names)):
        spec[f"layer{i}"] = {"kernel": f"{source} {target}", "bias": target}
        kernel, bias = (jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in first[i])
        shapes[f"layer{i}"] = {"kernel": kernel, "bias": bias}
    space = WeightSpace.from_spec(spec, shapes)
    networks = []
    with Progress("reading networks", len(found), unit="networks", show=show) as progress:
        for each in found:
            layers = _layers(read_file(each.file), each.file)
            sizes, expected_sizes = ([kernel.shape for kernel, _ in x] for x in (layers, first))
            if sizes != expected_sizes:
                raise ZooError(
                    f"{each.file}: kernels of {sizes}, and {expected_sizes} in {found[0].file}; "
                    "put networks of one size in a folder"
                )
            networks.append(
                {f"layer{i}": {"kernel": k, "bias": b} for i, (k, b) in enumerate(layers)}
            )
            progress.advance()
    stacked = jax.tree.map(lambda *x: np.stack(x), *networks)
    finite = np.ones(len(found), bool)
    for leaf in jax.tree.leaves(stacked):
        finite &= np.isfinite(leaf).reshape(len(found), -1).all(axis=1)
    if not finite.any():
        raise ZooError(f"{folder}: all networks have weights that are not finite")
    if not finite.all():
        count, bad = np.sum(~finite), found[int(np.argmin(finite))].file
        say(f"left out: {count} networks with weights that are not finite, such as {bad}")
    found = [each for each, good in zip(found, finite, strict=True) if good]
    stacked = jax.tree.map(lambda x: x[finite], stacked)
    task = _siren(space, layout)

    def brightness(params: PyTree) -> Array:
        return jnp.mean(task.draw(params))

    scores = {"brightness": np.asarray(jax.lax.map(brightness, stacked, batch_size=256))}
    # Images for testing have numbers of their own in one of the sets.
    numbers = np.array([each.image + 10_000_000 * each.heldout for each in found], float)
    settings = {
        "image": numbers,
        "label": np.array([each.label for each in found], float),
        "heldout": np.array([each.heldout for each in found], float),
    }
    if not settings["heldout"].any():
        del settings["heldout"]
        say("no network is of a test image; images will be divided at random")
    zoo = Zoo.from_arrays(stacked, scores, space, settings=settings)
    zoo.attributes[_LAYOUT] = layout
    return zoo


def _layers(arrays: Arrays, file: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Kernels and biases in order, as they multiply from the right."""
    weights = [x for name, x in arrays.items() if name.endswith("weight")]
    biases = [x for name, x in arrays.items() if name.endswith("bias")]
    fits = len(weights) == len(biases) > 1 and all(
        w.ndim == 2 and b.shape == w.shape[:1] for w, b in zip(weights, biases, strict=True)
    )
    if not fits or any(a.shape[0] != b.shape[1] for a, b in pairwise(weights)):
        shapes = {name: x.shape for name, x in arrays.items()}
        raise ZooError(f"{file}: expected the weights and biases of an MLP, and found {shapes}")
    return [(np.ascontiguousarray(w.T), b) for w, b in zip(weights, biases, strict=True)]


_CNN_SCORES = ("test_accuracy", "test_loss", "train_accuracy", "train_loss")


def _read_small_cnns(folder: Path, show: bool) -> Zoo:
    """The Small CNN Zoo: weights.npy, layout.csv and metrics.csv.gz; networks at the last step."""
    places = {name: folder / name for name in ("weights.npy", "layout.csv")}
    plain = folder / "metrics.csv"
    places["metrics"] = metrics = plain if plain.exists() else folder / "metrics.csv.gz"
    if missing := [path for path in places.values() if not path.exists()]:
        raise ZooError(
            f"{missing[0]}: no such file; expected weights.npy, layout.csv, and metrics.csv.gz"
        )
    try:
        weights = np.load(places["weights.npy"], mmap_mode="r", allow_pickle=False)
        layout = _read_csv(places["layout.csv"])
        table = _read_csv(metrics)
        arrays = [
            (row["varname"].removesuffix(":0"), tuple(ast.literal_eval(row["shape"])),
             int(row["start_idx"]), int(row["end_idx"]))
            for row in layout
        ]  # fmt: skip
        steps = np.array([int(float(row["step"])) for row in table])
    except (OSError, ValueError, KeyError, SyntaxError) as error:
        raise ZooError(f"{folder}: not a Small CNN Zoo ({error!r})") from error
    if len(table) != len(weights):
        raise ZooError(f"{folder}: {len(weights)} rows of weights, and {len(table)} of metrics")
    spec, shapes = _cnn_spec([(name, shape) for name, shape, *_ in arrays], folder)
    space = WeightSpace.from_spec(spec, shapes)
    rows = np.flatnonzero(steps == steps.max())
    kept = []
    with Progress("reading networks", len(rows), unit="networks", show=show) as progress:
        for some in np.array_split(rows, -(-len(rows) // 1000)):
            kept.append(np.asarray(weights[some], np.float32))
            progress.advance(len(some))
    values = np.concatenate(kept)
    measured = {name: np.array([float(table[row][name] or "nan") for row in rows])
                for name in _CNN_SCORES if name in table[0]}  # fmt: skip
    finite = np.isfinite(values).all(axis=1)
    for column in measured.values():
        finite &= np.isfinite(column)
    if not finite.all():
        say(f"left out: {np.sum(~finite)} networks with weights or scores that are not finite")
    values, rows = values[finite], rows[finite]
    scores = {name: column[finite] for name, column in measured.items()}
    leaves = {
        name: values[:, start:end].reshape(len(rows), *shape) for name, shape, start, end in arrays
    }
    chosen = [table[row] for row in rows]
    settings = {
        name.removeprefix("config."): _column([row[name] for row in chosen])
        for name in table[0]
        if name.startswith("config.") and is_name(name.removeprefix("config."))
    }
    return Zoo.from_arrays(leaves, scores, space, settings=settings)


def _cnn_spec(
    arrays: list[tuple[str, tuple[int, ...]]], folder: Path
) -> tuple[dict[str, str], dict[str, Any]]:
    """Convolutions and a linear layer behind a global average, as a specification."""
    kernels = [name for name, shape in arrays if len(shape) > 1]
    names = ["[in]", *(f"c{i}" for i in range(len(kernels) - 1)), "[out]"]
    spec, last = {}, -1
    for name, shape in arrays:
        last += len(shape) > 1
        if len(shape) not in (1, 2, 4) or last < 0:
            raise ZooError(f"{folder}: {name} has shape {shape}; expected kernels and biases")
        window = f"[y{last}] [x{last}] " if len(shape) == 4 else ""
        both = f"{window}{names[last]} {names[last + 1]}"
        spec[name] = both if len(shape) > 1 else names[last + 1]
    shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in arrays}
    return spec, shapes


def _read_csv(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def _column(cells: list[str]) -> np.ndarray:
    """Numbers if all cells are, else words."""
    try:
        return np.array([float(cell or "nan") for cell in cells])
    except ValueError:
        return np.array(cells)


LAYOUTS: dict[str, Callable[[Path, bool], Zoo]] = {
    "dws-siren": _read_dws,
    "nfn-siren": _read_nfn,
    "small-cnn-zoo": _read_small_cnns,
}
"""Published zoos by name: the SIRENs of DWSNets and of NFN, and the Small CNN Zoo."""
