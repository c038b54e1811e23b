"""Networks that read, edit and optimize the weights of other networks, for any architecture."""

import importlib
from typing import TYPE_CHECKING, Any

from . import basis, graph, models, nn, spec, testing
from ._version import __version__
from .basis import count_terms
from .graph import infer, register_rule
from .models import fit, load_model, save_model
from .spec import SpecError, SymmetryError, WeightSpace, verify

if TYPE_CHECKING:
    from . import meta, optim, viz, zoo

__all__ = [
    "SpecError",
    "SymmetryError",
    "WeightSpace",
    "__version__",
    "basis",
    "count_terms",
    "fit",
    "graph",
    "infer",
    "load_model",
    "meta",
    "models",
    "nn",
    "optim",
    "register_rule",
    "save_model",
    "spec",
    "testing",
    "verify",
    "viz",
    "zoo",
]
_WHEN_NEEDED = ("meta", "optim", "viz", "zoo")
"""Packages that are imported on first use, so that `import unf` stays fast."""


def __getattr__(name: str) -> Any:
    if name in _WHEN_NEEDED:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHEN_NEEDED})
