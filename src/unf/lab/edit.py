"""Editing images through the weights of their implicit networks: `unf reproduce edit`."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._persistence import write_whole
from .._progress import say
from ..models import UNF, Editor, average, editor, fit, save_model
from ..models._reader import initial_gains
from ..nn import DeepSetLinear
from ..spec import WeightSpace
from ..zoo import Zoo, ZooError
from . import plots
from ._folder import claim, provenance
from ._scores import summary
from .tasks import ImplicitImage
from .zoos import ImplicitZoo, build
from .zoos._recipe import recipe_of

BATCH, LEARNING_RATE = 64, 3e-3
IMAGES = "images.npy"
"""The file with what the first editor makes of some images."""
Images = np.ndarray
"""Images with 8 bits per value, of shape [images, height, width, channels]."""


def dilate(images: Images) -> Images:
    """The largest value of each pixel and its eight neighbors."""
    from scipy.ndimage import maximum_filter  # it takes a while to import

    return maximum_filter(images, (1, 3, 3, 1), mode="constant", cval=0)


def erode(images: Images) -> Images:
    """The smallest value of each pixel and its eight neighbors."""
    from scipy.ndimage import minimum_filter

    return minimum_filter(images, (1, 3, 3, 1), mode="constant", cval=255)


def raise_contrast(images: Images) -> Images:
    """Values half as far again from the middle, as far as there is room."""
    moved = 1.5 * (images.astype(np.float32) - 127.5) + 127.5
    return np.clip(np.round(moved), 0, 255).astype(np.uint8)


EDITS: dict[str, Callable[[Images], Images]] = {
    "dilate": dilate,
    "erode": erode,
    "contrast": raise_contrast,
}
"""What is done to images, by name."""


class _DeepSet(eqx.Module):
    """Deep Set layers on every leaf, which do not know where a weight belongs."""

    layers: tuple[DeepSetLinear, ...]
    space: WeightSpace = eqx.field(static=True)

    def __call__(self, x: PyTree, key: PRNGKeyArray | None = None) -> PyTree:
        for layer in self.layers[:-1]:
            x = jax.tree.map(jax.nn.relu, layer(x))
        return self.layers[-1](x)


def _deep_set(space: WeightSpace, key: PRNGKeyArray) -> Editor:
    widths, keys = (1, 16, 16, 16, 1), jax.random.split(key, 4)
    layers = tuple(DeepSetLinear(*widths[i : i + 2], key=each) for i, each in enumerate(keys))
    return Editor(_DeepSet(layers, space), initial_gains(space, 1))


def _unf(space: WeightSpace, key: PRNGKeyArray) -> Editor:
    backbone = UNF(space.relax(), 1, 1, key=key, num_layers=4)
    return Editor(backbone, initial_gains(space, 1))


Make = Callable[[WeightSpace, PRNGKeyArray], Editor]
METHODS: dict[str, tuple[str, Make]] = {
    "deepset": ("Deep Set layers", _deep_set),
    "unf": ("UNF layers", _unf),
    "editor": ("Editor", lambda space, key: editor(space, key=key)),
    "editor-8": (
        "Editor, mean of 8 networks",
        lambda space, key: editor(space, key=key, num_outputs=8),
    ),
}
"""Names in tables, and how editors are made."""


class EditError(ValueError):
    """The folder of an editing experiment cannot be used: why, and the remedy."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How large the experiment is; all editors take as many steps, with batches of 64."""

    recipe: ImplicitZoo
    models: int | None
    steps: int
    methods: tuple[str, ...] = tuple(METHODS)


FULL = Setting(ImplicitZoo(steps=500), None, 20_000)
SMALL = Setting(
    ImplicitZoo(dataset="digits", hidden=16, steps=300), 300, 100, methods=("deepset", "unf")
)


