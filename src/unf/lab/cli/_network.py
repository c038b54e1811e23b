"""`unf spec` and `unf cost`: the symmetries of a user's network, and what a layer on it takes."""

import dataclasses
import importlib
import importlib.util
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from tyro.conf import Positional, arg

from ..._progress import say
from ...basis import cost_report, count_terms, make_plan
from ...graph import infer
from ...spec import WeightSpace, verify
from ...spec._tree import format_path
from ...viz import draw_space, draw_terms
from .._weights import Fit, Misfit
from ..tasks import Runnable
from ._command import Command, CommandError, File, print_json

Target = Annotated[Positional[str], arg(metavar="TARGET")]
_PROBES = 128
"""How many inputs are learned for a network of the user's."""


@dataclass(frozen=True, kw_only=True)
class Spec(Command):
    """Infer, explain and verify the specification of a network.

    TARGET is package.module:function or path/to/file.py:function. The function takes no arguments
    and returns (fn, params, *inputs), where fn(params, *inputs) is the network, e.g.

        def example():
            return model.apply, params, jax.ShapeDtypeStruct((1, 28, 28, 1), "float32")

    Parameters and inputs are arrays, or shapes such as jax.ShapeDtypeStruct. For a PyTorch module
    the function returns (module, *inputs). It may also return a WeightSpace that you wrote.

    Examples:
        unf spec my_model:example
        unf spec my_model.py:example --explain
        unf spec my_model.py:example --leaf params/Dense_0/kernel
        unf spec my_model:example --verify
        unf spec my_model:example --svg out/network.svg
    """

    target: Target  # The function that returns the network, its parameters and inputs.
    inputs: Literal["fixed", "free"] = "fixed"  # Whether axes of inputs may be permuted.
    outputs: Literal["fixed", "free"] = "fixed"  # Whether axes of outputs may be permuted.
    explain: bool = False  # Say why the axes of every leaf are as they are.
    # Explain only this leaf, e.g. params/Dense_0/kernel.
    leaf: Annotated[str | None, arg(metavar="PATH")] = None
    verify: bool = False  # Permute the weights and compare the outputs.
    signs: tuple[str, ...] = ()  # Names whose neurons --verify also flips, see unf.fit(signs=).
    seed: int = 0  # Seed of --verify.
    svg: File = None  # Draw the specification too.
    json: bool = False  # Print JSON, for scripts.

    def run(self) -> int:
        """Print the specification; returns 1 if it is to be verified and is not a symmetry."""
        example = load_example(self.target)
        space = example.infer(inputs=self.inputs, outputs=self.outputs)
        problem, report = False, ""
        if self.verify:
            say(f"running the network, permuted by each of {', '.join(space.sizes) or 'none'} …")
            try:
                key = jax.random.key(self.seed)
                report = str(example.verify(space, key=key, signs=self.signs))
            except ValueError as error:  # not a symmetry, or outputs that cannot be compared
                problem, report = True, str(error)
        if self.json:
            verified = {"verified": not problem, "report": report} if self.verify else {}
            print_json(_as_json(space) | verified)
        elif self.explain or self.leaf:
            print(space.explain(self.leaf))
        else:
            print(space)
            print(f"\n{count_terms(space):,} terms in an equivariant linear layer")
            unused = space.notes.unused if space.notes else ()
            if unused:
                print(textwrap.fill(f"unused: {', '.join(unused)}", subsequent_indent="  "))
        if self.svg is not None:
            _write_picture(self.svg, draw_space(space))
        if report and not self.json:
            print(f"\n{report}")
        return int(problem)


@dataclass(frozen=True, kw_only=True)
class Cost(Command):
    """Count terms, parameters, FLOPs and bytes of a layer on a network's weights.

    TARGET is a function that returns (fn, params, *inputs) or a PyTorch module and its inputs, as
    for unf spec.

    Examples:
        unf cost my_model:example
        unf cost my_model.py:example --channels 16,32 --batch 64 --relax
        unf cost my_model:example --devices 8
    """

    target: Target  # The function that returns the network, its parameters and inputs.
    # Channels of the layer.
    channels: Annotated[tuple[int, ...], arg(metavar="IN,OUT")] = (16, 16)
    batch: int = 1  # How many networks are processed together.
    devices: int = 1  # How many devices the weights are sharded across.
    relax: bool = False  # Permute every axis, as in the paper.
    minimal: bool = False  # Leave out linearly dependent terms.
    svg: File = None  # Draw the terms too, as index diagrams.
    json: bool = False  # Print JSON, for scripts.

    def __post_init__(self):
        if len(self.channels) != 2 or min(*self.channels, self.batch, self.devices) < 1:
            raise ValueError(
                f"--channels is {','.join(map(str, self.channels))}, --batch {self.batch} and "
                f"--devices {self.devices}; expected two positive numbers such as 16,16, and "
                "positive numbers"
            )

    def run(self) -> None:
        """Print the report, part by part."""
        space = load_example(self.target).infer()
        space = space.relax() if self.relax else space
        report = cost_report(
            space, *self.channels, batch=self.batch, minimal=self.minimal, devices=self.devices
        )
        if self.svg is not None:
            _write_picture(self.svg, draw_terms(make_plan(space, minimal=self.minimal)))
        if self.json:
            rows = (*report.rows, report.total)
            print_json({row.part: dataclasses.asdict(row) for row in rows})
        else:
            print(report)


