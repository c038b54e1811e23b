"""Reading a zoo: the weights of its networks, their settings, and how well they work."""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from ..spec import SpecError, WeightSpace
from ._store import Form, Status, Store, ZooError, read_attributes

FORMAT = 1
REPEATS = 2
"""Independent measurements of each network."""
_MAX_MODELS = 10**7
"""A description that claims more is damaged; a few numbers of each model are held in memory."""


class Split(NamedTuple):
    """Numbers of the models to train on, to validate with, and to test on."""

    train: Int[np.ndarray, " train"]
    valid: Int[np.ndarray, " valid"]
    test: Int[np.ndarray, " test"]


class Zoo:
    """A zoo on disk, complete or still growing.

    `zoo.weights(rows)` returns the weights of some models, with leaves stacked; `zoo.success` has
    two independent measurements of each model, finished or not.
    """

    def __init__(self, path: str | os.PathLike):
        """Open a zoo.

        Raises:
            ZooError: if there is none, it is damaged, or it has another format.
            SpecError: if its arrays do not fit its weight space.
        """
        self.path = Path(path)
        self.attributes = read_attributes(path)
        if self.attributes.get("format") != FORMAT:
            raise ZooError(
                f"{path}: a zoo of format {self.attributes.get('format')}; this version of unf "
                f"reads format {FORMAT}: use the version that wrote it, or build it again"
            )
        try:
            self.space = WeightSpace.from_json(self.attributes["space"])
            self.config = dict(self.attributes["config"])
            self.seed, self.models, chunk = map(self._integer, ("seed", "models", "chunk"))
            self.store = Store(path, self.models, chunk)
            self.kind = str(self.attributes["recipe"])
            self._drawn = list(self.attributes["choices"])
        except (KeyError, TypeError, ValueError) as error:
            raise ZooError(f"{path}: the zoo's description is incomplete ({error!r})") from error
        self._check_arrays()
        self.store.expect(stored_arrays(self.space, self._drawn))

    def _integer(self, name: str) -> int:
        number = self.attributes[name]
        low, high = (0, 2**63) if name == "seed" else (1, _MAX_MODELS)
        if type(number) is not int or not low <= number <= high:
            raise ValueError(f"{name} is {number!r}, expected {low} to {high}")
        return number

    def _check_arrays(self) -> None:
        odd = [name for name in self._drawn if not (isinstance(name, str) and name.isidentifier())]
        if odd:  # they are names of folders
            raise ZooError(f"{self.path}: one of its choices is called {odd[0]!r}, not a name")
        for leaf in self.space.leaves:
            found, expected = self.store.shape(array_name(leaf.path)), (self.models, *leaf.shape)
            if found != expected:
                raise SpecError(
                    f"{self.path}: the arrays do not fit the zoo's weight space",
                    path=leaf.path,
                    expected=f"shape {expected}",
                    got=f"shape {found}",
                    remedy="the description or the array was altered: restore it or build again",
                )

    @cached_property
    def status(self) -> Int[np.ndarray, " models"]:
        """The `Status` of each model."""
        return self.store.status().astype(int)

    @property
    def trained(self) -> Int[np.ndarray, " trained"]:
        """The numbers of the models that are finished and whose weights are finite."""
        return np.flatnonzero(self.status == Status.TRAINED)

    @property
    def diverged(self) -> Bool[np.ndarray, " models"]:
        """Which models have weights or a loss that are not finite."""
        return self.status == Status.DIVERGED

    @property
    def complete(self) -> bool:
        """Whether every model is finished."""
        return bool(np.all(self.status != Status.MISSING))

    @cached_property
    def success(self) -> Float[np.ndarray, "models 2"]:
        """Success rates, measured twice on independent data; NaN for missing models."""
        return self._column("success")

    @cached_property
    def loss(self) -> Float[np.ndarray, "models 2"]:
        """Losses, measured twice; NaN for missing models."""
        return self._column("loss")

    @cached_property
    def choices(self) -> Mapping[str, np.ndarray]:
        """The settings of each model: `batch_size`, `learning_rate` and the like."""
        columns = {name: self._column(f"choices.{name}") for name in self._drawn}
        return {"batch_size": self._column("batch_size"), **columns}

    def weights(self, rows: Any = None) -> PyTree:
        """The weights of some models, by default of all trained ones, with leaves stacked.

        Args:
            rows: the numbers of the models, or a truth value for each model.

        Raises:
            ZooError: if a chunk is missing, truncated or altered, or weights are not finite
                although the model is marked as trained.
        """
        rows = self.trained if rows is None else self._numbers(rows)
        names = [array_name(leaf.path) for leaf in self.space.leaves]
        leaves = [self._rows(name, rows) for name in names]
        trained = self.status[rows] == Status.TRAINED
        for name, leaf in zip(names, leaves, strict=True):
            finite = np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
            if not np.all(finite | ~trained):
                bad = rows[~finite & trained]
                raise ZooError(
                    f"{self.path / name}: weights of model {bad[0]} are not finite although it is "
                    f"marked as trained ({len(bad)} such models): the zoo was altered; rebuild it "
                    "with resume=True, repair=True"
                )
        return self.space.unflatten(leaves)

    def split(
        self, sizes: tuple[int, ...] | None = None, *, seed: int = 0, diverged: bool = False
    ) -> Split:
        """Divide the finished models at random.

        Args:
            sizes: how many to train on, to validate with and to test on; by default 8:1:1.
            seed: the seed of the division.
            diverged: whether to include models whose weights are not finite.

        Raises:
            ZooError: if there are too few models.
        """
        models = np.flatnonzero(self.status != Status.MISSING) if diverged else self.trained
        if sizes is None:
            tenth = len(models) // 10
            sizes = (len(models) - 2 * tenth, tenth, tenth)
        if len(sizes) != 3 or min(sizes) < 2 or sum(sizes) > len(models):
            raise ZooError(
                f"{self.path}: {len(models)} usable models cannot be divided into {sizes} for "
                "training, validation and test; build more models or choose smaller sizes="
            )
        order = np.random.default_rng(seed).permutation(models)
        return Split(*(order[a:b] for a, b in pairwise(np.cumsum([0, *sizes]))))

    def _numbers(self, rows: Any) -> Int[np.ndarray, " rows"]:
        rows = np.asarray(rows)
        if rows.dtype == bool and rows.shape == (self.models,):
            return np.flatnonzero(rows)
        if rows.ndim != 1 or rows.dtype == bool or np.any((rows < 0) | (rows >= self.models)):
            raise ZooError(
                f"{self.path}: rows are numbers of models from 0 to {self.models - 1}, or a "
                f"truth value for each model; got {rows.dtype}{list(rows.shape)}"
            )
        return rows.astype(int)

    def damage(self) -> list[tuple[int, str]]:
        """The damaged files of finished models: the chunk of each, and what is wrong."""
        return list(self.store.damage(stored_arrays(self.space, self._drawn)))

    @property
    def origin(self) -> dict[str, Any]:
        """What the zoo was built from, enough to build it again."""
        names = {"recipe": self.kind, "config": self.config}
        return {**names, "seed": self.seed, "models": self.models}

    def summary(self) -> dict[str, Any]:
        """What is in the zoo, as plain numbers."""
        success = self.success[self.trained]
        levels = (0.05, 0.25, 0.5, 0.75, 0.95)
        quantiles = np.quantile(success[:, 0], levels).tolist() if len(success) else []
        return {
            "path": str(self.path),
            **self.origin,
            "finished": int(np.sum(self.status != Status.MISSING)),
            "diverged": int(np.sum(self.diverged)),
            "weights_each": self.space.num_weights,
            "tensors": len(self.space.leaves),
            "success_quantiles": dict(zip(map(str, levels), quantiles, strict=False)),
        }

    def describe(self) -> str:
        """What is in the zoo, in a few lines."""
        facts = self.summary()
        lines = [
            f"{self.kind} zoo in {self.path}: {facts['finished']:,} of {self.models:,} models, "
            f"{facts['diverged']} diverged",
            f"{facts['weights_each']:,} weights in {facts['tensors']} tensors each; "
            f"seed {self.seed}",
            ", ".join(f"{name} {value}" for name, value in self.config.items() if value != ""),
        ]
        if facts["success_quantiles"]:
            values = ", ".join(f"{value:.3f}" for value in facts["success_quantiles"].values())
            lines.append(f"success rate at quantiles .05 .25 .5 .75 .95: {values}")
        if not self.complete:
            lines.append("incomplete: rebuild it with the same arguments and resume=True")
        return "\n".join(lines)

    def _column(self, name: str) -> np.ndarray:
        column = np.full(self.store.shape(name), np.nan)
        finished = np.flatnonzero(self.status != Status.MISSING)
        column[finished] = self._rows(name, finished)
        return column

    def _rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Some models of an array: every chunk is read once, several at a time."""
        size = self.store.chunk
        chunks = np.unique(rows // size).tolist()
        self.store.check_chunks(name, chunks)
        out = np.empty((len(rows), *self.store.shape(name)[1:]), self.store.dtype(name))

        def take(chunk: int) -> None:
            chosen = np.flatnonzero(rows // size == chunk)
            out[chosen] = self.store.read(name, chunk)[rows[chosen] - chunk * size]

        with ThreadPoolExecutor(8) as readers:
            list(readers.map(take, chunks))
        return out

    def __repr__(self) -> str:
        count = int(np.sum(self.status != Status.MISSING))
        return f"Zoo({self.kind}, {count:,} of {self.models:,} models, {str(self.path)!r})"


def stored_arrays(space: WeightSpace, choices: Iterable[str]) -> dict[str, Form]:
    """The arrays of a zoo and their forms."""
    arrays: dict[str, Form] = {
        array_name(leaf.path): (leaf.shape, "float32") for leaf in space.leaves
    }
    arrays |= {f"choices.{name}": ((), "float32") for name in choices}
    arrays |= {name: ((REPEATS,), "float32") for name in ("success", "loss")}
    return arrays | {"seed": ((2,), "uint32"), "batch_size": ((), "int32"), "status": ((), "uint8")}


def array_name(path: str) -> str:
    """The name of the array with a leaf's weights."""
    return f"weights.{path.replace('/', '.')}"
