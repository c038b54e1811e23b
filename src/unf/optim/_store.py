"""Learned optimizers in files of a few kilobytes, and those that come with the package."""

import dataclasses
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax

from .._persistence import FORMAT, Arrays, check_contents, read_arrays, read_tree, write_arrays
from ..nn import TiedLinear, UNFLinear
from ..spec import WeightSpace
from ._theta import Form, Theta, init_theta

_WHAT = "learned optimizer"
_SHIPPED = Path(str(files("unf.optim") / "trained"))


def save(path: str | os.PathLike, theta: Theta, **origin: Any) -> None:
    """Write a learned optimizer to a safetensors file, atomically.

    Args:
        path: the file.
        theta: the optimizer's coefficients.
        origin: where it comes from, such as task=…, steps=…; anything that JSON can hold.
    """
    head, spatial = theta.head, []
    if theta.kind == "tied" and not isinstance(head, TiedLinear):
        raise ValueError("this optimizer is on one weight space; save it as it was before `on`")
    if isinstance(head, UNFLinear) and theta.space is not None:  # an NFN fixes more axes
        spatial = [name for name in head.plan.in_space.fixed if name not in theta.space.fixed]
    description = {
        "what": _WHAT,
        "format": FORMAT,
        "kind": theta.kind,
        "form": dataclasses.asdict(theta.form),
        "hidden_channels": theta.trunk[0].out_features if theta.trunk else 32,
        "head_bias": head is not None and head.bias is not None,
        "spatial": spatial,
        "space": None if theta.space is None else theta.space.to_json(),
        "origin": origin,
    }
    if isinstance(head, TiedLinear):
        description |= {"keys": head.keys, "bias_keys": head.bias_keys}
    write_arrays(path, theta, description)


def load(name: str | os.PathLike, *, space: WeightSpace | None = None) -> Theta:
    """Read a learned optimizer, by its name in `trained()` or from a file.

    Args:
        name: a name or a file.
        space: the weight space to use the optimizer on; `Theta.on` says which ones fit.

    Raises:
        ValueError: if there is no such optimizer, or the file is something else or damaged.
        SpecError: if the optimizer does not fit `space`.
    """
    theta = read_tree(_find(name), _WHAT, _build, _upgrade)
    return theta if space is None else theta.on(space)


def origin(name: str | os.PathLike) -> dict[str, Any]:
    """Where a learned optimizer comes from: its task, how long it was trained, and so on."""
    path = _find(name)
    description, _ = read_arrays(path)
    check_contents(path, description, _WHAT)
    return description["origin"]


def trained() -> list[str]:
    """The names of the learned optimizers that come with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.safetensors"))


def _build(description: dict[str, Any], _: Arrays) -> Theta:
    arguments = {name: description[name] for name in ("kind", "hidden_channels", "head_bias")}
    text = description["space"]
    theta = init_theta(
        **arguments,
        space=() if text is None else WeightSpace.from_json(text),
        form=Form(**description["form"]),
        spatial=tuple(description["spatial"]),
        key=jax.random.key(0),
    )
    if isinstance(theta.head, TiedLinear):
        head = theta.head.with_keys(description["keys"], description["bias_keys"])
        theta = dataclasses.replace(theta, head=head)
    return theta


def _upgrade(_: dict[str, Any], arrays: Arrays) -> Arrays:
    """Rename and transpose the arrays of a file of format 1, whose layers computed xW."""
    dense = [name for name in arrays if name == ".head.weight" or name.startswith(".trunk")]
    arrays |= {name: arrays[name].T for name in dense if name.endswith(".weight")}
    return {name.replace(".head.linear.", ".head."): array for name, array in arrays.items()}


def _find(name: str | os.PathLike) -> Path:
    path = _SHIPPED / f"{name}.safetensors" if str(name) in trained() else Path(name)
    if not path.is_file():
        raise ValueError(
            f"no learned optimizer {str(name)!r}: neither a file nor one of {trained()}"
        )
    return path
