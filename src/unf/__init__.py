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
    from . import meta, optim, symmetry, viz, zoo
    from .symmetry import (
        align,
        barrier,
        canonicalize,
        distance,
        merge,
        orbit_size,
        reset_statistics,
    )

__all__ = [
    "SpecError",
    "SymmetryError",
    "WeightSpace",
    "__version__",
    "align",
    "barrier",
    "basis",
    "canonicalize",
    "count_terms",
    "distance",
    "fit",
    "graph",
    "infer",
    "load_model",
    "merge",
    "meta",
    "models",
    "nn",
    "optim",
    "orbit_size",
    "register_rule",
    "reset_statistics",
    "save_model",
    "spec",
    "symmetry",
    "testing",
    "verify",
    "viz",
    "zoo",
]
_OF_SYMMETRY = (
    "align",
    "barrier",
    "canonicalize",
    "distance",
    "merge",
    "orbit_size",
    "reset_statistics",
)
_WHEN_NEEDED = {
    **dict.fromkeys(["meta", "optim", "symmetry", "viz", "zoo"]),
    **dict.fromkeys(_OF_SYMMETRY, "symmetry"),
}
"""Packages, and functions by their package, that are imported on first use.

So `import unf` stays fast.
"""


def __getattr__(name: str) -> Any:
    if name in _WHEN_NEEDED:
        package = _WHEN_NEEDED[name]
        module = importlib.import_module(f".{package or name}", __name__)
        return getattr(module, name) if package else module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHEN_NEEDED})
