"""Collections of networks with their scores: open, read, write, split.

zoo = unf.zoo.Zoo.from_arrays(weights, {"accuracy": accuracies}, space)
zoo.save("out/zoo")
zoo = unf.zoo.Zoo("out/zoo")
zoo.weights(), zoo.scores["accuracy"], zoo.split()

mixed = unf.zoo.MixedZoo.join({"small": zoo, "large": other}, held_out=["large"])
"""

from ._mixed import MixedZoo, open_zoo
from ._store import Status, ZooError
from ._zoo import Zoo

__all__ = ["MixedZoo", "Status", "Zoo", "ZooError", "open_zoo"]
