"""What networks are trained to do: data, a network, its loss."""

from ._addition import SYMBOLS, Addition, Problems, as_text
from ._images import Labelled, SmallCNN

__all__ = ["SYMBOLS", "Addition", "Labelled", "Problems", "SmallCNN", "as_text"]