@dataclasses.dataclass(frozen=True)
class Result:
    """Mean squared errors on test images, in values from 0 to 1, times 100.

    Attributes:
        unchanged: the error without an editor, by edit.
        mean_image: that of the mean target of the training images, by edit, which every editor
            should be ahead of.
        errors: those of each seed, by edit and method.
        about: parameters, seconds and the like, by edit and method.
        out: the folder of everything.
    """

    unchanged: dict[str, float]
    mean_image: dict[str, float]
    errors: dict[str, dict[str, list[float]]]
    about: dict[str, dict[str, Any]]
    out: Path

    def to_json(self) -> str:
        """Everything, with versions, machine and date."""
        known = {"unchanged": self.unchanged, "mean_image": self.mean_image}
        known |= {"errors": self.errors, "about": self.about}
        return json.dumps({**known, **provenance()}, indent=1)

    def __str__(self) -> str:
        edits = list(self.errors)
        lines = [f"| MSE × 100 | {' | '.join(edits)} | parameters | seconds |"]
        lines.append("|---" * (len(edits) + 3) + "|")
        for title, known in (("no editor", self.unchanged), ("mean target", self.mean_image)):
            cells = [f"{known[name]:.3f}" for name in edits]
            lines.append(f"| {title} | {' | '.join(cells)} | | |")
        for method in self.errors[edits[0]]:
            cells = [summary(np.array(self.errors[name][method]), 3) for name in edits]
            each = [self.about[name][method] for name in edits]
            cells += [f"{each[0]['parameters']:,}", f"{sum(x['seconds'] for x in each):.0f}"]
            lines.append(f"| {METHODS[method][0]} | {' | '.join(cells)} |")
        lines += [
            "",
            "errors of values from 0 to 1 on test images; ± is the standard error over seeds",
            "mean target: the mean of the edited training images, whatever the network",
            f"pictures and numbers in {self.out}",
        ]
        return "\n".join(lines)


def run(
    setting: Setting,
    out: str | os.PathLike,
    *,
    edits: Sequence[str] = tuple(EDITS),
    seed: int = 0,
    seeds: int = 5,
    folder: str | None = None,
    zoo_folder: Path | None = None,
    show_progress: bool = True,
) -> Result:
    """Build the zoo and train every editor; what an earlier call has finished is kept.

    Args:
        setting: `FULL` or `SMALL`.
        out: the folder for the zoo, the editors and the results.
        edits: what is done to images, names of `EDITS`.
        seed: the seed of the zoo.
        seeds: editors of each method.
        folder: the folder of the datasets' files; by default the one that UNF_DATA names.
        zoo_folder: a zoo of implicit networks to use, in place of a new one.
        show_progress: show rates and the time left on standard error.

    Raises:
        ZooError: if the folder has another zoo, or the zoo has no implicit networks.
        EditError: if an edit is unknown, or the folder has editors that were trained otherwise.
    """
    if unknown := [name for name in edits if name not in EDITS]:
        raise EditError(f"unknown edit {unknown[0]!r}; expected some of {list(EDITS)}")
    target, started = Path(out), time.perf_counter()
    if zoo_folder is None:
        recipe = dataclasses.replace(setting.recipe, data_folder=folder or "")
        zoo = build(
            recipe, target / "zoo", models=setting.models or recipe.most_models, seed=seed,
            chunk=min(1000, setting.models or 1000), resume=True, show_progress=show_progress,
        )  # fmt: skip
    else:
        zoo = Zoo(zoo_folder)
    if zoo.kind != ImplicitZoo.name:
        raise ZooError(f"{zoo.path}: a zoo of kind {zoo.kind}; expected one of inr")
    recipe: Any = recipe_of(zoo)
    split = zoo.split()
    weights = {name: zoo.weights(rows) for name, rows in split._asdict().items()}
    numbers = zoo.settings["image"].astype(int)
    result = Result({}, {}, {}, {}, target)
    for name in edits:
        changed = EDITS[name](recipe.task.images)
        wanted = {part: changed[numbers[rows]] for part, rows in split._asdict().items()}
        result.unchanged[name] = _mean_error(recipe.task, weights["test"], wanted["test"])
        result.mean_image[name] = _mean_image_error(wanted["train"], wanted["test"])
        result.errors[name], result.about[name] = {}, {}
        shown: dict[str, np.ndarray] = {}
        for method in setting.methods:
            job = {"what": "editing", "edit": name, "method": method, "steps": setting.steps}
            job |= {"zoo": zoo.origin, "seeds": list(range(seeds)), "signs": list(recipe.signs)}
            job |= {"learning_rate": LEARNING_RATE}
            found, images = _train(
                job, recipe, weights, wanted, target / f"{name}-{method}", show_progress
            )
            result.errors[name][method] = found["errors"]
            result.about[name][method] = {k: v for k, v in found.items() if k != "errors"}
            shown[METHODS[method][0]] = images
            if show_progress:
                say(f"{name}, {METHODS[method][0]}: {time.perf_counter() - started:.0f} s so far")
        before = np.asarray(jax.vmap(recipe.task.draw)(_first(weights["test"])))
        after = wanted["test"][:_SHOWN].astype(np.float32) / 255
        plots.save(
            plots.edited_images({"image": before, "wanted": after, **shown}),
            target / f"{name}.png",
        )
    write_whole(target / "edit.json", result.to_json())
    write_whole(target / "edit.md", f"{result}\n")
    return result