@dataclass(frozen=True)
class Example:
    """A user's network and its inputs: a JAX function with parameters, or a PyTorch module.

    In place of a network there may be its weight space alone.
    """

    target: str
    network: Any
    inputs: tuple
    params: Any = None

    def infer(self, **options: Any) -> WeightSpace:
        """The weight space of the network.

        Raises:
            CommandError: if the network cannot be run with these inputs; says in which line.
        """
        if isinstance(self.network, WeightSpace):
            return self.network
        if _is_module(self.network):
            if "free" in options.values():
                raise CommandError("--inputs free and --outputs free are not for PyTorch modules")
            return _of_torch().infer(self.network, *self.inputs)
        try:
            return infer(self.network, self.params, *self.inputs, **options)
        except TypeError as error:
            ours = (str(Path(__file__).parents[2]), str(Path(jax.__file__).parent))
            frames = [
                frame
                for frame in traceback.extract_tb(error.__traceback__)
                if not frame.filename.startswith(ours)
            ]
            where = f" in line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
            notes = "\n".join(getattr(error, "__notes__", ()))
            message = f"{self.target}: the network fails{where}: {error}\n{notes}"
            raise CommandError(message) from error

    @property
    def function(self) -> Callable[..., Any]:
        """The network as a JAX function of parameters and inputs.

        Raises:
            CommandError: if there is a weight space alone.
        """
        if isinstance(self.network, WeightSpace):
            raise CommandError(f"{self.target} returned a WeightSpace, without a network to run")
        if _is_module(self.network):
            return _of_torch().to_jax(self.network, *self.inputs)[0]
        return self.network

    @property
    def arrays(self) -> tuple:
        """The inputs, with values.

        Raises:
            CommandError: if there are none, or some are shapes.
        """
        leaves = jax.tree.leaves(self.inputs)
        if not leaves or any(
            isinstance(x, jax.ShapeDtypeStruct) or getattr(x, "is_meta", False) for x in leaves
        ):
            raise CommandError(f"{self.target} returned inputs without values: return arrays")
        if _is_module(self.network):
            return tuple(x.numpy(force=True) for x in self.inputs if hasattr(x, "is_meta"))
        return self.inputs

    def runnable(self, space: WeightSpace) -> Runnable:
        """How to probe the networks of a zoo with this weight space.

        Probes start near the inputs if these differ, else from N(0, 1).

        Raises:
            CommandError: if the network cannot be probed, or the zoo has other arrays.
        """
        fn, (leaves, treedef) = self.function, jax.tree.flatten(self.inputs)
        shapes = [f"{getattr(x, 'dtype', type(x).__name__)}{[*np.shape(x)]}" for x in leaves]
        if len(leaves) != 1 or "float" not in shapes[0] or not np.shape(leaves[0]):
            raise CommandError(
                f"{self.target}: probes are learned, so the network needs one input, a batch of "
                f"floating-point numbers; it has {', '.join(shapes) or 'none'}"
            )
        fits, paths = Fit(self.infer(), others_allowed=False), [leaf.path for leaf in space.leaves]

        def run(params: PyTree, x: Array) -> PyTree:
            given = fits.tree(dict(zip(paths, jax.tree.leaves(params), strict=True)))
            return fn(given, x) if _is_module(self.network) else fn(given, *treedef.unflatten([x]))

        run.__qualname__ = self.target
        input_shape, start = tuple(leaves[0].shape[1:]), self._start(leaves[0])
        x = jax.ShapeDtypeStruct((_PROBES, *input_shape), jnp.float32)
        try:
            jax.eval_shape(run, space.to_shapes(), x)
        except Misfit as error:
            raise CommandError(f"{self.target}: another network than the zoo's: {error}") from error
        except Exception as error:  # it is the user's, and can fail in any way
            reason = str(error).strip().partition("\n")[0]
            raise CommandError(
                f"{self.target}: the network does not run on {_PROBES} inputs at once "
                f"({type(error).__name__}: {reason}); let it take batches of any size, e.g. with "
                "jax.vmap"
            ) from error
        return Runnable(run, input_shape, num_probes=_PROBES, **start)

    def _start(self, example: Any) -> dict[str, Any]:
        """Where probes start: near the inputs, if they have values that differ."""
        if isinstance(example, jax.ShapeDtypeStruct) or getattr(example, "is_meta", False):
            return {}
        if _is_module(self.network):
            example = example.detach().cpu().float().numpy()
        values = np.asarray(example, np.float32)
        if not np.isfinite(values).all():
            raise CommandError(f"{self.target}: the input has values that are not finite")
        if not (deviation := float(values.std(axis=0).mean())):
            return {}

        def start(size: int, *, key: PRNGKeyArray) -> Array:
            rows = jax.random.choice(key, len(values), (size,), replace=size > len(values))
            return jnp.asarray(values[np.asarray(rows)])

        return {"start": start, "scale": 0.3 * deviation}

    def verify(self, space: WeightSpace, *, key: PRNGKeyArray, signs: Sequence[str]) -> Any:
        """Run the network with permuted weights, and with neurons flipped."""
        if isinstance(self.network, WeightSpace):
            raise CommandError(f"{self.target} returned a WeightSpace, without a network to run")
        if _is_module(self.network):
            return _of_torch().verify(self.network, space, *self.inputs, key=key, signs=signs)
        params, inputs = _with_values((self.params, self.inputs))
        return verify(self.network, params, space, *inputs, key=key, signs=signs)


