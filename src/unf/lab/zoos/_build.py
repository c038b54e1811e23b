"""Building a zoo: train chunk after chunk, store each as it is done, resume where one stopped."""

import dataclasses
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from ..._devices import is_first, wait_for_all
from ...zoo._errors import ZooError
from ...zoo._store import Status, Store, read_attributes
from ...zoo._zoo import FORMAT, Zoo, array_name, stored_arrays
from .._progress import Progress, say
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

    The zoo follows from its options and `seed` alone. A chunk of models shares a
    batch size, is trained by one compiled function and stored as one file of each array: it is
    the unit of work and of recovery. Several processes that `jax.distributed` knows share the
    chunks. If the device has no memory for a chunk, fewer models are trained at a time.

    Args:
        recipe: what to train.
        path: the folder of the zoo.
        models: how many.
        seed: of everything random.
        chunk: models trained at once; by default 256, fewer in a small zoo.
        resume: continue a zoo that was begun; finished models are kept.
        repair: with `resume`, train models again whose stored chunks are damaged.
        show_progress: show rate and time left on standard error.

    Raises:
        ZooError: if there is a zoo already and not `resume`, it was begun with other options,
            or it cannot be written.
    """
    if models < 1 or seed < 0 or (chunk is not None and chunk < 1):
        raise ZooError(
            f"models is {models}, chunk {chunk} and seed {seed}; expected at least 1, 1 and 0"
        )
    recipe, chunk = _settled(recipe, chunk, models, path if resume else None)
    store = Store(path, models, chunk)
    if is_first():
        _prepare(store, recipe, seed, resume, repair)
        for index in sorted({index for index, _ in Zoo(path).damage()}) if repair else []:
            store.forget(index)
    wait_for_all("the zoo is there")
    todo = [i for i in _missing(store) if i % jax.process_count() == jax.process_index()]
    _check_room(store, recipe, len(todo))
    sizes = batch_sizes_of(recipe, store.num_chunks, seed)
    data = jax.device_put(recipe.data())
    keys = jax.random.split(jax.random.key(seed), models)
    total = len(todo) * chunk * max(recipe.steps, 1)
    show = show_progress and is_first()
    with (
        Progress(recipe.name, total, unit="model-steps", show=show) as progress,
        ThreadPoolExecutor(1) as writer,
    ):
        written, at_once = None, chunk
        for index in todo:
            trained, room = train_in_parts(
                recipe, _chunk_keys(keys, store, index), sizes[index], data, at_once=at_once,
                on_model_steps=progress.advance,
            )  # fmt: skip
            if room < at_once:
                say(f"{recipe.name}: no memory for {at_once} models at a time; training {room}")
                at_once = room
            if written is not None:
                written.result()
            written = writer.submit(_store_chunk, store, recipe, index, keys, trained, sizes[index])
            progress.advance(0, f"chunk {index + 1} of {store.num_chunks}")
        if written is not None:
            written.result()
    wait_for_all("the zoo is built")
    return Zoo(path)


def default_chunk(models: int, recipe: Recipe) -> int:
    """256, or so few that every batch size has two chunks; a multiple of 4 for several devices."""
    each = -(-models // (2 * len(recipe.batch_sizes)))
    return max(1, min(256, each if each < 4 else -(-each // 4) * 4))


def batch_sizes_of(recipe: Recipe, num_chunks: int, seed: int) -> list[int]:
    """The batch size of each chunk: all equally often, in random order."""
    sizes = np.resize(recipe.batch_sizes, num_chunks)
    return np.random.default_rng(seed).permutation(sizes).tolist()


def _settled(
    recipe: Recipe, chunk: int | None, models: int, path: str | os.PathLike | None
) -> tuple[Recipe, int]:
    """What the caller left open: as in the zoo that is there, or as fits this machine."""
    if path is not None and (Path(path) / "zarr.json").exists():
        stored = read_attributes(path)
        recipe = recipe.resolved(like=stored.get("config", {}))
        chunk = stored.get("chunk") if chunk is None else chunk
    recipe = recipe.resolved()
    return recipe, default_chunk(models, recipe) if chunk is None else chunk


def _prepare(store: Store, recipe: Recipe, seed: int, resume: bool, repair: bool) -> None:
    """Make the arrays, or check that those there were begun with the same options."""
    attributes = json.loads(
        json.dumps(describe(recipe, models=store.models, seed=seed, chunk=store.chunk))
    )
    if (store.path / "zarr.json").exists():
        if not resume:
            raise ZooError(
                f"{store.path}: there is a zoo already; continue it with --resume, or choose "
                "another folder"
            )
        _check_same(read_attributes(store.path), attributes, store.path)
    elif store.path.exists() and not store.path.is_dir():
        raise ZooError(f"{store.path}: a file, not a folder; choose another name")
    if repair or not (store.path / "zarr.json").exists():
        store.create(stored_arrays(recipe.space, attributes["choices"]), attributes)


def _check_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    def flat(attributes: dict[str, Any]) -> dict[str, Any]:
        rest = {k: v for k, v in attributes.items() if k != "config"}
        return rest | dict(attributes.get("config", {}))

    ours, theirs = flat(wanted), flat(found)
    for name in dict.fromkeys([*theirs, *ours]):
        if ours.get(name) != theirs.get(name):
            values = (
                "" if name == "space" else f": {theirs.get(name)!r} there, {ours.get(name)!r} now"
            )
            raise ZooError(
                f"{path}: the zoo was begun with another {name}{values}; resume with the options "
                "it was begun with, or choose another folder"
            )


def _missing(store: Store) -> list[int]:
    status = store.status()
    chunks = range(store.num_chunks)
    return [i for i in chunks if np.any(status[store.rows(i)] == Status.MISSING)]


def _check_room(store: Store, recipe: Recipe, chunks: int) -> None:
    """Refuse before training what the disk cannot hold."""
    weights = sum(int(np.prod(leaf.shape)) for leaf in recipe.space.leaves)
    needed = chunks * store.chunk * 4 * weights
    free = shutil.disk_usage(store.path).free
    if free < needed:
        raise ZooError(
            f"{store.path}: the disk has {free / 2**30:.1f} GiB free and the models to come need "
            f"{needed / 2**30:.1f} GiB; free some space or build fewer models"
        )


def _chunk_keys(keys: Key[Array, " models"], store: Store, index: int) -> Key[Array, " chunk"]:
    """Keys of a chunk's models; the last chunk is filled up, so that it compiles to the same."""
    rows = store.rows(index)
    return keys[np.resize(np.arange(rows.start, rows.stop), store.chunk)]


