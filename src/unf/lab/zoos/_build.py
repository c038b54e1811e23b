"""Building a zoo: train chunk after chunk, store each when it is finished, resume after a stop."""

import dataclasses
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ..._devices import is_first, wait_for_all
from ..._progress import Progress, say
from ...spec._tree import without_roles
from ...zoo import Status, Zoo, ZooError
from ...zoo._arrays import array_name
from ...zoo._store import Store, read_attributes
from ...zoo._zoo import FORMAT, SEED, built_columns, stored_arrays
from .._folder import first_difference
from ._recipe import Recipe
from ._train import Trained, train_in_parts


def build(
    recipe: Recipe,
    path: str | os.PathLike,
    *,
    models: int,
    seed: int = 0,
    chunk: int | None = None,
    resume: bool = False,
    repair: bool = False,
    show_progress: bool = True,
) -> Zoo:
    """Train a zoo and store it.

    The arguments alone determine the zoo. A chunk of models shares a batch size, is trained by
    one compiled function and stored as one file of each array; it is the unit of work and of
    recovery. The processes of `jax.distributed` share the chunks. If the device has no memory for
    a chunk, fewer models are trained at a time.

    Args:
        recipe: what to train.
        path: the folder of the zoo.
        models: how many networks.
        seed: the seed of everything random.
        chunk: how many models are trained at once; by default 256, fewer in a small zoo.
        resume: continue an unfinished zoo; finished models are kept.
        repair: with `resume`, train the models of damaged chunks again.
        show_progress: show the rate and the time left on standard error.

    Raises:
        ZooError: if there is a zoo already and `resume` is False, it was built with other
            arguments, or it cannot be written.
    """
    if models < 1 or seed < 0 or (chunk is not None and chunk < 1):
        raise ZooError(
            f"models is {models}, chunk {chunk} and seed {seed}; expected at least 1, 1 and 0"
        )
    if recipe.most_models is not None and models > recipe.most_models:
        raise ZooError(
            f"models is {models}; expected at most {recipe.most_models}, one for each image or copy"
        )
    recipe, chunk = _resolved(recipe, chunk, models, Path(path), resume)
    store = Store(path, models, chunk)
    if is_first():
        _prepare(store, recipe, seed, resume, repair)
        for index in {index for index, _ in Zoo(path).damage()} if repair else ():
            store.forget(index)
    wait_for_all("the zoo exists")
    status = store.status()
    missing = [i for i in range(store.num_chunks) if np.any(status[store.rows(i)] == 0)]
    todo = [i for i in missing if i % jax.process_count() == jax.process_index()]
    _check_disk(store, recipe, len(todo))
    _train(store, recipe, todo, seed, show_progress and is_first())
    wait_for_all("the zoo is finished")
    return Zoo(path)