def load_example(target: str) -> Example:
    """What the function that a target names returns.

    Raises:
        CommandError: if there is no such function, or it returns something else.
    """
    example, function_name = load_name(target, callable, "function"), target.rpartition(":")[2]
    remedy = (
        f"write a function without arguments that returns (fn, params, *inputs), e.g.\n"
        f"  def {function_name}_example():\n"
        f"      return {function_name}, params, jax.ShapeDtypeStruct((1, 8), 'float32')\n"
        "or (module, *inputs) for a PyTorch module"
    )
    try:
        returned = example()
    except TypeError as error:
        if "required" not in str(error) or "argument" not in str(error):
            raise
        raise CommandError(f"{target} needs arguments ({error}): {remedy}") from error
    if isinstance(returned, WeightSpace):
        return Example(target, returned, ())
    if not isinstance(returned, tuple) or len(returned) < 2 or not callable(returned[0]):
        raise CommandError(f"{target} returned {type(returned).__name__}: {remedy}")
    if _is_module(returned[0]):
        return Example(target, returned[0], returned[1:])
    return Example(target, returned[0], returned[2:], returned[1])


def _is_module(network: Any) -> bool:
    """Whether a network is a PyTorch module, without importing PyTorch."""
    return any(kind.__module__.startswith("torch.nn.") for kind in type(network).__mro__)


def _of_torch() -> Any:
    try:
        from ... import torch
    except ImportError as error:
        raise CommandError(str(error)) from error
    return torch


def load_name(
    target: str, is_wanted: Callable[[Any], bool], kind: str, explanation: str = ""
) -> Any:
    """The function or class that package.module:NAME or path/to/file.py:NAME names.

    Raises:
        CommandError: if there is none; lists those there are.
    """
    module_name, _, name = target.rpartition(":")
    if not module_name or not name:
        raise CommandError(f"{target!r} does not name a {kind}: write package.module:{kind}")
    module = _load_module(module_name)
    if not is_wanted(module.get(name)):
        found = [name for name, value in module.items() if is_wanted(value)]
        public = ", ".join(name for name in found if not name.startswith("_")) or "none"
        what = f"{kind} {name!r}{explanation}"
        raise CommandError(f"{module_name!r} has no {what}; it has {public}")
    return module[name]


def _load_module(name: str) -> Mapping[str, Any]:
    """The names in a module or a file."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise CommandError(f"there is no file {name!r}")
        sys.path.insert(0, str(Path(name).parent.resolve()))
        # Registered under a name that no module has, since dataclasses and tyro look it up.
        spec = importlib.util.spec_from_file_location(f"file:{name}", name)
        assert spec is not None and spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return vars(module)
    sys.path.insert(0, "")
    try:
        return vars(importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name is not None and not name.startswith(error.name):
            raise
        raise CommandError(
            f"no module {name!r}: give its file (path/to/file.py:function) or run unf where "
            "Python finds it"
        ) from error


def _as_json(space: WeightSpace) -> dict:
    return {
        "leaves": {leaf.path: str(leaf) for leaf in space.leaves},
        "sizes": space.sizes,
        "fixed": {name: space.axis_sizes[name] for name in space.fixed},
        "unused": space.notes.unused if space.notes else [],
    }


def _with_values(tree):
    """Arrays in place of shapes: normal numbers, ones for variances, zeros for integers."""
    rng = np.random.default_rng(0)

    def fill(path, leaf):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return np.zeros(leaf.shape, leaf.dtype)
        if "var" in format_path(path).lower():  # verify keeps positive values positive
            return np.ones(leaf.shape, leaf.dtype)
        return rng.normal(size=leaf.shape).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, tree)


def _write_picture(path: Path, svg: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg)
    say(f"picture: {path}")
