"""What networks are trained to do: data, a network, its loss."""

from ...meta import Data, Task
from ._addition import SYMBOLS, Addition, Problems, as_text
from ._cnn import CNNTask
from ._images import SmallCNN
from ._mlp import MLPTask
from ._rnn import RNNTask
from ._task import ImageTask, Labelled, TextTask, check_finite
from ._transformer import TransformerTask

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (MLPTask, CNNTask, RNNTask, TransformerTask)
}
"""The paper's tasks for learned optimizers (§4.2), by name."""

__all__ = [
    "SYMBOLS",
    "TASKS",
    "Addition",
    "CNNTask",
    "Data",
    "ImageTask",
    "Labelled",
    "MLPTask",
    "Problems",
    "RNNTask",
    "SmallCNN",
    "Task",
    "TextTask",
    "TransformerTask",
    "as_text",
    "check_finite",
]
