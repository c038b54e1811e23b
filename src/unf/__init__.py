"""Networks that read, edit and optimize the weights of other networks, for any architecture."""

from . import basis, models, nn, spec, testing
from ._version import __version__
from .basis import count_terms
from .models import load_model, save_model
from .spec import SpecError, SymmetryError, WeightSpace, verify

__all__ = [
    "SpecError",
    "SymmetryError",
    "WeightSpace",
    "__version__",
    "basis",
    "count_terms",
    "load_model",
    "models",
    "nn",
    "save_model",
    "spec",
    "testing",
    "verify",
]
