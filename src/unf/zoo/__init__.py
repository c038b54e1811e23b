"""Collections of networks with their scores: open, read, write.

zoo = unf.zoo.Zoo("out/zoo")
zoo.weights(), zoo.success, zoo.choices["learning_rate"]
"""

from ._errors import ZooError
from ._store import Status
from ._zoo import Zoo

__all__ = ["Status", "Zoo", "ZooError"]
