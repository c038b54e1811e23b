"""Networks that read, edit and optimize the weights of other networks, for any architecture."""

from . import basis, graph, models, nn, spec, testing
from ._version import __version__
from .basis import count_terms
from .graph import infer, register_rule
from .models import load_model, save_model
from .spec import SpecError, SymmetryError, WeightSpace, verify

__all__ = [
    "SpecError",
    "SymmetryError",
    "WeightSpace",
    "__version__",
    "basis",
    "count_terms",
    "graph",
    "infer",
    "load_model",
    "models",
    "nn",
    "register_rule",
    "save_model",
    "spec",
    "testing",
    "verify",
]
