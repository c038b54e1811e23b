"""Learned optimizers in files of a few kilobytes, and those that come with the package."""

import dataclasses
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from .._arrays import fill, read_arrays, write_arrays
from ..basis import make_plan
from ..models import check_layer, check_space
from ..spec import WeightSpace
from ._form import Form
from ._theta import NFNLinear, Theta, init_theta

FORMAT = 1
_WHAT = "learned optimizer"
_SHIPPED = files("unf.optim") / "trained"


def save(path: str | os.PathLike, theta: Theta, **origin: Any) -> None:
    """Write a learned optimizer, whole or not at all.

    Args:
        path: the file, usually *.safetensors.
        theta: what to write.
        origin: where it comes from, such as task=…, steps=…; anything JSON can hold.
    """
    write_arrays(path, theta, _describe(theta) | {"origin": origin})


def load(name: str | os.PathLike, *, space: WeightSpace | None = None) -> Theta:
    """Read a learned optimizer, by its name in `trained()` or from a file.

    Args:
        name: what to read.
        space: the weight space it shall work on, checked against its own.

    Raises:
        ValueError: if there is no such optimizer, or the file is something else or damaged.
        SpecError: if it was made for another weight space, naming what differs.
    """
    path = _find(name)
    description, arrays = read_arrays(path)
    theta = fill(_skeleton(description, arrays, path), arrays, path)
    if space is not None and theta.space is not None:
        check_space(space, theta.space)
    return theta


def origin(name: str | os.PathLike) -> dict[str, Any]:
    """Where a learned optimizer comes from: its task, how long it was trained, and so on."""
    path = _find(name)
    description, _ = read_arrays(path)
    _check_kind(description, path)
    found = description.get("origin", {})
    if not isinstance(found, dict):
        raise ValueError(f"{path}: does not say where the optimizer comes from")
    return found


def trained() -> list[str]:
    """The names of the learned optimizers that come with the package."""
    if not _SHIPPED.is_dir():
        return []
    found = [Path(str(file)) for file in _SHIPPED.iterdir()]
    return sorted(path.stem for path in found if path.suffix == ".safetensors")


def _describe(theta: Theta) -> dict[str, Any]:
    """All but the arrays, as JSON can hold it."""
    return {
        "what": _WHAT,
        "format": FORMAT,
        "kind": theta.kind,
        "form": dataclasses.asdict(theta.form),
        "hidden_channels": theta.trunk[0].weight.shape[1] if theta.trunk else 32,
        "head_bias": _has_bias(theta),
        "spatial": list(_spatial(theta)),
        "space": None if theta.space is None else theta.space.to_json(),
    }


def _skeleton(description: dict[str, Any], arrays: Mapping[str, Any], path: Any) -> Theta:
    _check_kind(description, path)
    try:
        text, spatial = description["space"], tuple(description["spatial"])
        space = None if text is None else WeightSpace.from_json(text)
        arguments = {key: description[key] for key in ("kind", "hidden_channels", "head_bias")}
        if space is not None:
            plan = make_plan(space.fix(*spatial) if spatial else space)
            check_layer(plan, arguments["hidden_channels"], 1, arrays)
        arguments |= {"space": space, "form": Form(**description["form"]), "spatial": spatial}
        return eqx.filter_eval_shape(init_theta, **arguments, key=jax.random.key(0))
    except Exception as error:  # what a description has wrong in it can fail in any way
        raise ValueError(f"{path}: no optimizer can be made from this ({error!r})") from error


def _check_kind(description: dict[str, Any], path: Any) -> None:
    if description.get("what") != _WHAT:
        found = description.get("what", "something else")
        raise ValueError(f"{path}: not a learned optimizer, but {found}")
    if description.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {description.get('format')}; this version of unf reads {FORMAT}"
        )


def _find(name: str | os.PathLike) -> Path:
    shipped = Path(str(_SHIPPED)) / f"{name}.safetensors"
    path = shipped if str(name) in trained() else Path(name)
    if not path.is_file():
        raise ValueError(
            f"no learned optimizer {str(name)!r}: neither a file nor one of {trained()}"
        )
    return path


def _has_bias(theta: Theta) -> bool:
    head = theta.head.linear if isinstance(theta.head, NFNLinear) else theta.head
    return head is not None and head.bias is not None


def _spatial(theta: Theta) -> list[str]:
    """The axes that an NFN fixes and its weight space does not."""
    if not isinstance(theta.head, NFNLinear) or theta.space is None:
        return []
    return [n for n in theta.head.linear.plan.in_space.fixed if n not in theta.space.fixed]
