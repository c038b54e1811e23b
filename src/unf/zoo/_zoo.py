"""Reading a zoo: the weights of its networks, their settings, and how well they work."""

import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, PyTree

from ..spec import SpecError, WeightSpace
from ._arrays import FORMAT as FORMAT_OF_ARRAYS
from ._arrays import array_name, gather, is_name, storable
from ._store import Form, MemoryStore, Status, Store, ZooError, read_attributes

FORMAT = 1
"""The format of zoos that recipes build."""
REPEATS = 2
"""Independent measurements of each network that a recipe trains."""
_MAX_MODELS = 10**7
"""A description that claims more is damaged; a few numbers of each model are held in memory."""
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


class Split(NamedTuple):
    """Numbers of the models to train on, to validate with, and to test on."""

    train: Int[np.ndarray, " train"]
    valid: Int[np.ndarray, " valid"]
    test: Int[np.ndarray, " test"]


class Column(NamedTuple):
    """A score or a setting: its array, the form, and the words that its numbers stand for."""

    array: str
    form: Form
    words: tuple[str, ...] | None = None


class Models:
    """What zoos of one architecture and mixed ones share: what a status and scores tell.

    Attributes:
        path: the folder; None for a zoo in memory.
        status: the `Status` of each model.
        scores: each score, of shape [models, repeats].
    """

    path: Path | None
    status: Any
    scores: Any

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

    @property
    def _finished(self) -> int:
        return int(np.sum(self.status != Status.MISSING))

    @property
    def _where(self) -> str:
        return "the zoo in memory" if self.path is None else str(self.path)

    def _numbers(self) -> dict[str, Any]:
        """Where the models are, how many are finished and diverged, and how good they are.

        Quantiles are of each score over the trained models, by the first measurement.
        """
        levels = _LEVELS if len(self.trained) else ()
        return {
            "path": None if self.path is None else str(self.path),
            "finished": self._finished,
            "diverged": int(np.sum(self.diverged)),
            "quantiles": {
                name: {str(x): float(np.quantile(values[self.trained, 0], x)) for x in levels}
                for name, values in self.scores.items()
            },
        }


