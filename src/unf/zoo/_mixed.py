"""Mixed zoos: networks of several architectures, a zoo for each, read as one collection.

DIR/mixed.json           the names of the zoos, which are held out, and what they were built from
DIR/<name>/              the zoo of one architecture
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, PyTree

from .._persistence import digest, write_whole
from ._arrays import is_name
from ._store import Status, ZooError
from ._zoo import Models, Zoo, check_free, check_rows, divide, quantile_lines

INDEX = "mixed.json"
FORMAT = 1
_KIND = "mixed"


class MixedSplit(NamedTuple):
    """Numbers of the models to train on, to validate with, to test on, and held out."""

    train: Int[np.ndarray, " train"]
    valid: Int[np.ndarray, " valid"]
    test: Int[np.ndarray, " test"]
    held_out: Int[np.ndarray, " held_out"]


class Part(NamedTuple):
    """Models of one architecture: their zoo, their rows there, and their places in the request."""

    zoo: Zoo
    rows: Int[np.ndarray, " models"]
    places: Int[np.ndarray, " models"]


class MixedZoo(Models):
    """Networks of several architectures with their scores: a zoo for each architecture.

    Models are numbered through all zoos, in their order. `zoo.scores` has the scores that all
    zoos have. `zoo.settings` has those of any zoo, with NaN or "" where there is none, and the
    options of recipes in which the zoos differ, such as depth and width.

    Attributes:
        path: the folder; None for a zoo in memory.
        zoos: the zoo of each architecture, by name.
        held_out: the names of architectures that no predictor is trained on.
        models: how many networks there are.
        kind: "mixed".
        config: the recipe's options, if a recipe has built the zoo.
        seed: the recipe's seed, or None.
    """

    path: Path | None
    kind = _KIND

    def __init__(self, path: str | os.PathLike):
        """Open a mixed zoo.

        Raises:
            ZooError: if there is none, or it or one of its zoos is unfinished or damaged.
        """
        self.path = Path(path)
        index = read_index(path)
        zoos = {}
        for name in index["zoos"]:
            if not (self.path / name / "zarr.json").is_file():
                raise ZooError(
                    f"{path}: the zoo of {name} is missing; rebuild the zoo with the same "
                    "arguments and resume=True, or save it again"
                )
            zoos[name] = Zoo(self.path / name)
        self._begin(zoos, index["held_out"], index["config"], index["seed"])

    def _begin(
        self,
        zoos: Mapping[str, Zoo],
        held_out: Iterable[str],
        config: Mapping[str, Any],
        seed: int | None,
    ) -> None:
        self.zoos, self.held_out = dict(zoos), tuple(held_out)
        self.config, self.seed = dict(config), seed
        if not self.zoos:
            raise ZooError("no zoos to join; expected one for each architecture, by name")
        for name, zoo in self.zoos.items():
            if not isinstance(zoo, Zoo):
                raise ZooError(f"{name!r} is a {type(zoo).__name__}; expected a Zoo")
        unknown = [name for name in self.held_out if name not in self.zoos]
        if unknown or len(self.held_out) >= len(self.zoos):
            raise ZooError(
                f"held_out is {list(self.held_out)}; expected some of {list(self.zoos)}, not all"
            )
        if not all(is_name(name) and not name.startswith(".") for name in self.zoos):
            raise ZooError(f"zoos are called {list(self.zoos)}; expected names for folders")
        self._starts = np.cumsum([0, *(zoo.models for zoo in self.zoos.values())])
        self.models = int(self._starts[-1])

    @classmethod
    def join(cls, zoos: Mapping[str, Zoo], *, held_out: Iterable[str] = ()) -> "MixedZoo":
        """A mixed zoo of zoos that you have, in memory; `save` writes it.

        >>> import numpy as np, unf
        >>> def zoo(width):
        ...     shapes = {"w": np.zeros((4, width)), "v": np.zeros(width)}
        ...     space = unf.WeightSpace.from_spec({"w": "[in] hidden", "v": "hidden"}, shapes)
        ...     nets = [{k: np.random.normal(size=x.shape) for k, x in shapes.items()}
        ...             for _ in range(5)]
        ...     return unf.zoo.Zoo.from_arrays(nets, np.linspace(0, 1, 5), space)
        >>> unf.zoo.MixedZoo.join({"narrow": zoo(3), "wide": zoo(8)})
        MixedZoo(10 of 10 models of 2 architectures, in memory)

        Args:
            zoos: the zoo of each architecture, by name.
            held_out: the names of those that no predictor shall be trained on.

        Raises:
            ZooError: if the zoos have no score in common, or a name is invalid.
        """
        mixed = cls.__new__(cls)
        mixed.path = None
        mixed._begin(zoos, held_out, {}, None)
        mixed.scores  # noqa: B018 - refuses zoos without a common score
        return mixed

    def save(self, path: str | os.PathLike) -> None:
        """Write the zoo to a folder, whole or not at all; `MixedZoo(path)` opens it.

        Raises:
            ZooError: if there is something at the path already, or it cannot be written.
        """
        check_free(path)
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        try:
            partial.mkdir(parents=True)
            for name, zoo in self.zoos.items():
                zoo.save(partial / name)
            write_index(partial, list(self.zoos), self.held_out, self.config, self.seed)
            os.replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    @cached_property
    def architecture(self) -> np.ndarray:
        """The name of each model's architecture."""
        counts = [zoo.models for zoo in self.zoos.values()]
        return np.repeat(np.array(list(self.zoos)), counts)

    @cached_property
    def status(self) -> Int[np.ndarray, " models"]:
        """The `Status` of each model."""
        return np.concatenate([zoo.status for zoo in self.zoos.values()])

    @cached_property
    def scores(self) -> Mapping[str, np.ndarray]:
        """Each score that all zoos have, of shape [models, repeats]; NaN for missing models."""
        each = [zoo.scores for zoo in self.zoos.values()]
        names = [name for name in each[0] if all(name in scores for scores in each)]
        if not names:
            raise ZooError("the zoos have no score in common; give one score the same name in all")
        repeats = {name: min(scores[name].shape[1] for scores in each) for name in names}
        return {
            name: np.concatenate([scores[name][:, : repeats[name]] for scores in each])
            for name in names
        }

    @cached_property
    def settings(self) -> Mapping[str, np.ndarray]:
        """How each model was trained and what it is, of shape [models]."""
        options = [
            {k: v for k, v in zoo.config.items() if isinstance(v, bool | int | float | str)}
            for zoo in self.zoos.values()
        ]
        differ = [k for k in options[0] if len({str(x.get(k)) for x in options}) > 1]
        columns = [
            {**{k: np.full(zoo.models, each[k]) for k in differ if k in each}, **zoo.settings}
            for zoo, each in zip(self.zoos.values(), options, strict=True)
        ]
        names = dict.fromkeys(name for each in columns for name in each)
        return {name: self._joined([each.get(name) for each in columns]) for name in names}

    def _joined(self, columns: list[np.ndarray | None]) -> np.ndarray:
        """One column of all zoos: words if one of them has words, else numbers."""
        words = any(x is not None and x.dtype.kind == "U" for x in columns)
        counts = [zoo.models for zoo in self.zoos.values()]
        empty = "" if words else np.nan
        filled = [
            np.full(n, empty) if x is None else x.astype(str if words else float)
            for x, n in zip(columns, counts, strict=True)
        ]
        return np.concatenate(filled)

    def parts(self, rows: Any = None) -> dict[str, Part]:
        """Some models by architecture, by default all trained ones; empty parts are left out.

        Args:
            rows: the numbers of the models, or a truth value for each model.
        """
        rows = self.trained if rows is None else check_rows(rows, self.models, self._where)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        found = {}
        for i, (name, zoo) in enumerate(self.zoos.items()):
            places = np.flatnonzero(owner == i)
            if len(places):
                found[name] = Part(zoo, rows[places] - self._starts[i], places)
        return found

    def weights(self, rows: Any = None) -> dict[str, PyTree]:
        """The weights of some models, by default of all trained ones, for each architecture.

        Args:
            rows: the numbers of the models, or a truth value for each model.

        Raises:
            ZooError: if a chunk is missing, truncated or altered.
        """
        return {name: part.zoo.weights(part.rows) for name, part in self.parts(rows).items()}

    def split(
        self, sizes: tuple[int, ...] | None = None, *, seed: int = 0, diverged: bool = False
    ) -> MixedSplit:
        """Divide the finished models of the other architectures at random; the rest is held out.

        Args:
            sizes: how many to train on, to validate with and to test on; by default 8:1:1.
            seed: the seed of the division.
            diverged: whether to include models whose weights are not finite.

        Raises:
            ZooError: if there are too few models.
        """
        usable = np.flatnonzero(self.status != Status.MISSING) if diverged else self.trained
        held = np.isin(self.architecture[usable], self.held_out)
        parts = divide(usable[~held], sizes, seed, self._where)
        return MixedSplit(*parts, usable[held])

    def damage(self) -> list[tuple[int, str]]:
        """The damaged files of finished models: the chunk of each, and what is wrong."""
        return [found for zoo in self.zoos.values() for found in zoo.damage()]

    @property
    def origin(self) -> dict[str, Any]:
        """What tells the zoo from others: all that it was built from, or a checksum."""
        text = json.dumps([[name, zoo.origin] for name, zoo in self.zoos.items()], sort_keys=True)
        zoos = digest({"zoos": np.frombuffer(text.encode(), np.uint8)})
        known = {"recipe": _KIND, "config": self.config, "seed": self.seed, "models": self.models}
        return {**known, "held_out": list(self.held_out), "digest": zoos}

    def summary(self) -> dict[str, Any]:
        """What is in the zoo, as plain numbers."""
        sizes = [zoo.space.num_weights for zoo in self.zoos.values()]
        return {
            **self._numbers(),
            **self.origin,
            "architectures": {name: zoo.models for name, zoo in self.zoos.items()},
            "weights_each": [min(sizes), max(sizes)],
            "settings": list(self.settings),
        }

    def describe(self) -> str:
        """What is in the zoo, in a few lines."""
        facts = self.summary()
        low, high = facts["weights_each"]
        lines = [
            f"mixed zoo in {self.path or 'memory'}: {facts['finished']:,} of {self.models:,} "
            f"models, {facts['diverged']} diverged",
            f"{len(self.zoos)} architectures with {low:,} to {high:,} weights, of which "
            f"{len(self.held_out)} are held out",
            f"settings: {', '.join(facts['settings'])}" if facts["settings"] else "",
        ]
        lines += quantile_lines(facts)
        if not self.complete:
            lines.append("incomplete: rebuild the zoo with the same arguments and resume=True")
        return "\n".join(filter(None, lines))

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        return (
            f"MixedZoo({self._finished:,} of {self.models:,} models of {len(self.zoos)} "
            f"architectures, {where})"
        )


