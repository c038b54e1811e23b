"""`unf spec`: the specification of a user's network."""

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ...basis import count_terms
from ...spec import WeightSpace, verify
from ...spec._tree import format_path
from ...viz import draw_space
from .._option import option
from .._progress import say
from ._command import Command
from ._load import infer_example
from ._shared import print_json


@dataclass(frozen=True, kw_only=True)
class Spec(Command):
    """Infer, explain and verify the specification of a network.

    The target is a function without arguments that returns (fn, params, *inputs), where
    fn(params, *inputs) is the network; arrays or jax.ShapeDtypeStruct serve. Example:
    def example(): return model.apply, params, jax.ShapeDtypeStruct((1, 28, 28, 1), "float32")
    """

    examples = """\
  unf spec my_model:example
  unf spec my_model.py:example --explain params/Dense_0/kernel
  unf spec my_model:example --verify
  unf spec my_model:example --svg out/network.svg
"""
    target: str = option(
        help="package.module:function or path/to/file.py:function", positional=True
    )
    inputs: str = option("fixed", "may the inputs' axes permute?", choices=("fixed", "free"))
    outputs: str = option("fixed", "and the outputs'?", choices=("fixed", "free"))
    explain: str | None = option(None, "say why, of one leaf or of all", metavar="PATH", bare="")
    verify: bool = option(False, "permute and compare the outputs")
    seed: int = option(0, "for --verify")
    svg: Path | None = option(None, "draw it too", metavar="FILE")
    json: bool = option(False, "for scripts", passing=True)

    def run(self) -> int:
        """Print the specification; 1 if it was to be verified and is not a symmetry."""
        fn, params, inputs, space = infer_example(
            self.target, inputs=self.inputs, outputs=self.outputs
        )
        problem, report = False, ""
        if self.verify:
            say(f"running the network, permuted in each of {', '.join(space.sizes) or 'no ways'} …")
            problem, report = _verified(fn, params, inputs, space, self.seed)
        if self.json:
            verified = {"verified": not problem, "report": report} if self.verify else {}
            print_json(_as_json(space) | verified)
        elif self.explain is not None:
            print(space.explain(self.explain or None))
        else:
            print(space)
            print(f"\n{count_terms(space):,} terms in an equivariant linear layer")
            unused = space.notes.unused if space.notes else ()
            if unused:
                print(textwrap.fill(f"unused: {', '.join(unused)}", subsequent_indent="  "))
        if self.svg is not None:
            self.svg.parent.mkdir(parents=True, exist_ok=True)
            self.svg.write_text(draw_space(space))
            print(f"picture: {self.svg}", file=sys.stderr)
        if report and not self.json:
            print(f"\n{report}")
        return int(problem)


def _as_json(space: WeightSpace) -> dict:
    return {
        "leaves": {leaf.path: str(leaf) for leaf in space.leaves},
        "sizes": space.sizes,
        "fixed": {name: space.axis_sizes[name] for name in space.fixed},
        "unused": space.notes.unused if space.notes else [],
    }


def _verified(fn, params, inputs: tuple, space: WeightSpace, seed: int) -> tuple[bool, str]:
    """Whether something is wrong, and what was found."""
    params, inputs = _with_values((params, inputs))
    try:
        return False, str(verify(fn, params, space, *inputs, key=jax.random.key(seed)))
    except ValueError as error:  # no symmetry, or outputs that cannot be compared
        return True, str(error)


def _with_values(tree):
    """Arrays in place of shapes: normal numbers, ones for variances, zeros for integers."""
    rng = np.random.default_rng(0)

    def fill(path, leaf):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return np.zeros(leaf.shape, leaf.dtype)
        if "var" in format_path(path).lower():  # verify keeps what is positive so
            return np.ones(leaf.shape, leaf.dtype)
        return rng.normal(size=leaf.shape).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, tree)


COMMANDS: dict[str, type[Command]] = {"spec": Spec}