def _store_chunk(
    store: Store,
    recipe: Recipe,
    index: int,
    keys: Key[Array, " models"],
    trained: Trained,
    batch_size: int,
) -> None:
    trained = jax.device_get(trained)
    rows = store.rows(index)
    leaves = jax.tree.leaves(trained.params)
    values = {
        array_name(leaf.path): value
        for leaf, value in zip(recipe.space.leaves, leaves, strict=True)
    }
    values |= {f"choices.{name}": value for name, value in trained.choices.items()}
    values |= {
        "success": trained.success,
        "loss": trained.loss,
        "batch_size": np.full(store.chunk, batch_size, np.int32),
        "seed": np.asarray(jax.random.key_data(keys[rows])),
        "status": np.where(trained.finite, Status.TRAINED, Status.DIVERGED).astype(np.uint8),
    }
    store.write(index, {name: np.asarray(value) for name, value in values.items()})


def describe(recipe: Recipe, *, models: int, seed: int, chunk: int) -> dict[str, Any]:
    """The attributes of a zoo."""
    drawn = jax.eval_shape(lambda: dict(recipe.draw(key=jax.random.key(0))))
    return {
        "format": FORMAT,
        "recipe": recipe.name,
        "config": dataclasses.asdict(recipe),
        "models": models,
        "seed": seed,
        "chunk": chunk,
        "choices": sorted(drawn),
        "space": recipe.space.to_json(),
    }
