"""Tasks with the data there are, and how large an experiment is."""

import dataclasses
import os
from typing import Any

import jax

from ..data import MissingDataError
from ..tasks import TASKS, ImageTask, Task
from . import MetaTraining

BUILT_IN = {"images": "digits", "text": "python-docs"}
"""What serves when the paper's data are not there."""
SMALL = MetaTraining(
    steps=200,
    learning_rate=1e-2,
    pairs=4,
    window=10,
    horizon=100,
    head_start="pointwise",
)
"""A meta-training for two CPU cores."""


def make_task(
    name: str, *, dataset: str = "auto", folder: str | None = None, **options: Any
) -> tuple[Task, str]:
    """A task of the paper, on its data, or on what comes with Python if no folder was named.

    Args:
        name: one of `unf.lab.tasks.TASKS`.
        dataset: which data, or "auto".
        folder: where data are, by default what the variable UNF_DATA names.
        options: fields of the task; a `dtype` is by default bfloat16 on accelerators.

    Returns:
        The task, and what to tell people about its data.

    Raises:
        ValueError: if there is no such task or option.
        DataError: if the named data are missing, or are not in the folder that was named.
    """
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; expected one of {list(TASKS)}")
    kind = TASKS[name]
    known = {field.name for field in dataclasses.fields(kind)}
    for option in options:
        if option not in known:
            raise ValueError(f"the task {name!r} has no option {option}; it has {sorted(known)}")

    if "dtype" in known and jax.default_backend() != "cpu":
        options = {"dtype": "bfloat16", **options}

    def with_data(**dataset: str) -> Any:
        task = kind(**{"folder": folder, **dataset, **options})
        task.data()  # to know now if it is missing; it is read once
        return task

    if dataset != "auto":
        return with_data(dataset=dataset), f"data: {dataset}"
    try:
        task = with_data()
        return task, f"data: {task.dataset}"
    except MissingDataError as error:
        if folder or os.environ.get("UNF_DATA"):
            raise
        built_in = BUILT_IN["images" if issubclass(kind, ImageTask) else "text"]
        about = f"data: {built_in}, which needs no file, in place of the paper's ({error})"
        return with_data(dataset=built_in), about
