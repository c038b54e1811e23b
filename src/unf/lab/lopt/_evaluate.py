"""Training fresh networks with learned optimizers, and with hand-designed ones tuned by grid.

A `Comparison` holds the curves of several optimizers on one task.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from ..._progress import Progress
from ...meta import Data, Task
from ...meta._problem import training_step
from ...optim import Theta, learned_optimizer
from .._folder import provenance
from .._scores import summary
from ._job import SEED

Keys = Key[Array, " networks"]
POINTS = 100
"""Curves are means over at most this many parts of the horizon, equal except for the last."""
TITLES = {
    "unf": "UNF",
    "tied": "Tied",
    "nfn": "NFN",
    "deepset": "Deep Set",
    "sgdm": "SGDM, meta-trained",
    "adam": "Adam, tuned",
    "sgdm-tuned": "SGDM, tuned",
    "adam-default": "Adam, 1e-3",
    "muon": "Muon, tuned",
}
"""Optimizers' names in pictures and tables."""
_HELDOUT_BATCHES = 8
_EVALUATION, _TUNING = 4, 5  # a seed's streams of random numbers; meta-training has the others


class Curves(NamedTuple):
    """Losses of several networks along training; held-out ones at the end of each part."""

    train: Float[np.ndarray, "seeds points"]
    heldout: Float[np.ndarray, "seeds points"]

    @property
    def last(self) -> Float[np.ndarray, " seeds"]:
        """The training loss over the last tenth of the horizon."""
        return self.train[:, -max(1, self.train.shape[1] // 10) :].mean(axis=1)

    @property
    def last_heldout(self) -> Float[np.ndarray, " seeds"]:
        """The held-out loss over the last tenth of the horizon."""
        return Curves(self.heldout, self.heldout).last


def _adam(options: Mapping[str, Array]) -> optax.GradientTransformation:
    return optax.adam(options["learning_rate"])


def _sgdm(options: Mapping[str, Array]) -> optax.GradientTransformation:
    return optax.sgd(options["learning_rate"], momentum=options["momentum"])


def _muon(options: Mapping[str, Array]) -> optax.GradientTransformation:
    return optax.contrib.muon(
        options["learning_rate"], consistent_rms=0.2, muon_weight_dimension_numbers=_matrices
    )


def _matrices(params: PyTree) -> PyTree:
    """How Muon reads tensors of rank 2 or more: as matrices to the last axis."""
    return jax.tree.map(
        lambda x: (
            optax.contrib.MuonDimensionNumbers(tuple(range(x.ndim - 1)), x.ndim - 1)
            if x.ndim > 1
            else None
        ),
        params,
    )


def make_grid(**values: Any) -> dict[str, Float[np.ndarray, " options"]]:
    """Every combination of the values, as columns."""
    table = np.meshgrid(*values.values(), indexing="ij")
    columns = [column.reshape(-1).astype(np.float32) for column in table]
    return dict(zip(values, columns, strict=True))


Grid = tuple[Callable, dict[str, Float[np.ndarray, " options"]]]
"""What makes a hand-designed optimizer from options, and the options to try."""
GRIDS: dict[str, Grid] = {
    "adam": (_adam, make_grid(learning_rate=np.geomspace(1e-4, 1e-1, 13))),
    "sgdm-tuned": (
        _sgdm,
        make_grid(learning_rate=np.geomspace(1e-3, 1, 13), momentum=(0, 0.5, 0.9, 0.95, 0.99)),
    ),
    "adam-default": (_adam, make_grid(learning_rate=[1e-3])),
    "muon": (_muon, make_grid(learning_rate=np.geomspace(1e-4, 1e-1, 13))),
}
"""Hand-designed optimizers by name; a grid of one point needs no tuning."""
TUNED = ("adam", "sgdm-tuned")
"""The hand-designed optimizers of the paper's figure."""


def evaluate(
    task: Task, data: Data, make: Callable, options: Any, *, seeds: Sequence[int], horizon: int
) -> Curves:
    """Train a fresh network for each seed.

    Args:
        task: what to train.
        data: the task's data.
        make: makes an Optax optimizer from `options`, as `unf.optim.learned_optimizer` does
            from θ.
        options: an array or a tree of arrays.
        seeds: one network is trained for each.
        horizon: training steps.
    """
    # through the host, since arrays that are placed on devices would be compiled for again
    options = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float32), options)
    if not len(seeds) or horizon < 1:
        raise ValueError(f"{len(seeds)} seeds and {horizon} steps; expected at least one of each")
    return _as_curves(
        _curves(task, data, make, options, _networks(task, seeds, _EVALUATION), horizon)
    )


