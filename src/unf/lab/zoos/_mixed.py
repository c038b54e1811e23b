"""Mixed zoos: the recipe for classifiers of many forms, and building them side by side."""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from ..._devices import is_first, wait_for_all
from ..._progress import Progress
from ...zoo import MixedZoo, ZooError
from ...zoo._mixed import INDEX, read_index, write_index
from .._folder import first_difference
from ..tasks._classifier import KINDS
from ._build import build
from ._recipe import FORM, ClassifierZoo

_MOST_AT_ONCE = 12
"""Architectures that are compiled and trained side by side, at most."""


@dataclass(frozen=True)
class MixedRecipe:
    """Classifiers of many forms: MLPs and CNNs, plain and residual, with and without norm.

    Architectures are drawn without replacement from all combinations of a dataset, MLP or CNN, a
    depth, a width, residual connections or not (from depth 4), and norm or not. Held-out ones have
    a depth that no other has, a width that no other has, or both, in turn. MLPs and CNNs on each
    dataset are equally many. Networks of one architecture differ as in a `ClassifierZoo`.
    """

    name: ClassVar[str] = "mixed"
    most_models: ClassVar[None] = None

    architectures: int = 40
    """How many architectures predictors are trained on."""
    held_out: int = 12
    """How many other architectures there are."""
    datasets: tuple[str, ...] = ("fashion-mnist", "cifar10")
    """Datasets, of cifar10, fashion-mnist, mnist and digits."""
    data_folder: str = ""
    """Folder of the datasets' files; by default the one that UNF_DATA names."""
    depths: tuple[int, ...] = (2, 3, 4, 6)
    """Numbers of layers, with the output layer."""
    widths: tuple[int, ...] = (8, 16, 32, 64)
    """Neurons or channels of each hidden layer."""
    new_depths: tuple[int, ...] = (5,)
    """Depths of held-out architectures alone."""
    new_widths: tuple[int, ...] = (24, 48)
    """Widths of held-out architectures alone."""
    steps: int = ClassifierZoo.steps
    """Largest number of training steps."""
    batch_size: int = 64
    """Images in a batch."""

    def __post_init__(self):
        if self.architectures < 1 or self.held_out < 0:
            raise ValueError(
                f"architectures is {self.architectures} and held_out {self.held_out}; expected at "
                "least 1 and 0"
            )
        for new, known in (("new_depths", "depths"), ("new_widths", "widths")):
            if both := set(getattr(self, new)) & set(getattr(self, known)):
                raise ValueError(f"{min(both)} is among {known} and {new}; remove it from one")

    def draw(self, seed: int) -> tuple[dict[str, ClassifierZoo], tuple[str, ...]]:
        """The recipe of each architecture by name, and the names of those that are held out.

        Raises:
            ZooError: if there are not as many architectures.
        """
        rng = np.random.default_rng(seed)
        groups = [
            self._shuffled(depths, widths, rng)
            for depths, widths in (
                (self.depths, self.widths),
                (self.new_depths, self.widths),
                (self.depths, self.new_widths),
                (self.new_depths, self.new_widths),
            )
        ]
        others = _interleaved(groups[1:])
        if len(groups[0]) < self.architectures or len(others) < self.held_out:
            raise ZooError(
                f"{self.architectures} architectures and {self.held_out} held-out ones, but there "
                f"are {len(groups[0])} and {len(others)}; choose fewer, or more depths and widths"
            )
        seen, held = groups[0][: self.architectures], others[: self.held_out]
        recipes = {_title(recipe): recipe for recipe in [*seen, *held]}
        return recipes, tuple(map(_title, held))

    def _shuffled(
        self, depths: tuple[int, ...], widths: tuple[int, ...], rng: np.random.Generator
    ) -> list[ClassifierZoo]:
        """Every architecture with these depths and widths, in random order.

        MLPs and CNNs on each dataset take turns, so that any beginning has as many of each.
        """
        options: dict[str, Any] = {"steps": self.steps, "batch_sizes": (self.batch_size,)}
        options["data_folder"] = self.data_folder
        turns = []
        for dataset, kind in product(self.datasets, KINDS):
            forms: list[dict[str, Any]] = [
                dict(zip(FORM, (dataset, kind, *form), strict=True))
                for form in product(depths, widths, (False, True), (False, True))
            ]
            forms = [form for form in forms if form["depth"] >= 4 or not form["residual"]]
            order = rng.permutation(len(forms))
            turns.append([ClassifierZoo(**forms[i], **options) for i in order])
        return _interleaved(turns)