_SHOWN = 12
"""Images in a picture."""


def _first(weights: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[:_SHOWN], weights)


def _train(
    job: dict[str, Any],
    recipe: ImplicitZoo,
    weights: Mapping[str, PyTree],
    wanted: Mapping[str, Images],
    folder: Path,
    show_progress: bool,
) -> tuple[dict[str, Any], np.ndarray]:
    """Errors on the test images and the like, and what the first editor makes of some of them."""
    task = recipe.task
    job, file, pictures = json.loads(json.dumps(job)), folder / "result.json", folder / IMAGES
    known = json.loads(file.read_text()) if file.is_file() else None
    checkpoints = claim(
        folder, job, outputs=("result.json", IMAGES, "editor-*"),
        known=known and known["job"], resume=True, overwrite=False, error=EditError,
    )  # fmt: skip
    if known and pictures.is_file():
        return known["found"], np.load(pictures)
    started, keys = time.perf_counter(), [jax.random.key(seed) for seed in job["seeds"]]
    make = METHODS[job["method"]][1]
    models = [make(task.space, key) for key in keys]
    count = len(wanted["train"])
    fitted = fit(
        models, weights["train"], wanted["train"],
        key=jnp.stack(keys), validation=(weights["valid"], wanted["valid"]),
        loss=partial(_error, task), epochs=max(1, round(job["steps"] * BATCH / count)),
        batch_size=BATCH, learning_rate=LEARNING_RATE, signs=recipe.signs, patience=None,
        checkpoints=checkpoints,
        progress=f"{job['edit']}, {METHODS[job['method']][0]}" if show_progress else False,
    )  # fmt: skip
    errors = [100 * each.score(weights["test"], wanted["test"])["loss"] for each in fitted.model]
    sizes = [x.size for x in jax.tree.leaves(eqx.filter(models[0], eqx.is_inexact_array))]
    found = {
        "errors": errors,
        "best_valid": (100 * fitted.history["valid_loss"].min(axis=0)).tolist(),
        "parameters": sum(sizes),
        "steps": job["steps"],
        "learning_rate": job["learning_rate"],
        "seconds": time.perf_counter() - started,
    }
    drawn = jax.vmap(average(task.draw))(fitted.model[0].predict(_first(weights["test"])))
    for seed, model in zip(job["seeds"], fitted.model, strict=True):
        if model.model.made_by is not None:
            save_model(folder / f"editor-{seed}.safetensors", model)
    with pictures.open("wb") as stream:
        np.save(stream, np.asarray(drawn))
    write_whole(file, json.dumps({"job": job, "found": found}, indent=1))
    return found, np.asarray(drawn)


def _error(task: ImplicitImage, edited: PyTree, wanted: Array) -> Float[Array, ""]:
    """The mean squared error of one image, in values from 0 to 1."""
    drawn = average(task.draw)(edited)
    return jnp.mean((drawn - wanted.astype(drawn.dtype) / 255) ** 2)


def _mean_image_error(train: Images, test: Images) -> float:
    """The mean squared error of the mean training image, times 100."""
    mean = np.mean(train, axis=0, dtype=np.float64) / 255
    return 100 * float(np.mean([np.mean((mean - image / 255) ** 2) for image in test]))


def _mean_error(task: ImplicitImage, weights: PyTree, wanted: Images) -> float:
    """That of many networks as they are, times 100."""

    @jax.jit
    def error(one: PyTree, image: Array) -> Array:
        return _error(task, jax.tree.map(lambda x: x[..., None], one), image)

    found = jax.lax.map(lambda pair: error(*pair), (weights, jnp.asarray(wanted)), batch_size=200)
    return 100 * float(jnp.mean(found))