def open_zoo(path: str | os.PathLike) -> Zoo | MixedZoo:
    """Open a zoo of one architecture, or a mixed one.

    Raises:
        ZooError: if there is none, or it is damaged.
    """
    return MixedZoo(path) if (Path(path) / INDEX).is_file() else Zoo(path)


def write_index(
    folder: Path,
    zoos: Iterable[str],
    held_out: Iterable[str],
    config: Mapping[str, Any],
    seed: int | None,
) -> None:
    """Write what `read_index` reads."""
    index = {"format": FORMAT, "zoos": list(zoos), "held_out": list(held_out)}
    index |= {"config": dict(config), "seed": seed}
    write_whole(folder / INDEX, json.dumps(index, indent=1))


def read_index(path: str | os.PathLike) -> dict[str, Any]:
    """The index of a mixed zoo.

    Raises:
        ZooError: if there is none, or it is damaged.
    """
    file = Path(path) / INDEX
    if not file.is_file():
        raise ZooError(f"{path}: no mixed zoo here; expected a folder with a file {INDEX}")
    try:
        index = json.loads(file.read_text())
        if index["format"] != FORMAT:
            raise ZooError(f"{file}: format {index['format']}; this version reads {FORMAT}")
        named = [*index["zoos"], *index["held_out"]]
        if not index["zoos"] or not all(is_name(name) and name != ".." for name in named):
            raise ValueError(f"zoos are called {named}")
        return {"config": dict(index["config"]), "seed": index["seed"], **index}
    except ZooError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ZooError(f"{file}: not the index of a mixed zoo ({error!r})") from error
