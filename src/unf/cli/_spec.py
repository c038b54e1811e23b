"""`unf spec`: the specification of a user's network."""

import argparse
import json
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ..basis import count_terms
from ..graph import infer
from ..spec import WeightSpace, format_path, picture, verify
from ._load import load_example

EPILOG = """\
The target is a function without arguments that returns (fn, params, *inputs), where
fn(params, *inputs) is the network; arrays or jax.ShapeDtypeStruct serve:

  def example():
      return model.apply, params, jax.ShapeDtypeStruct((1, 28, 28, 1), "float32")

  unf spec my_model:example
  unf spec my_model.py:example --explain params/Dense_0/kernel
  unf spec my_model:example --verify
  unf spec my_model:example --svg out/network.svg
"""


def add_parser(commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "spec",
        help="infer, explain and verify the specification of a network",
        description="Infer the specification of a network from its computation graph.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", help="package.module:function or path/to/file.py:function")
    parser.add_argument(
        "--inputs", choices=("fixed", "free"), default="fixed", help="may the inputs' axes permute?"
    )
    parser.add_argument("--outputs", choices=("fixed", "free"), default="fixed")
    parser.add_argument(
        "--explain", metavar="PATH", nargs="?", const="", help="say why, of one leaf or of all"
    )
    parser.add_argument("--verify", action="store_true", help="permute and compare the outputs")
    parser.add_argument("--seed", type=int, default=0, help="for --verify")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it too")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the specification; 1 if it was to be verified and is not a symmetry."""
    fn, params, inputs = load_example(options.target)
    space = infer(fn, params, *inputs, inputs=options.inputs, outputs=options.outputs)
    if options.json:
        print(json.dumps(_as_json(space), indent=1))
    elif options.explain is not None:
        print(space.explain(options.explain or None))
    else:
        print(space)
        print(f"\n{count_terms(space):,} terms in an equivariant linear layer")
        unused = space.notes.unused if space.notes else ()
        if unused:
            print(textwrap.fill(f"unused: {', '.join(unused)}", subsequent_indent="  "))
    if options.svg is not None:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(picture(space))
        print(f"picture: {options.svg}", file=sys.stderr)
    return _verify(fn, params, inputs, space, options.seed) if options.verify else 0


def _as_json(space: WeightSpace) -> dict:
    return {
        "leaves": {leaf.path: str(leaf) for leaf in space.leaves},
        "sizes": space.sizes,
        "fixed": {name: space.axis_sizes[name] for name in space.fixed},
        "unused": space.notes.unused if space.notes else [],
    }


def _verify(fn, params, inputs: tuple, space: WeightSpace, seed: int) -> int:
    key = jax.random.key(seed)
    params, inputs = _with_values((params, inputs))
    try:
        report = verify(fn, params, space, *inputs, key=key)
    except ValueError as error:  # no symmetry, or outputs that cannot be compared
        print(f"\n{error}")
        return 1
    print(f"\n{report}")
    return 0


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
