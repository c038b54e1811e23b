"""Deep models on weight spaces: equivariant, invariant, and the statistics baseline."""

from ._fit import Fit, fit
from ._fitted import Fitted
from ._invariant import (
    Invariant,
    InvariantDeepSet,
    InvariantTied,
    InvariantUNF,
    StatNN,
    TiedDeepSet,
    TiedStatNN,
)
from ._io import load_model, save_model
from ._neurons import NeuronFeatures, NeuronUNF
from ._probe import Probe
from ._reader import Editor, average, editor, reader
from ._unf import UNF, Tied

__all__ = [
    "UNF",
    "Editor",
    "Fit",
    "Fitted",
    "Invariant",
    "InvariantDeepSet",
    "InvariantTied",
    "InvariantUNF",
    "NeuronFeatures",
    "NeuronUNF",
    "Probe",
    "StatNN",
    "Tied",
    "TiedDeepSet",
    "TiedStatNN",
    "average",
    "editor",
    "fit",
    "load_model",
    "reader",
    "save_model",
]