def _resolved(
    recipe: Recipe, chunk: int | None, models: int, path: Path, resume: bool
) -> tuple[Recipe, int]:
    """The recipe and the chunk with all defaults chosen: as in the zoo to resume, if any."""
    if resume and (path / "zarr.json").exists():
        stored = read_attributes(path)
        recipe = recipe.resolved(like=stored.get("config", {}))
        chunk = stored.get("chunk") if chunk is None else chunk
    recipe = recipe.resolved()
    if chunk is None:  # two chunks for every batch size, of a multiple of 4 for several devices
        each = -(-models // (2 * len(recipe.batch_sizes)))
        chunk = max(1, min(256, each if each < 4 else -(-each // 4) * 4))
    return recipe, chunk


def _prepare(store: Store, recipe: Recipe, seed: int, resume: bool, repair: bool) -> None:
    """Create the arrays, or check that existing ones belong to the same zoo."""
    attributes = describe(recipe, models=store.models, seed=seed, chunk=store.chunk)
    exists = (store.path / "zarr.json").exists()
    if exists and not resume:
        raise ZooError(
            f"{store.path}: there is a zoo already; continue it with resume=True, or choose "
            "another folder"
        )
    if exists:
        found, wanted = map(_settings, (read_attributes(store.path), attributes))
        if differs := first_difference(found, wanted):
            raise ZooError(
                f"{store.path}: the zoo was built with {differs}; resume it with the original "
                "arguments, or choose another folder"
            )
    elif store.path.exists() and not store.path.is_dir():
        raise ZooError(f"{store.path}: a file, not a folder; choose another name")
    if repair or not exists:
        scores, settings = built_columns(attributes["choices"])
        arrays = stored_arrays(recipe.task.space, [*scores.values(), *settings.values()])
        store.create(arrays | SEED, attributes)


def describe(recipe: Recipe, *, models: int, seed: int, chunk: int) -> dict[str, Any]:
    """The attributes of a zoo, as they are stored."""
    drawn = jax.eval_shape(
        lambda: {**recipe.draw(key=jax.random.key(0)), **recipe.assigned(jnp.asarray(0))}
    )
    attributes = {
        "format": FORMAT,
        "recipe": recipe.name,
        "config": dataclasses.asdict(recipe),
        "models": models,
        "seed": seed,
        "chunk": chunk,
        "choices": sorted(drawn.keys() - set(recipe.unrecorded)),
        "space": recipe.task.space.to_json(),
    }
    return json.loads(json.dumps(attributes))


def _settings(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a zoo that must not change, with those of its recipe first."""
    space = without_roles(attributes.get("space", ""))
    return {**dict(attributes.get("config", {})), **attributes, "config": None, "space": space}


def _check_disk(store: Store, recipe: Recipe, chunks: int) -> None:
    """Refuse to train what the disk cannot hold."""
    needed = chunks * store.chunk * 4 * recipe.task.space.num_weights
    free = shutil.disk_usage(store.path).free
    if free < needed:
        raise ZooError(
            f"{store.path}: the disk has {free / 2**30:.1f} GiB free and the remaining models need "
            f"{needed / 2**30:.1f} GiB; free some space or build fewer models"
        )


def _train(store: Store, recipe: Recipe, todo: list[int], seed: int, show: bool) -> None:
    """Train chunks one after the other, and store each while the next one is trained."""
    sizes = np.random.default_rng(seed).permutation(np.resize(recipe.batch_sizes, store.num_chunks))
    data = jax.device_put(recipe.task.data())
    keys = jax.random.split(jax.random.key(seed), store.models)
    total, at_once = len(todo) * store.chunk * max(recipe.steps, 1), store.chunk
    with (
        Progress(recipe.name, total, unit="model-steps", show=show) as progress,
        ThreadPoolExecutor(1) as writer,
    ):
        written = []
        for index in todo:
            rows, size = store.rows(index), int(sizes[index])
            # The last chunk is filled up, so that nothing has to be compiled for it.
            filled = np.resize(np.arange(rows.start, rows.stop), store.chunk)
            chosen = keys[filled]
            trained, fits = train_in_parts(
                recipe, chosen, size, data,
                at_once=at_once, rows=filled, on_model_steps=progress.advance,
            )  # fmt: skip
            if fits < at_once:
                say(f"{recipe.name}: no memory for {at_once} models at a time; training {fits}")
                at_once = fits
            if written:
                written.pop().result()
            written.append(writer.submit(_store, store, recipe, index, chosen, trained, size))
            progress.advance(0, f"chunk {index + 1} of {store.num_chunks}")
        if written:
            written.pop().result()


def _store(
    store: Store,
    recipe: Recipe,
    index: int,
    keys: Key[Array, " chunk"],
    trained: Trained,
    batch_size: int,
) -> None:
    trained = jax.device_get(trained)
    names = [array_name(leaf.path) for leaf in recipe.task.space.leaves]
    values = dict(zip(names, jax.tree.leaves(trained.params), strict=True))
    told = trained.choices.keys() - set(recipe.unrecorded)
    values |= {f"choices.{name}": trained.choices[name] for name in told}
    values |= {
        "success": trained.success,
        "loss": trained.loss,
        "batch_size": np.full(store.chunk, batch_size, np.int32),
        "seed": jax.random.key_data(keys),
        "status": np.where(trained.finite, Status.TRAINED, Status.DIVERGED).astype(np.uint8),
    }
    store.write(index, {name: np.asarray(value) for name, value in values.items()})
