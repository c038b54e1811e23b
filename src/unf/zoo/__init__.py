"""Collections of networks with their scores: open, read, write, split.

zoo = unf.zoo.Zoo("out/zoo")
zoo.weights(), zoo.success, zoo.choices["learning_rate"]
"""

from ._store import Status, ZooError
from ._zoo import Zoo

__all__ = ["Status", "Zoo", "ZooError"]