class Zoo(Models):
    """Networks of one architecture with their scores, on disk or in memory.

    `zoo.weights(rows)` returns the weights of some models, with leaves stacked; `zoo.scores` and
    `zoo.settings` have an entry for each model, finished or not. Make a zoo from your own
    networks with `from_arrays`, or train one with a recipe of `unf.lab.zoos`.

    Attributes:
        path: the folder; None for a zoo in memory.
        space: the weight space of the networks.
        models: how many there are.
        kind: the recipe's name, or "imported".
        config: the recipe's options.
        seed: the recipe's seed, or None.
    """

    path: Path | None

    def __init__(self, path: str | os.PathLike):
        """Open a zoo.

        Raises:
            ZooError: if there is none, it is damaged, or it has another format.
            SpecError: if its arrays do not fit its weight space.
        """
        self.path = Path(path)
        attributes = read_attributes(path)
        if attributes.get("format") not in (FORMAT, FORMAT_OF_ARRAYS):
            raise ZooError(
                f"{path}: a zoo of format {attributes.get('format')}; this version of unf reads "
                f"formats {FORMAT} and {FORMAT_OF_ARRAYS}: use the version that wrote it, or "
                "write it again"
            )
        try:
            space = WeightSpace.from_json(attributes["space"])
            models, chunk = _integer(attributes, "models"), _integer(attributes, "chunk")
            built = attributes["format"] == FORMAT
            store = Store(path, models, chunk, "" if built else "write the zoo again")
            self._begin(space, attributes, store)
        except ZooError as error:
            raise ZooError(f"{path}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ZooError(f"{path}: the zoo's description is incomplete ({error!r})") from error
        self._check_arrays()
        store.expect(self._forms)

    def _begin(
        self, space: WeightSpace, attributes: dict[str, Any], store: Store | MemoryStore
    ) -> None:
        self.space, self.attributes, self.store = space, attributes, store
        self.models = store.models
        built = attributes["format"] == FORMAT
        self.kind = str(attributes["recipe"]) if built else "imported"
        self.config = dict(attributes["config"]) if built else {}
        self.seed = _integer(attributes, "seed", low=0) if built else None
        columns = built_columns(attributes["choices"]) if built else _given_columns(attributes)
        self._scores, self._settings = columns
        self._forms = stored_arrays(space, [*self._scores.values(), *self._settings.values()])
        if built:
            self._forms |= SEED

    @classmethod
    def from_arrays(
        cls,
        weights: PyTree | Iterable[PyTree],
        scores: Any,
        space: WeightSpace,
        *,
        settings: Mapping[str, Any] | None = None,
    ) -> "Zoo":
        """A zoo of networks that you have, in memory; `save` writes it.

        Weights are kept as float32, whatever floating-point type they have; stacked arrays of
        float32 are not copied. Networks with weights that are not finite are marked as diverged.

        >>> import numpy as np, unf
        >>> shapes = {"w": np.zeros((8, 32)), "v": np.zeros(32)}
        >>> space = unf.WeightSpace.from_spec({"w": "[in] hidden", "v": "hidden"}, shapes)
        >>> nets = [{name: np.random.normal(size=x.shape) for name, x in shapes.items()}
        ...         for _ in range(5)]
        >>> zoo = unf.zoo.Zoo.from_arrays(nets, {"accuracy": [0.5, 0.9, 0.7, 0.8, 0.6]}, space)
        >>> zoo
        Zoo(imported, 5 of 5 models, in memory)
        >>> zoo.weights()["w"].shape, zoo.scores["accuracy"].shape
        ((5, 8, 32), (5, 1))

        Args:
            weights: a pytree of the space with leaves stacked along a leading axis of models; or
                a list or an iterator of such pytrees, one for each model.
            scores: an array of shape [models], or [models, repeats] for several independent
                measurements; or a dict of such arrays. A single array is called "score".
            space: the weight space of the networks.
            settings: how each network was trained: arrays of shape [models] by name, of numbers
                (NaN where unknown) or strings.

        Raises:
            SpecError: if weights do not fit the space or are not floating-point numbers; names
                the leaf and the model.
            ZooError: if scores or settings are invalid, or there are not as many as networks.
        """
        arrays, attributes = gather(weights, scores, space, settings)
        zoo = cls.__new__(cls)
        zoo.path = None
        zoo._begin(space, attributes, MemoryStore(arrays, attributes["chunk"]))
        return zoo

    def save(self, path: str | os.PathLike) -> None:
        """Write the zoo to a folder, whole or not at all; `Zoo(path)` opens it.

        The folder describes dicts, lists, and tuples. If the networks have containers of other
        classes, the weights of the opened zoo are a dict from the paths of leaves to arrays.

        Raises:
            ZooError: if there is something at the path already, or it cannot be written.
        """
        check_free(path)
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        attributes = {**self.attributes, "space": storable(self.space).to_json()}
        store = Store(partial, self.models, self.store.chunk, "save the zoo again")
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        try:
            store.create(self._forms, attributes)
            for chunk in range(self.store.num_chunks):
                store.write(chunk, {name: self.store.read(name, chunk) for name in self._forms})
            os.replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _check_arrays(self) -> None:
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

    @cached_property
    def scores(self) -> Mapping[str, np.ndarray]:
        """Each score, of shape [models, repeats]; NaN for missing models.

        A recipe's zoo has `success` and `loss`, each measured twice on independent data.
        """
        return {name: self._column(column.array) for name, column in self._scores.items()}

    @cached_property
    def settings(self) -> Mapping[str, np.ndarray]:
        """How each model was trained, of shape [models]: `learning_rate` and the like."""
        return {name: self._setting(name, column) for name, column in self._settings.items()}

    def weights(self, rows: Any = None) -> PyTree:
        """The weights of some models, by default of all trained ones, with leaves stacked.

        Args:
            rows: the numbers of the models, or a truth value for each model.

        Raises:
            ZooError: if a chunk is missing, truncated or altered, or weights are not finite
                although the model is marked as trained.
        """
        rows = self.trained if rows is None else check_rows(rows, self.models, self._where)
        names = [array_name(leaf.path) for leaf in self.space.leaves]
        leaves = [self._rows(name, rows) for name in names]
        trained = self.status[rows] == Status.TRAINED
        for name, leaf in zip(names, leaves, strict=True):
            finite = np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
            if not np.all(finite | ~trained):
                bad = rows[~finite & trained]
                raise ZooError(
                    f"{self._where}: {name} of model {bad[0]} is not finite although it is marked "
                    f"as trained ({len(bad)} such models): the zoo was altered; "
                    f"{self.store.remedies['repair']}"
                )
        return self.space.unflatten(leaves)

    def split(
        self, sizes: tuple[int, ...] | None = None, *, seed: int = 0, diverged: bool = False
    ) -> Split:
        """Divide the finished models at random.

        If the zoo has a setting `heldout`, those where it is 1 are tested on, and no others. If it
        has a setting `image`, all models of an image are in one part, and without `heldout` those
        of a tenth of the images are tested on.

        Args:
            sizes: how many to train on, to validate with and to test on; by default 8:1:1.
            seed: the seed of the division.
            diverged: whether to include models whose weights are not finite.

        Raises:
            ZooError: if there are too few models.
        """
        models = np.flatnonzero(self.status != Status.MISSING) if diverged else self.trained
        groups, heldout = (self.settings.get(name) for name in ABOUT_IMAGES[:2])
        if heldout is None and groups is None:
            return divide(models, sizes, seed, self._where)
        images = models if groups is None else groups[models]
        if heldout is None:
            each = np.random.default_rng(seed).permutation(np.unique(images))
            heldout = np.zeros(self.models)
            heldout[models] = np.isin(images, each[: -(-len(each) // 10)])
        return divide_by_image(models, images, heldout[models] > 0, sizes, seed, self._where)

    def damage(self) -> list[tuple[int, str]]:
        """The damaged files of finished models: the chunk of each, and what is wrong."""
        return list(self.store.damage(self._forms))

    @property
    def origin(self) -> dict[str, Any]:
        """What tells the zoo from others: all that it was built from, or a checksum."""
        known = {"recipe": self.kind, "config": self.config, "seed": self.seed}
        digest = self.attributes.get("digest")
        return {**known, "models": self.models, **({"digest": digest} if digest else {})}

    def summary(self) -> dict[str, Any]:
        """What is in the zoo, as plain numbers."""
        return {
            **self._numbers(),
            **self.origin,
            "weights_each": self.space.num_weights,
            "tensors": len(self.space.leaves),
            "settings": list(self._settings),
        }

    def describe(self) -> str:
        """What is in the zoo, in a few lines."""
        facts = self.summary()
        each = f"{facts['weights_each']:,} weights in {facts['tensors']} tensors each"
        lines = [
            f"{self.kind} zoo in {self.path or 'memory'}: {facts['finished']:,} of "
            f"{self.models:,} models, {facts['diverged']} diverged",
            each if self.seed is None else f"{each}; seed {self.seed}",
        ]
        if self.config:
            options = [f"{name} {value}" for name, value in self.config.items() if value != ""]
            lines.append(", ".join(options))
        elif self._settings:
            lines.append(f"settings: {', '.join(self._settings)}")
        lines += quantile_lines(facts)
        if not self.complete:
            lines.append(f"incomplete: {self.store.remedies['resume']}")
        return "\n".join(lines)

    def _column(self, name: str) -> np.ndarray:
        column = np.full(self.store.shape(name), np.nan)
        finished = np.flatnonzero(self.status != Status.MISSING)
        column[finished] = self._rows(name, finished)
        return column

    def _setting(self, name: str, column: Column) -> np.ndarray:
        """A setting as numbers or words; the word of a missing model is empty."""
        values = self._column(column.array)
        if column.words is None:
            return values
        codes = np.where(np.isnan(values), len(column.words), values).astype(int)
        if np.any((codes < 0) | (codes > len(column.words))):
            raise ZooError(
                f"{self._where}: setting {name!r} has more than {len(column.words)} words: the "
                "description was altered; restore it"
            )
        return np.array([*column.words, ""])[codes]

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
        count = self._finished
        where = "in memory" if self.path is None else repr(str(self.path))
        return f"Zoo({self.kind}, {count:,} of {self.models:,} models, {where})"


Columns = dict[str, Column]
ABOUT_IMAGES = ("image", "heldout", "label")
"""Settings that say what a network is of, not how it was trained: its image, whether that is for
testing, and the class of it."""
SEED: dict[str, Form] = {"seed": ((2,), "uint32")}


def built_columns(choices: Iterable[Any]) -> tuple[Columns, Columns]:
    """The scores and settings of a zoo that a recipe builds, which draws these settings."""
    names = list(choices)
    if odd := [name for name in names if not (isinstance(name, str) and name.isidentifier())]:
        raise ZooError(f"one of the zoo's choices is called {odd[0]!r}, not a name")
    drawn = {name: Column(f"choices.{name}", ((), "float32")) for name in names}
    scores = {name: Column(name, ((REPEATS,), "float32")) for name in ("success", "loss")}
    return scores, {"batch_size": Column("batch_size", ((), "int32")), **drawn}


def _given_columns(attributes: Mapping[str, Any]) -> tuple[Columns, Columns]:
    """The scores and settings of a zoo of given networks."""
    repeats, words = dict(attributes["scores"]), dict(attributes["settings"])
    if odd := [name for name in [*repeats, *words] if not is_name(name)]:
        raise ZooError(f"one of the zoo's scores or settings is called {odd[0]!r}, not a name")
    if not repeats or not all(isinstance(x, str) for each in words.values() for x in each or ()):
        raise ValueError("no scores, or settings that are not words")
    scores = {
        name: Column(f"scores.{name}", ((_integer(repeats, name),), "float64")) for name in repeats
    }
    settings = {
        name: Column(f"settings.{name}", ((), "float64"), None if each is None else tuple(each))
        for name, each in words.items()
    }
    return scores, settings


def divide(
    models: Int[np.ndarray, " models"], sizes: tuple[int, ...] | None, seed: int, where: str
) -> Split:
    """Divide models at random, see `Zoo.split`."""
    if sizes is None:
        tenth = len(models) // 10
        sizes = (len(models) - 2 * tenth, tenth, tenth)
    if len(sizes) != 3 or min(sizes) < 2 or sum(sizes) > len(models):
        raise ZooError(
            f"{where}: {len(models)} usable models cannot be divided into {sizes} for "
            "training, validation and test; use more models or choose smaller sizes="
        )
    order = np.random.default_rng(seed).permutation(models)
    return Split(*(order[a:b] for a, b in pairwise(np.cumsum([0, *sizes]))))


def divide_by_image(
    models: Int[np.ndarray, " models"],
    images: np.ndarray,
    heldout: Bool[np.ndarray, " models"],
    sizes: tuple[int, ...] | None,
    seed: int,
    where: str,
) -> Split:
    """Divide models so that those of an image stay together, and test on those held out."""
    rng = np.random.default_rng(seed)
    test = rng.permutation(models[heldout])
    known, their_images = models[~heldout], images[~heldout]
    place = rng.permutation(len(np.unique(images)))[np.unique(images, return_inverse=True)[1]]
    order = np.argsort(place[~heldout], kind="stable")
    known, their_images = known[order], their_images[order]
    if sizes is None:
        sizes = (len(known) - len(known) // 12, len(known) // 12, len(test))
    enough = len(sizes) == 3 and min(sizes) >= 2 and sizes[2] <= len(test)
    if not enough or sizes[0] + sizes[1] > len(known):
        raise ZooError(
            f"{where}: {len(known)} models for training and {len(test)} for testing cannot be "
            f"divided into {sizes} for training, validation and test; use more models or choose "
            "smaller sizes="
        )
    last = len(known) - sizes[1]
    train, valid, test = known[: sizes[0]], known[last:], test[: sizes[2]]
    shared = np.isin(their_images[last:], their_images[: sizes[0]])
    if np.sum(~shared) >= 2:
        return Split(train, valid[~shared], test)
    kept = ~np.isin(their_images[: sizes[0]], their_images[last:])  # few images with many networks
    if np.sum(kept) < 2:
        raise ZooError(
            f"{where}: {len(known)} models for training have {len(np.unique(their_images))} "
            "images, too few to train on some and validate with others; use networks of more "
            "images"
        )
    return Split(train[kept], valid, test)


def check_rows(rows: Any, models: int, where: str) -> Int[np.ndarray, " rows"]:
    """Numbers of models, which may be given as a truth value for each."""
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (models,):
        return np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype == bool or np.any((rows < 0) | (rows >= models)):
        raise ZooError(
            f"{where}: rows are numbers of models from 0 to {models - 1}, or a truth value for "
            f"each model; got {rows.dtype}{list(rows.shape)}"
        )
    return rows.astype(int)


def quantile_lines(facts: Mapping[str, Any]) -> list[str]:
    """The quantiles of each score, if there are any, in a line."""
    lines = []
    for name, quantiles in facts["quantiles"].items():
        values = ", ".join(f"{value:.4g}" for value in quantiles.values())
        lines += [f"{name} at quantiles .05 .25 .5 .75 .95: {values}"] if values else []
    return lines


def stored_arrays(space: WeightSpace, columns: Iterable[Column]) -> dict[str, Form]:
    """The arrays of a zoo and their forms."""
    arrays: dict[str, Form] = {
        array_name(leaf.path): (leaf.shape, "float32") for leaf in space.leaves
    }
    return {**arrays, **{column.array: column.form for column in columns}, "status": ((), "uint8")}


def check_free(path: str | os.PathLike) -> None:
    """Refuse a path where there is something already.

    Raises:
        ZooError: if there is a file or a folder that is not empty.
    """
    target = Path(path)
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists():
        what = "a zoo" if (target / "zarr.json").exists() else "something else"
        raise ZooError(f"{target}: there is {what} already; choose another folder")


def _integer(attributes: Mapping[str, Any], name: str, low: int = 1) -> int:
    number, high = attributes[name], _MAX_MODELS if low else 2**63
    if type(number) is not int or not low <= number <= high:
        raise ValueError(f"{name} is {number!r}, expected {low} to {high}")
    return number
