"""Layers on weight spaces, as Equinox modules and as plain functions."""

from ._deepset import DeepSetLinear, PointwiseLinear
from ._functional import Coefficients, apply, coefficient_shapes
from ._linear import NFNLinear, UNFLinear, init_coefficients, pointwise_coefficients
from ._pointwise import Activation, ChannelNorm, Dropout, resolve_activation, stack_channels
from ._pool import STATISTICS, InvariantPool
from ._position import PositionalEncoding
from ._product import MatrixProducts
from ._spread import leaf_shardings, spread

__all__ = [
    "STATISTICS",
    "Activation",
    "ChannelNorm",
    "Coefficients",
    "DeepSetLinear",
    "Dropout",
    "InvariantPool",
    "MatrixProducts",
    "NFNLinear",
    "PointwiseLinear",
    "PositionalEncoding",
    "UNFLinear",
    "apply",
    "coefficient_shapes",
    "init_coefficients",
    "leaf_shardings",
    "pointwise_coefficients",
    "resolve_activation",
    "spread",
    "stack_channels",
]
