"""What networks are trained to do: data, a network, its loss."""

from ._addition import Addition
from ._images import AutoencoderTask, CNNTask, MLPTask
from ._task import ImageTask, TextTask
from ._text import RNNTask, TransformerTask

__all__ = [
    "Addition",
    "AutoencoderTask",
    "CNNTask",
    "ImageTask",
    "MLPTask",
    "RNNTask",
    "TextTask",
    "TransformerTask",
]