def part_ends(horizon: int) -> Int[np.ndarray, " parts"]:
    """The steps at which the parts of curves end.

    >>> part_ends(250)[:3], part_ends(250)[-1], len(part_ends(250))
    (array([3, 6, 9]), np.int64(250), 84)
    """
    each = -(-horizon // POINTS)
    return np.minimum(np.arange(each, horizon + each, each), horizon)


def tune(
    task: Task, data: Data, name: str, *, horizon: int, runs: int = 3, grid: Grid | None = None
) -> dict[str, float]:
    """The best options of a grid, by training loss over the last tenth of the horizon.

    Args:
        task: what to train.
        data: the task's data.
        name: the optimizer.
        horizon: training steps.
        runs: networks for each point of the grid; `evaluate` trains other ones.
        grid: by default that of `GRIDS`.

    Raises:
        ValueError: if training diverges at every point of the grid.
    """
    make, options = grid or GRIDS[name]
    if len(next(iter(options.values()))) == 1:
        return {key: float(value) for key, (value,) in options.items()}
    points = {key: jnp.asarray(values) for key, values in options.items()}
    curves = _grid_curves(task, data, make, points, _networks(task, range(runs), _TUNING), horizon)
    scores = np.array([_as_curves((x, y)).last.mean() for x, y in zip(*curves, strict=True)])
    if not np.isfinite(scores).any():
        raise ValueError(f"{name}: training diverges at every point of the grid {options}")
    best = int(np.argmin(np.where(np.isfinite(scores), scores, np.inf)))
    return {key: float(values[best]) for key, values in options.items()}


def at_edge(grid: Grid, options: Mapping[str, float]) -> list[str]:
    """The options at the smallest or largest value of their grid: better ones may lie beyond."""
    ends = {key: (values.min(), values.max()) for key, values in grid[1].items()}
    return [k for k, x in options.items() if np.ptp(ends[k]) and np.isclose(x, ends[k]).any()]


def _networks(task: Task, seeds: Sequence[int], stream: int) -> tuple[PyTree, Keys]:
    """Fresh networks and the keys of their training; compiled once for all optimizers."""
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), stream) for seed in seeds])
    init_keys, keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    return _initialized(task, init_keys), keys


@eqx.filter_jit
def _initialized(task: Task, keys: Keys) -> PyTree:
    return jax.vmap(lambda key: task.init(key=key))(keys)


def _as_curves(arrays: tuple[Array, Array]) -> Curves:
    return Curves(*(np.asarray(x, np.float64) for x in arrays))


@eqx.filter_jit
def _grid_curves(
    task: Task, data: Data, make: Callable, options: PyTree, networks: PyTree, horizon: int
) -> tuple[Array, Array]:
    """Train all networks at each point of a grid."""
    return jax.vmap(lambda point: _curves(task, data, make, point, networks, horizon))(options)


