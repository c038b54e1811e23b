"""Training many networks at once: one compiled function for a whole chunk of models."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from ..._devices import local_mesh, memory_reason, out_of_memory
from ...meta import Data, Task
from ...zoo import ZooError
from ...zoo._zoo import REPEATS
from ._recipe import Choices, Recipe

OPTIMIZER = ("learning_rate", "weight_decay", "steps", "clip")
"""Settings of Adam, how long it trains, and the largest norm of a gradient; all others are the
task's."""


class Trained(NamedTuple):
    """A chunk of networks; every array has a leading axis of models."""

    params: PyTree
    choices: Choices
    success: Float[Array, "models repeats"]
    loss: Float[Array, "models repeats"]
    finite: Bool[Array, " models"]


class _Run(NamedTuple):
    """A network in training."""

    params: PyTree
    moments: Any
    choices: Choices
    key: PRNGKeyArray


def train_chunk(
    recipe: Recipe,
    keys: Key[Array, " models"],
    batch_size: int,
    data: Data | None = None,
    *,
    rows: Int[np.ndarray, " models"] | None = None,
    on_steps: Callable[[int], None] = lambda steps: None,
) -> Trained:
    """Train and measure the networks of these keys, sharded across this process's devices.

    Args:
        recipe: what to train.
        keys: one for each network, which determines it completely.
        batch_size: the batch size of all networks.
        data: the data of the recipe's task; by default they are loaded.
        rows: their numbers in the zoo, by default from 0.
        on_steps: called with a number of steps when these are finished.
    """
    data = recipe.task.data() if data is None else data
    begin, advance, finish = _compiled(recipe, batch_size)
    sharding = NamedSharding(local_mesh(len(keys), "models"), PartitionSpec("models"))
    rows = np.arange(len(keys)) if rows is None else rows
    runs = begin(*jax.device_put((keys, rows), sharding))
    at_once = max(1, recipe.steps // 20)
    waiting: list[tuple[Array, int]] = []
    for first in range(0, recipe.steps, at_once):
        steps = min(at_once, recipe.steps - first)
        runs, done = advance(runs, data.train, first, steps)
        waiting.append((done, steps))
        if len(waiting) > 1:  # one dispatch ahead, so that the device never waits
            _wait(waiting.pop(0), on_steps)
    trained = finish(runs, data.heldout)
    for entry in waiting:
        _wait(entry, on_steps)
    return trained


def train_in_parts(
    recipe: Recipe,
    keys: Key[Array, " models"],
    batch_size: int,
    data: Data | None = None,
    *,
    at_once: int,
    rows: Int[np.ndarray, " models"] | None = None,
    on_model_steps: Callable[[int], None] = lambda count: None,
) -> tuple[Trained, int]:
    """Train at most `at_once` networks at a time, and half as many whenever memory runs out.

    Returns the networks, and how many fit in memory at a time.
    """
    rows = np.arange(len(keys)) if rows is None else rows
    while True:
        firsts = range(0, len(keys), at_once)
        parts = [(keys[i : i + at_once], rows[i : i + at_once]) for i in firsts]
        try:
            trained = [
                train_chunk(
                    recipe, some, batch_size, data, rows=their_rows,
                    on_steps=lambda steps, some=some: on_model_steps(len(some) * steps),
                )
                for some, their_rows in parts
            ]  # fmt: skip
            if len(trained) == 1:  # measuring may run out of memory too, which shows here
                return jax.block_until_ready(trained[0]), at_once
            trained = jax.device_get(trained)
            return jax.tree.map(lambda *each: jnp.concatenate(each), *trained), at_once
        except jax.errors.JaxRuntimeError as error:
            if not out_of_memory(error):
                raise
            if at_once == 1:
                raise ZooError(
                    "the device has no memory for a single model; choose smaller models or "
                    f"batches ({memory_reason(error)})"
                ) from error
            at_once = -(-at_once // 2)


def _wait(entry: tuple[Array, int], on_steps: Callable[[int], None]) -> None:
    done, steps = entry
    jax.block_until_ready(done)
    on_steps(steps)


def _with_settings(task: Task, settings: Mapping[str, Any]) -> Task:
    """The task with other values of some fields, which may be traced.

    A shallow copy keeps what the task has loaded, and does not check values that are traced.
    """
    fields = {field.name for field in dataclasses.fields(task)}
    task = copy.copy(task)
    for name, value in settings.items():
        if name not in fields:
            raise ZooError(
                f"the setting {name!r} is not a field of {type(task).__name__}; "
                f"expected {sorted(OPTIMIZER)} or one of {sorted(fields)}"
            )
        object.__setattr__(task, name, value)
    return task


@lru_cache(maxsize=32)
def _compiled(recipe: Recipe, batch_size: int) -> tuple[Callable, Callable, Callable]:
    """Functions on a chunk of models: begin, advance by some steps, finish."""
    adam = optax.scale_by_adam()

    def task_of(choices: Choices) -> Task:
        others = {*OPTIMIZER, *recipe.recorded}
        drawn = {name: value for name, value in choices.items() if name not in others}
        return _with_settings(recipe.task, {"batch_size": batch_size, **drawn})

    def begin(key: PRNGKeyArray, row: Int[Array, ""]) -> _Run:
        draw_key, init_key, _, _ = jax.random.split(key, 4)
        choices = {**recipe.draw(key=draw_key), **recipe.assigned(row)}
        params = task_of(choices).init(key=init_key)
        return _Run(params, adam.init(params), choices, key)

    def step(run: _Run, examples: PyTree, index: Array) -> _Run:
        _, _, train_key, _ = jax.random.split(run.key, 4)
        task = task_of(run.choices)
        batch = task.batch(examples, key=jax.random.fold_in(train_key, index))
        gradient = jax.grad(task.loss)(run.params, batch)
        if "clip" in run.choices:
            squares = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient))
            share = run.choices["clip"] / jnp.sqrt(jnp.maximum(squares, 1e-24))
            gradient = jax.tree.map(lambda g: g * jnp.minimum(share, 1.0), gradient)
        updates, moments = adam.update(gradient, run.moments)
        rate, decay = run.choices["learning_rate"], run.choices.get("weight_decay", 0.0)
        rate = jnp.where(index < run.choices.get("steps", jnp.inf), rate, 0.0)
        params = jax.tree.map(lambda p, u: p - rate * (u + decay * p), run.params, updates)
        return run._replace(params=params, moments=moments)

    @partial(jax.jit, static_argnums=3, donate_argnums=0)
    def advance(runs: _Run, examples: PyTree, first: Any, steps: int) -> tuple[_Run, Array]:
        def body(runs: _Run, index: Array) -> tuple[_Run, None]:
            return jax.vmap(step, (0, None, None))(runs, examples, index), None

        runs, _ = jax.lax.scan(body, runs, first + jnp.arange(steps))
        return runs, jnp.asarray(first + steps)

    def finish(run: _Run, examples: PyTree) -> Trained:
        """Each measurement has its own part of the held-out examples, and its own key."""
        _, _, _, measure_key = jax.random.split(run.key, 4)
        measured = []
        for i in range(REPEATS):
            part = jax.tree.map(lambda x, i=i: _part(x, i), examples)
            key = jax.random.fold_in(measure_key, i)
            measured.append(task_of(run.choices).measure(run.params, part, key=key))
        success, loss = (jnp.stack([m[name] for m in measured]) for name in ("success", "loss"))
        flat = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(run.params)]
        finite = jnp.all(jnp.stack(flat)) & jnp.all(jnp.isfinite(loss))
        return Trained(run.params, run.choices, success, loss, finite)

    return jax.jit(jax.vmap(begin)), advance, jax.jit(jax.vmap(finish, (0, None)))


def _part(x: Array, index: int) -> Array:
    size = len(x) // REPEATS
    return x[index * size : (index + 1) * size]
