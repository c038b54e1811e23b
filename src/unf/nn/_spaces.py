"""The same parameters on another weight space (`layer.on(space)`)."""

from dataclasses import fields
from typing import Any, TypeVar

import equinox as eqx

from ..spec import WeightSpace

Module = TypeVar("Module", bound=eqx.Module)


def replace_fields(module: Module, **changes: Any) -> Module:
    """A copy of a module with some fields replaced, whatever its `__init__` takes."""
    new = object.__new__(type(module))
    for field in fields(module):
        value = changes[field.name] if field.name in changes else getattr(module, field.name)
        object.__setattr__(new, field.name, value)
    return new


def resize_with(stored: WeightSpace, was: WeightSpace, now: WeightSpace) -> WeightSpace:
    """A space that belongs to `was`, such as an output's, at the sizes of `now`."""
    if stored == was:
        return now
    return stored.resize({name: now.axis_sizes[name] for name in stored.sizes if name in was.sizes})
