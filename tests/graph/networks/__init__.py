"""The table of networks whose specification must be found."""

from . import attention, convolution, deep, dense, recurrent, second, third_party
from ._case import NETWORKS, Network, fill, inferred

__all__ = [
    "NETWORKS",
    "Network",
    "attention",
    "convolution",
    "deep",
    "dense",
    "fill",
    "inferred",
    "recurrent",
    "second",
    "third_party",
]
