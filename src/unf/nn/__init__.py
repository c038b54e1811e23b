"""Layers on weight spaces, as Equinox modules and as plain functions."""

from ._fourier import FourierFeatures
from ._functional import apply, coefficient_shapes
from ._linear import NFNLinear, UNFLinear, init_coefficients
from ._pointwise import DeepSetLinear, Pointwise, stack_channels
from ._pool import AttentionPool, InvariantPool, RolePool
from ._position import PositionalEncoding
from ._product import MatrixProducts
from ._sharding import leaf_shardings, shard
from ._tied import TiedLinear

__all__ = [
    "AttentionPool",
    "DeepSetLinear",
    "FourierFeatures",
    "InvariantPool",
    "MatrixProducts",
    "NFNLinear",
    "Pointwise",
    "PositionalEncoding",
    "RolePool",
    "TiedLinear",
    "UNFLinear",
    "apply",
    "coefficient_shapes",
    "init_coefficients",
    "leaf_shardings",
    "shard",
    "stack_channels",
]
