"""Reading a zoo: its networks' weights, what was drawn for them, and how well they work."""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from ..spec import SpecError, WeightSpace
from ._errors import ZooError
from ._store import Status, Store, read_attributes

FORMAT = 1
REPEATS = 2
"""Independent measurements of each network."""
MOST_MODELS = 10**7
"""A description that says more is damaged; some numbers of each are held in memory."""
_READERS = 8


class Zoo:
    """A zoo on disk, complete or still growing.

    `zoo.weights(rows)` are the weights of some models, leaves stacked; `zoo.success` has a row
    of two independent measurements for each model, finished or not.
    """

    def __init__(self, path: str | os.PathLike):
        """Open a zoo.

        Raises:
            ZooError: if there is none, or it has another format.
            SpecError: if its arrays do not fit its specification.
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
            self.seed, self.models, chunk = map(self._whole, ("seed", "models", "chunk"))
            self.store = Store(path, self.models, chunk)
            self.kind = str(self.attributes["recipe"])
            self._drawn = list(self.attributes["choices"])
        except (KeyError, TypeError, ValueError) as error:
            raise ZooError(f"{path}: the zoo's description is incomplete ({error!r})") from error
        self._check_arrays()
        self.store.expect(stored_arrays(self.space, self._drawn))

    def _whole(self, name: str) -> int:
        """A number of the description."""
        number = self.attributes[name]
        least, most = (0, 2**63) if name == "seed" else (1, MOST_MODELS)
        if type(number) is not int or not least <= number <= most:
            raise ValueError(f"{name} is {number!r}, expected {least} to {most}")
        return number

    def _check_arrays(self) -> None:
        odd = [name for name in self._drawn if not (isinstance(name, str) and name.isidentifier())]
        if odd:  # they are names of folders
            raise ZooError(f"{self.path}: one of its choices is called {odd[0]!r}, not a name")
        for leaf in self.space.leaves:
            found, expected = self.store.shape(array_name(leaf.path)), (self.models, *leaf.shape)
            if found != expected:
                raise SpecError(
                    f"{self.path}: the arrays do not fit the zoo's specification",
                    path=leaf.path,
                    expected=f"shape {expected}",
                    got=f"shape {found}",
                    remedy="the description or the array was altered: restore it or build again",
                )

    @cached_property
    def status(self) -> Int[np.ndarray, " models"]:
        """What became of each model, a `Status`."""
        return self.store.status().astype(int)

    @property
    def trained(self) -> Int[np.ndarray, " trained"]:
        """The models that are finished and whose weights are finite."""
        return np.flatnonzero(self.status == Status.TRAINED)

    @property
    def diverged(self) -> Bool[np.ndarray, " models"]:
        """Which models have weights, or a loss, that are not finite."""
        return self.status == Status.DIVERGED

    @property
    def complete(self) -> bool:
        """Whether every model is finished."""
        return bool(np.all(self.status != Status.MISSING))

    @cached_property
    def success(self) -> Float[np.ndarray, "models 2"]:
        """Success rates, measured twice on independent problems; NaN for missing models."""
        return self._column("success")

    @cached_property
    def loss(self) -> Float[np.ndarray, "models 2"]:
        """Losses, measured twice."""
        return self._column("loss")

    @cached_property
    def choices(self) -> Mapping[str, np.ndarray]:
        """What was drawn for each model: `batch_size`, `learning_rate` and the like."""
        columns = {name: self._column(f"choices.{name}") for name in self._drawn}
        return {"batch_size": self._column("batch_size"), **columns}

    def weights(self, rows: Any = None) -> PyTree:
        """The weights of some models, by default of all trained ones; leaves are stacked.

        Args:
            rows: the numbers of the models, or for each model whether it is wanted.

        Raises:
            ZooError: if a chunk is missing, cut short or altered, or weights are not finite
                though the model is marked as trained.
        """
        rows = self.trained if rows is None else self._numbers(rows)
        names = [array_name(leaf.path) for leaf in self.space.leaves]
        leaves = [self._rows(name, rows) for name in names]
        sound = self.status[rows] == Status.TRAINED
        for name, leaf in zip(names, leaves, strict=True):
            finite = np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
            if not np.all(finite | ~sound):
                bad = rows[~finite & sound]
                raise ZooError(
                    f"{self.path / name}: weights of model {bad[0]} are not finite though it is "
                    f"marked as trained ({len(bad)} such models): the zoo was altered; build "
                    "again with --resume --repair"
                )
        return self.space.unflatten(leaves)

    def _numbers(self, rows: Any) -> Int[np.ndarray, " rows"]:
        rows = np.asarray(rows)
        if rows.dtype == bool and rows.shape == (self.models,):
            return np.flatnonzero(rows)
        if rows.ndim != 1 or rows.dtype == bool or np.any((rows < 0) | (rows >= self.models)):
            raise ZooError(
                f"{self.path}: rows are the numbers of models from 0 to {self.models - 1}, or a "
                f"truth value for each of them; got {rows.dtype}{list(rows.shape)}"
            )
        return rows.astype(int)

    def damage(self) -> list[tuple[int, str]]:
        """What cannot be used of the finished models: for each such file its chunk, and why."""
        return list(self.store.damage(stored_arrays(self.space, self._drawn)))

    @property
    def origin(self) -> dict[str, Any]:
        """What the zoo was made from: with it, anyone can build it again."""
        return {
            "recipe": self.kind,
            "config": self.config,
            "seed": self.seed,
            "models": self.models,
        }

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
            "weights_each": sum(int(np.prod(leaf.shape)) for leaf in self.space.leaves),
            "tensors": len(self.space.leaves),
            "success_quantiles": dict(zip(map(str, levels), quantiles, strict=False)),
        }

    def describe(self) -> str:
        """What is in the zoo, in a few lines."""
        facts = self.summary()
        lines = [
            f"{facts['recipe']} zoo in {facts['path']}: {facts['finished']:,} of "
            f"{facts['models']:,} models, {facts['diverged']} diverged",
            f"each {facts['weights_each']:,} weights in {facts['tensors']} tensors; "
            f"seed {self.seed}",
            ", ".join(f"{name} {value}" for name, value in self.config.items() if value != ""),
        ]
        if facts["success_quantiles"]:
            values = ", ".join(f"{value:.3f}" for value in facts["success_quantiles"].values())
            lines.append(f"success rate at quantiles .05 .25 .5 .75 .95: {values}")
        if not self.complete:
            lines.append("incomplete: build again with the same options and --resume")
        return "\n".join(lines)

    def _column(self, name: str) -> np.ndarray:
        column = np.full(self.store.shape(name), np.nan)
        present = np.flatnonzero(self.status != Status.MISSING)
        column[present] = self._rows(name, present)
        return column

    def _rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Some models of an array: every chunk is read once, several at a time."""
        size = self.store.chunk
        chunks = np.unique(rows // size).tolist()
        self.store.check_chunks(name, chunks)
        out = np.empty((len(rows), *self.store.shape(name)[1:]), self.store.dtype(name))

        def take(chunk: int) -> None:
            chosen = np.flatnonzero(rows // size == chunk)
            out[chosen] = self.store.read(name, self.store.rows(chunk))[rows[chosen] - chunk * size]

        with ThreadPoolExecutor(_READERS) as readers:
            list(readers.map(take, chunks))
        return out

    def __repr__(self) -> str:
        count = int(np.sum(self.status != Status.MISSING))
        return f"Zoo({self.kind}, {count:,} of {self.models:,} models, {str(self.path)!r})"


def stored_arrays(
    space: WeightSpace, choices: Iterable[str]
) -> dict[str, tuple[tuple[int, ...], str]]:
    """The arrays of a zoo: the shape of one model's part, and the type."""
    arrays = {array_name(leaf.path): (leaf.shape, "float32") for leaf in space.leaves}
    arrays |= {f"choices.{name}": ((), "float32") for name in choices}
    arrays |= {name: ((REPEATS,), "float32") for name in ("success", "loss")}
    return arrays | {"seed": ((2,), "uint32"), "batch_size": ((), "int32"), "status": ((), "uint8")}


def array_name(path: str) -> str:
    """The array of a leaf's weights."""
    return f"weights.{path.replace('/', '.')}"
