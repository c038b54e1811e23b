"""What the loaders return, and what they raise."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Integer, UInt8


class DataError(ValueError):
    """Data that is missing, or not what it should be."""


class MissingDataError(DataError):
    """Data, or a package that it comes with, that is not where it was looked for."""


class Images(NamedTuple):
    """Images of shape height × width × channels with 8 bits a value, and their classes."""

    train_x: UInt8[np.ndarray, "train height width channels"]
    train_y: Int[np.ndarray, " train"]
    test_x: UInt8[np.ndarray, "test height width channels"]
    test_y: Int[np.ndarray, " test"]


class Text(NamedTuple):
    """Text as two streams of numbers below `vocabulary`: one to train on, one held out."""

    train: Integer[np.ndarray, " train"]
    heldout: Integer[np.ndarray, " heldout"]
    vocabulary: int
