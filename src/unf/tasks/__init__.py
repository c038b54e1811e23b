"""What networks are trained to do: data, a network, its loss."""

from ._addition import SYMBOLS, Addition, Problems, as_text

__all__ = ["SYMBOLS", "Addition", "Problems", "as_text"]