def _interleaved(rows: list[list[ClassifierZoo]]) -> list[ClassifierZoo]:
    """The first of each row, the second of each, and so on."""
    return [x for x in chain(*zip_longest(*rows)) if x is not None]


def _title(recipe: ClassifierZoo) -> str:
    words = [recipe.kind, recipe.dataset, f"depth{recipe.depth}", f"width{recipe.width}"]
    words += ["residual"] * recipe.residual + ["norm"] * recipe.norm
    return "-".join(words)


def build_mixed(
    recipe: MixedRecipe,
    path: str | os.PathLike,
    *,
    models: int,
    seed: int = 0,
    chunk: int | None = None,
    resume: bool = False,
    repair: bool = False,
    show_progress: bool = True,
) -> MixedZoo:
    """Train a mixed zoo and store it; the arguments are those of `build`.

    Every architecture gets as many networks, and is trained by one program. Several programs are
    compiled and run side by side.

    Raises:
        ZooError: if there is a zoo already and `resume` is False, it was built with other
            arguments, or it cannot be written.
    """
    recipes, held_out = recipe.draw(seed)
    if models < len(recipes):
        raise ZooError(f"models is {models}; expected at least {len(recipes)}, one of each form")
    folder = Path(path)
    if is_first():
        _prepare(folder, recipe, recipes, held_out, models, seed, resume)
    wait_for_all("the index exists")
    shares = np.array_split(np.arange(models), len(recipes))
    counts = {name: len(share) for name, share in zip(recipes, shares, strict=True)}

    def build_one(name: str) -> int:
        number = list(recipes).index(name)
        build(
            recipes[name],
            folder / name,
            models=counts[name],
            seed=int(np.random.SeedSequence([seed, number]).generate_state(1)[0]),
            chunk=chunk or min(counts[name], 256),
            resume=resume or (folder / name / "zarr.json").exists(),
            repair=repair and (folder / name / "zarr.json").exists(),
            show_progress=False,
        )
        return counts[name]

    largest_first = sorted(recipes, key=lambda name: -recipes[name].task.space.num_weights)
    with Progress(recipe.name, models, unit="networks", show=show_progress and is_first()) as bar:
        for name, count in _side_by_side(build_one, largest_first):
            bar.advance(count, name)
    return MixedZoo(path)


def _side_by_side(function: Any, names: list[str]) -> Iterator[tuple[str, Any]]:
    """The result for each name, as they come; compilation runs outside Python's lock."""
    if jax.process_count() > 1:  # processes must meet at the same points
        for name in names:
            yield name, function(name)
        return
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, os.cpu_count() or 1)) as workers:
        waiting = {workers.submit(function, name): name for name in names}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            workers.shutdown(wait=False, cancel_futures=True)


def _prepare(
    folder: Path,
    recipe: MixedRecipe,
    recipes: Mapping[str, ClassifierZoo],
    held_out: tuple[str, ...],
    models: int,
    seed: int,
    resume: bool,
) -> None:
    """Write the index, or check that the one there is of the same zoo."""
    config = {**dataclasses.asdict(recipe), "models": models}
    config = json.loads(json.dumps(config))
    if not (folder / INDEX).exists():
        if (folder / "zarr.json").exists() or (folder.exists() and not folder.is_dir()):
            raise ZooError(f"{folder}: there is something else already; choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_index(folder, list(recipes), held_out, config, seed)
        return
    if not resume:
        raise ZooError(
            f"{folder}: there is a zoo already; continue it with resume=True, or choose another "
            "folder"
        )
    found = read_index(folder)
    known = {**found["config"], "seed": found["seed"]}
    if differs := first_difference(known, {**config, "seed": seed}):
        raise ZooError(
            f"{folder}: the zoo was built with {differs}; resume it with the original arguments, "
            "or choose another folder"
        )
