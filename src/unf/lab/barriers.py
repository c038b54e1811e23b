"""The loss between networks that were trained from different starts: `unf reproduce barriers`."""

import dataclasses
import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from .._persistence import write_whole
from .._progress import Progress, say
from ..graph import infer
from ..meta import Task
from ..symmetry import align
from ..symmetry._merge import height
from . import plots
from ._folder import provenance
from ._scores import summary
from .tasks._attention import GPTTask
from .tasks._unseen import DeepMLPTask, GroupNormTask, ResNetTask

_CHUNK = 100
"""Steps in one call."""
_EXAMPLES = 512
"""Examples, or windows of text, whose activations are compared."""
_BATCHES = 8
"""How many batches of that size losses are measured on."""


class BarrierError(ValueError):
    """The folder of an experiment cannot be used: why, and the remedy."""


@dataclasses.dataclass(frozen=True)
class Case:
    """What networks learn, and for how long: Adam with a rate that decays as a cosine."""

    title: str
    task: Task
    steps: int
    learning_rate: float = 1e-3


FULL: dict[str, Case] = {
    "mlp": Case("MLP on MNIST", DeepMLPTask(hidden=(512,) * 3), 5000),
    "cnn": Case("CNN with group norm on CIFAR-10, 16×16", GroupNormTask(), 10_000),
    "cnn-4x": Case(
        "the same, 4 times as wide", GroupNormTask(channels=(128, 256, 256)), 10_000),
    "resnet": Case("residual CNN with batch norm on CIFAR-10, 16×16", ResNetTask(), 10_000),
    "resnet-4x": Case(
        "the same, 4 times as wide", ResNetTask(channels=(64, 128, 256)), 10_000),
    "gpt": Case("GPT on bytes of LM1B", GPTTask(), 10_000),
}  # fmt: skip
SMALL: dict[str, Case] = {
    "mlp": Case("MLP on digits", DeepMLPTask(dataset="digits", hidden=(64,) * 2), 1000),
    "cnn": Case("CNN with group norm on digits", GroupNormTask(
        dataset="digits", channels=(16, 16), groups=4), 1000, 3e-3),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Result:
    """Losses on the lines between pairs of networks.

    Attributes:
        found: for each case and part of the data, "train" or "held out", the losses of shape
            [pairs, points] for "as they are", "weights" and "activations".
        cases: what the networks are.
        out: the folder of everything.
    """

    found: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    cases: Mapping[str, Case]
    out: Path

    def to_json(self) -> str:
        """Everything, with versions, machine and date."""
        losses = {name: _as_lists(parts) for name, parts in self.found.items()}
        return json.dumps({"losses": losses, **provenance()}, indent=1)

    def __str__(self) -> str:
        lines = [
            "| network | part | loss at the ends | barrier | aligned by weights | by activations |",
            "|---|---|---|---|---|---|",
        ]
        for name, parts in self.found.items():
            for part, losses in parts.items():
                ends = losses["as they are"][:, [0, -1]].ravel()
                cells = [summary(height(np.linspace(0, 1, x.shape[1]), x)) for x in losses.values()]
                title = self.cases[name].title if part == "train" else ""
                lines.append(f"| {title} | {part} | {ends.mean():.3f} | {' | '.join(cells)} |")
        pairs = len(next(iter(self.found.values()))["train"]["as they are"])
        return "\n".join(
            [*lines, "", f"{pairs} pairs of networks each; ± is the standard error over pairs",
             f"pictures and numbers in {self.out}"]
        )  # fmt: skip


def run(
    cases: Mapping[str, Case],
    out: str | os.PathLike,
    *,
    pairs: int = 3,
    points: int = 25,
    seed: int = 0,
    folder: str | None = None,
    show_progress: bool = True,
) -> Result:
    """Train pairs of networks, and measure the losses between them.

    What an earlier call has finished is kept.

    Args:
        cases: some of `FULL` or `SMALL`.
        out: the folder for the results.
        pairs: how many pairs of networks for each case.
        points: how many points of each line.
        seed: the seed of all of them.
        folder: the folder of the datasets' files; by default the one that UNF_DATA names.
        show_progress: show rates and the time left on standard error.

    Raises:
        BarrierError: if the folder has results with other options.
    """
    target, started = Path(out), time.perf_counter()
    target.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for name, case in cases.items():
        # Where the data are does not matter.
        job = {"case": repr(case), "pairs": pairs, "points": points, "seed": seed}
        file = target / f"{name}.json"
        if file.exists():
            stored = json.loads(file.read_text())
            if stored["job"] != job:
                raise BarrierError(
                    f"{file} has results of other options; name another folder with out="
                )
            found[name] = {
                part: {way: np.array(x) for way, x in losses.items()}
                for part, losses in stored["losses"].items()
            }
            continue
        task: Any = dataclasses.replace(case.task, folder=folder)
        label = show_progress and name
        networks = _train(case, task, 2 * pairs, seed, label)
        found[name] = _measure(task, networks, points, seed, label)
        losses = _as_lists(found[name])
        write_whole(file, json.dumps({"job": job, "losses": losses, **provenance()}, indent=1))
        if show_progress:
            say(f"{case.title}: {time.perf_counter() - started:.0f} s so far")
    result = Result(found, cases, target)
    plots.save(plots.barriers({cases[name].title: x for name, x in found.items()}),
               target / "barriers.png")  # fmt: skip
    write_whole(target / "barriers.json", result.to_json())
    write_whole(target / "barriers.md", f"{result}\n")
    return result


def _train(case: Case, task: Any, count: int, seed: int, label: str | bool) -> PyTree:
    """Networks stacked along a leading axis, each with its own start and its own batches."""
    rate = optax.cosine_decay_schedule(case.learning_rate, case.steps)
    optimizer = optax.adam(rate)
    data = task.data().train

    def advance(carry: Any, key: Array, numbers: Array) -> Any:
        def step(carry: Any, number: Array) -> Any:
            params, state = carry
            batch = task.batch(data, key=jax.random.fold_in(key, number))
            updates, state = optimizer.update(jax.grad(task.loss)(params, batch), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, carry, numbers)[0]

    keys = jax.random.split(jax.random.key(seed), (2, count))
    params = jax.vmap(lambda key: task.init(key=key))(keys[0])
    carry = params, jax.vmap(optimizer.init)(params)
    forward = jax.jit(jax.vmap(advance, in_axes=(0, 0, None)), donate_argnums=0)
    with Progress(f"training {label}", case.steps, unit="steps", show=bool(label)) as progress:
        for start in range(0, case.steps, _CHUNK):
            numbers = jnp.arange(start, min(start + _CHUNK, case.steps))
            carry = jax.block_until_ready(forward(carry, keys[1], numbers))
            progress.advance(len(numbers))
    return carry[0]


def _measure(
    task: Any, networks: PyTree, points: int, seed: int, label: str | bool
) -> dict[str, Any]:
    """Losses by part of the data and way of alignment, for each pair."""
    large = dataclasses.replace(task, batch_size=_EXAMPLES)
    data = task.data()
    keys = jax.random.split(jax.random.key(seed + 1), _BATCHES + 1)
    inputs = large.batch(data.train, key=keys[0])
    parts = {"train": data.train, "held out": data.heldout}
    batches = {
        part: jax.vmap(lambda key, x=x: large.batch(x, key=key))(keys[1:])
        for part, x in parts.items()
    }

    @jax.jit
    def losses(a: PyTree, b: PyTree, several: Any) -> Array:
        """On the line from one network to another."""

        def at(t: Array) -> Array:
            params = jax.tree.map(lambda x, y: x + t * (y - x), a, b)
            return jnp.mean(jax.lax.map(partial(task.loss, params), several))

        return jax.lax.map(at, jnp.linspace(0, 1, points))

    count = len(jax.tree.leaves(networks)[0])
    each = [jax.tree.map(lambda x, i=i: x[i], networks) for i in range(count)]
    space = infer(task.loss, each[0], inputs)
    lines: dict[str, dict[str, list]] = {part: {} for part in parts}
    ways = {
        "as they are": None,
        "weights": {},
        "activations": {"fn": task.loss, "inputs": (inputs,)},
    }
    total = count // 2 * len(ways)
    with Progress(f"aligning {label}", total, unit="lines", show=bool(label)) as progress:
        for a, b in zip(each[::2], each[1::2], strict=True):
            for way, options in ways.items():
                moved = b
                if options is not None:
                    options |= {"method": way, "progress": False}
                    found = align(space, a, b, **options)
                    moved = space.permute(b, found)
                for part, several in batches.items():
                    measured = np.asarray(losses(a, moved, several))
                    lines[part].setdefault(way, []).append(measured)
                progress.advance(1)
    return {part: {way: np.stack(x) for way, x in found.items()} for part, found in lines.items()}


def _as_lists(parts: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, list]]:
    return {
        part: {way: np.round(x, 5).tolist() for way, x in ways.items()}
        for part, ways in parts.items()
    }