@eqx.filter_jit
def _curves(
    task: Task, data: Data, make: Callable, options: PyTree, networks: PyTree, horizon: int
) -> tuple[Array, Array]:
    """Train all networks."""
    ends, optimizer = part_ends(horizon), make(options)
    each, rest = int(ends[0]), horizon % int(ends[0])

    def step(state: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        return training_step(task.loss, optimizer, state, task.batch(data.train, key=key))

    def part(state: PyTree, key: PRNGKeyArray, steps: int = each) -> tuple[PyTree, Any]:
        train_key, heldout_key = jax.random.split(key)
        state, losses = jax.lax.scan(step, state, jax.random.split(train_key, steps))
        heldout = jax.lax.map(
            lambda k: task.loss(state[0], task.batch(data.heldout, key=k)),
            jax.random.split(heldout_key, _HELDOUT_BATCHES),
        )
        return state, (jnp.mean(losses), jnp.mean(heldout))

    def one(params: PyTree, key: PRNGKeyArray) -> tuple[Array, Array]:
        keys = jax.random.split(key, len(ends))
        state = params, optimizer.init(params)
        state, curves = jax.lax.scan(part, state, keys[: horizon // each])
        if not rest:
            return curves
        _, last = part(state, keys[-1], rest)
        return jax.tree.map(jnp.append, curves, last)

    return jax.vmap(one)(*networks)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Curves of several optimizers on one task.

    Several meta-trainings may stand for one optimizer: "tied/seed-0" and "tied/seed-1" are of
    "tied".

    Attributes:
        task: the task's name.
        dataset: the dataset's name.
        horizon: the number of training steps.
        seeds: one network was trained for each.
        curves: by the optimizer's name.
        notes: by the optimizer's name, what is shown beside it: the options that the grid
            search chose, or how long it was meta-trained.
    """

    task: str
    dataset: str
    horizon: int
    seeds: list[int]
    curves: dict[str, Curves]
    notes: dict[str, dict[str, Any]]

    def to_json(self) -> str:
        """Everything, with versions, machine and date."""
        curves = {
            name: {part: np.round(x, 6).tolist() for part, x in curves._asdict().items()}
            for name, curves in self.curves.items()
        }
        return json.dumps({**vars(self), "curves": curves, **provenance()})

    @classmethod
    def from_json(cls, text: str) -> "Comparison":
        """Read what `to_json` wrote.

        Raises:
            ValueError: if the text is something else.
        """
        try:
            record = json.loads(text)
            curves = {
                name: Curves(*(np.asarray(entry[part], np.float64) for part in Curves._fields))
                for name, entry in record["curves"].items()
            }
            names = [f.name for f in dataclasses.fields(cls) if f.name != "curves"]
            return cls(**{name: record[name] for name in names}, curves=curves)
        except (
            ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
        ) as error:  # fmt: skip
            raise ValueError(f"not a comparison of optimizers ({error!r})") from error

    @property
    def groups(self) -> dict[str, list[str]]:
        """Optimizers, and the names of the meta-trainings of each."""
        found: dict[str, list[str]] = {}
        for name in self.curves:
            group, _, seed = name.rpartition("/")
            found.setdefault(group if group and SEED.fullmatch(seed) else name, []).append(name)
        return {group if len(names) > 1 else names[0]: names for group, names in found.items()}

    def grouped(self) -> "Comparison":
        """A comparison of optimizers.

        The curves of several meta-trainings are means over the networks of each; those that
        diverged do not count.
        """
        curves = {}
        for group, names in self.groups.items():
            each = [self.curves[name] for name in names]
            kept = [(x, survived(x.last)) for x in each]
            if len(each) > 1 and any(ok.any() for _, ok in kept):
                means = [[part[ok].mean(axis=0) for part in x] for x, ok in kept if ok.any()]
                each = [Curves(*np.stack(means, axis=1))]
            curves[group] = each[0]
        notes = {group: self.notes.get(names[0], {}) for group, names in self.groups.items()}
        return dataclasses.replace(self, curves=curves, notes=notes)

    def losses(
        self, name: str, measure: Callable[[Curves], np.ndarray] = lambda curves: curves.last
    ) -> list[Float[np.ndarray, " seeds"]]:
        """The loss of every network in each meta-training of an optimizer."""
        return [measure(self.curves[each]) for each in self.groups[name]]

    @property
    def over_what(self) -> str:
        """What standard errors are over."""
        networks, most = len(self.seeds), max(map(len, self.groups.values()), default=1)
        several = f", or over up to {most} meta-trainings with {networks} networks each"
        return f"{networks} networks{several if most > 1 else ''}"

    @property
    def ranking(self) -> list[str]:
        """Optimizers from best to worst: with which fewest networks diverge, then by last loss."""

        def key(name: str) -> tuple[float, float]:
            each = self.losses(name)
            kept = [survivors(losses) for losses in each]
            means = [losses.mean() for losses in kept if len(losses)]
            share = sum(map(len, kept)) / sum(map(len, each))
            return 1 - share, float(np.mean(means)) if means else np.inf

        return sorted(self.groups, key=key)

    def rows(self) -> list[list[str]]:
        """A table, best first: titles, losses over the horizon and its last tenth, and notes."""
        rows = []
        measures = (lambda x: x.train.mean(axis=1), lambda x: x.last, lambda x: x.last_heldout)
        for name in self.ranking:
            found = self.notes.get(self.groups[name][0], {})
            notes = ", ".join(f"{key} {_short(x)}" for key, x in found.items())
            cells = [describe_losses(*self.losses(name, measure)) for measure in measures]
            rows.append([title(name), *cells, notes])
        return rows

    def __str__(self) -> str:
        head = "training, whole horizon | its last tenth | held out, last tenth"
        lines = [f"| optimizer | {head} | |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows()]
        lines.append(
            f"\n{self.task} on {self.dataset}: {self.horizon} steps, mean ± standard error over "
            f"{self.over_what}"
        )
        return "\n".join(lines)


def compare(
    task: Task,
    optimizers: Mapping[str, Theta],
    *,
    horizon: int | None = None,
    seeds: Sequence[int] = tuple(range(5)),
    baselines: Sequence[str] | Mapping[str, Grid] = TUNED,
    runs: int = 3,
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    show_progress: bool = True,
) -> Comparison:
    """Train fresh networks with learned optimizers and with hand-designed ones.

    Args:
        task: what to train.
        optimizers: learned optimizers by name.
        horizon: training steps, by default the paper's.
        seeds: one network is trained for each.
        baselines: hand-designed optimizers: names in `GRIDS`, or grids by name.
        runs: networks for each point of a grid.
        notes: what to show beside learned optimizers.
        show_progress: show the time left on standard error.
    """
    grids = baselines if isinstance(baselines, Mapping) else {k: GRIDS[k] for k in baselines}
    both = [name for name in grids if name in optimizers]
    if both:
        raise ValueError(f"learned optimizers cannot have the names of hand-designed ones: {both}")
    steps, data = horizon or task.horizon, task.data()
    total = len(optimizers) + len(grids)
    made: dict[str, tuple[Any, Any]] = {
        name: (learned_optimizer, theta.on(task.space)) for name, theta in optimizers.items()
    }
    remarks = {name: dict((notes or {}).get(name, {})) for name in optimizers}
    curves = {}
    with Progress(f"evaluation on {task.name}", total, show=show_progress) as progress:
        for name in (*optimizers, *grids):
            if name not in made:
                grid = grids[name]
                chosen = tune(task, data, name, horizon=steps, runs=runs, grid=grid)
                edge = ", ".join(at_edge(grid, chosen))
                remarks[name] = chosen | ({"at the edge of the grid:": edge} if edge else {})
                made[name] = grid[0], chosen
            curves[name] = evaluate(task, data, *made[name], seeds=seeds, horizon=steps)
            progress.advance(1, title(name))
    dataset = getattr(task, "dataset", "")
    return Comparison(task.name, dataset, steps, list(seeds), curves, remarks)


def title(name: str) -> str:
    """An optimizer's name in pictures and tables."""
    return TITLES.get(name, name)


def survived(losses: Float[np.ndarray, " seeds"]) -> Bool[np.ndarray, " seeds"]:
    """Which networks did not diverge."""
    return np.abs(losses) < 1e30


def survivors(losses: Float[np.ndarray, " seeds"]) -> Float[np.ndarray, " survivors"]:
    """The losses of networks that did not diverge."""
    return losses[survived(losses)]


def describe_losses(*each: Float[np.ndarray, " seeds"]) -> str:
    """Mean ± standard error of the networks that did not diverge, and how many did.

    With several meta-trainings, the standard error is over the means of each.
    """
    kept = [survivors(losses) for losses in each]
    means = kept[0] if len(each) == 1 else np.array([x.mean() for x in kept if len(x)])
    total, left = sum(map(len, each)), sum(map(len, kept))
    if left == total:
        return summary(means, 4)
    diverged = f"{total - left} of {total} diverged"
    return f"{summary(means, 4)}, {diverged}" if left else diverged


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value}"
