"""What networks are trained to do: data, a network, its loss."""

from ._addition import Addition
from ._attention import GPTTask, ViTTask
from ._images import CNNTask, MLPTask
from ._implicit import ImplicitImage
from ._recurrent import GRUTask, LSTMTask
from ._task import ImageTask, Runnable, TextTask
from ._text import RNNTask, TransformerTask
from ._unseen import AutoencoderTask, DeepMLPTask, ResNetTask

__all__ = [
    "Addition",
    "AutoencoderTask",
    "CNNTask",
    "DeepMLPTask",
    "GPTTask",
    "GRUTask",
    "ImageTask",
    "ImplicitImage",
    "LSTMTask",
    "MLPTask",
    "RNNTask",
    "ResNetTask",
    "Runnable",
    "TextTask",
    "TransformerTask",
    "ViTTask",
]
