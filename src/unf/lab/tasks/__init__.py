"""What networks are trained to do: data, a network, its loss."""

from ...meta import Data, Task
from ._addition import Addition, Problems, as_text
from ._images import CNNTask, MLPTask, SmallCNN
from ._moons import TwoMoons
from ._task import ImageTask, Labeled, TextTask, check_finite
from ._text import RNNTask, TransformerTask

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (MLPTask, CNNTask, RNNTask, TransformerTask)
}
"""The paper's tasks for learned optimizers (§4.2), by name."""

__all__ = [
    "TASKS",
    "Addition",
    "CNNTask",
    "Data",
    "ImageTask",
    "Labeled",
    "MLPTask",
    "Problems",
    "RNNTask",
    "SmallCNN",
    "Task",
    "TextTask",
    "TransformerTask",
    "TwoMoons",
    "as_text",
    "check_finite",
]
