"""`unf align`, `unf merge` and `unf barrier`: networks in files, modulo symmetry."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
from jaxtyping import PyTree
from tyro.conf import Positional, arg

from ..._progress import say
from ...spec import WeightSpace
from ...symmetry import align, barrier, merge
from .. import plots
from .._weights import check_writable, read_network, write_network
from ._command import Command, CommandError, File, print_json
from ._network import Example, load_example

Network = Annotated[str, arg(metavar="TARGET")]
Method = Literal["weights", "activations"]


@dataclass(frozen=True, kw_only=True)
class _OnNetworks(Command):
    """A command on networks in files."""

    network: Network  # The function that returns the network, its parameters and inputs.
    method: Method = "weights"  # What makes neurons similar.
    starts: int = 2  # How many descents to run by weights; the best is taken.
    seed: int = 0  # Seed of the third and further starts.
    quiet: bool = False  # Show no progress.
    json: bool = False  # Print JSON, for scripts.

    def _load(self, files: Sequence[Path]) -> tuple[Example, WeightSpace, list[PyTree]]:
        example = load_example(self.network)
        space = example.infer()
        return example, space, [read_network(file, space) for file in files]

    @property
    def _alignment(self) -> dict[str, Any]:
        """Options of the alignment."""
        return {
            "method": self.method,
            "key": jax.random.key(self.seed),
            "num_starts": self.starts,
            "progress": False if self.quiet else None,
        }

    def __post_init__(self):
        if self.starts < 1:
            raise ValueError(f"--starts is {self.starts}; expected at least 1")


@dataclass(frozen=True, kw_only=True)
class Align(_OnNetworks):
    """Match the neurons of one network to those of another.

    A and B are files of two networks with the same architecture: safetensors, npz, or a PyTorch
    state dict (.pt, .pth). --network is a function as for unf spec: it returns (fn, params,
    *inputs), a PyTorch module and its inputs, or a WeightSpace. Arrays in the files have the names
    of the parameters. --out gets the weights of B with neurons in the order of A, which compute
    the same function as B.

    By weights, the distance is minimized. By activations, neurons are matched by correlations of
    what they compute on the inputs, which must then be arrays, not shapes.

    Examples:
        unf align a.safetensors b.safetensors --network my_model:example
        unf align a.pt b.pt --network my_model.py:example --out aligned.pt
        unf align a.npz b.npz --network my_model:example --method activations
    """

    first: Annotated[Positional[Path], arg(metavar="A")]  # The network that stays.
    second: Annotated[Positional[Path], arg(metavar="B")]  # The network that is moved.
    out: File = None  # Write B with its neurons moved to this file.

    def run(self) -> None:
        """Print distances, and how many neurons move."""
        if self.out is not None:
            check_writable(self.out)
        example, space, (a, b) = self._load([self.first, self.second])
        options = self._alignment
        if self.method == "activations":
            options |= {"fn": example.function, "inputs": example.arrays}
        found = align(space, a, b, **options)
        moved = space.permute(b, found)
        report = {
            "distance": _distance(a, b),
            "aligned_distance": _distance(a, moved),
            "moved": {name: _count_moved(np.asarray(rows)) for name, rows in found.items()},
        }
        if self.out is not None:
            write_network(self.out, moved, space, self.second)
            say(f"aligned network: {self.out}")
        if self.json:
            print_json(report)
            return
        before, after = report["distance"], report["aligned_distance"]
        print(f"distance {before:.4g}, after alignment {after:.4g}")
        print("neurons that move:")
        for name, count in report["moved"].items():
            print(f"  {name}: {count:,} of {np.size(found[name]):,}")


@dataclass(frozen=True, kw_only=True)
class Merge(_OnNetworks):
    """Average networks after aligning their neurons.

    FILE... are networks with the same architecture, in files as for unf align. The first one's
    arrays that are not parameters are kept.

    A network with batch norm needs new statistics afterwards: unf.reset_statistics in JAX,
    torch.optim.swa_utils.update_bn in PyTorch.

    Examples:
        unf merge a.safetensors b.safetensors --network my_model:example --out merged.safetensors
        unf merge a.pt b.pt c.pt --network my_model:example --weights 2,1,1 --out merged.pt
        unf merge a.npz b.npz --network my_model:example --no-align --out mean.npz
    """

    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE...")]  # The networks.
    out: Annotated[Path, arg(metavar="FILE")]  # The file of the mean.
    # How much each network counts; all the same by default.
    weights: Annotated[tuple[float, ...], arg(metavar="NUMBER,…")] = ()
    align: bool = True  # Whether to align them first.

    def run(self) -> None:
        """Write the mean."""
        if len(self.files) < 2:
            raise CommandError(f"expected at least two files, got {len(self.files)}")
        if self.weights and len(self.weights) != len(self.files):
            raise CommandError(f"{len(self.files)} files, but {len(self.weights)} --weights")
        check_writable(self.out)
        example, space, networks = self._load(self.files)
        options = self._alignment
        if self.method == "activations" and self.align:
            options |= {"fn": example.function, "batches": [example.arrays]}
        merged = merge(space, networks, self.weights or None, self.align, **options)
        write_network(self.out, merged, space, self.files[0])
        if self.json:
            print_json({"out": str(self.out), "networks": len(networks)})
        else:
            print(f"the mean of {len(networks)} networks: {self.out}")


@dataclass(frozen=True, kw_only=True)
class BarrierOf(_OnNetworks):
    """Measure the loss on the line between two networks, before and after alignment.

    A and B are files as for unf align. --network is a function that returns (loss, params, *batch),
    where loss(params, *batch) is a number and batch has arrays, the data on which it is measured;
    or (module, *batch) with a PyTorch module whose output is the loss.

    Examples:
        unf barrier a.safetensors b.safetensors --network my_model:loss_example
        unf barrier a.npz b.npz --network my_model.py:loss_example --points 25 --out barrier.svg
    """

    first: Annotated[Positional[Path], arg(metavar="A")]  # One network.
    second: Annotated[Positional[Path], arg(metavar="B")]  # The other, which is aligned to it.
    points: int = 11  # How many points of the line, with both ends.
    out: File = None  # Draw the losses to this file, e.g. barrier.png or barrier.svg.

    def __post_init__(self):
        super().__post_init__()
        if self.points < 3:
            raise ValueError(f"--points is {self.points}; expected at least 3")

    def run(self) -> None:
        """Print the losses, and draw them."""
        example, space, (a, b) = self._load([self.first, self.second])
        options = self._alignment
        found = barrier(
            example.function, space, a, b, [example.arrays], num_points=self.points, **options
        )
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            plots.save(plots.barrier_curves(found), self.out)
            say(f"picture: {self.out}")
        if self.json:
            print_json(
                {
                    "height_before": found.height_before,
                    "height_after": found.height_after,
                    "positions": found.positions.tolist(),
                    "before": found.before.tolist(),
                    "after": found.after.tolist(),
                }
            )
            return
        print(f"barrier {found.height_before:.4g}, after alignment {found.height_after:.4g}")
        print("position  as they are  aligned")
        for row in zip(found.positions, found.before, found.after, strict=True):
            print("{:8.2f}  {:11.4f}  {:7.4f}".format(*row))


def _distance(a: PyTree, b: PyTree) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    squares = (np.sum(np.square(np.asarray(x, np.float64) - np.asarray(y))) for x, y in pairs)
    return float(np.sqrt(sum(squares)))


def _count_moved(rows: np.ndarray) -> int:
    return int(np.sum(rows != np.arange(rows.shape[-1])))
