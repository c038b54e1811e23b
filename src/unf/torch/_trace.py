"""A module as a JAX function of its weights: traced through torchax, or through torch.export."""

import os
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from linecache import getline
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, TypeVar

import jax
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..spec import SpecError
from ._modules import State, call, evaluating

Function = Callable[..., list[jax.Array]]
"""A function of the weights by name and of the tensors among the inputs."""
Result = TypeVar("Result")
_VALUES = (
    "replace a branch by torch.where, and a selection (nonzero, a Boolean index, routing to "
    "experts) by a product with a mask; or write the specification by hand, "
    "unf.WeightSpace.from_spec"
)
_OTHER = (
    "write this line with other operations, out of place; or write the specification by hand, "
    "unf.WeightSpace.from_spec"
)


class TraceError(ValueError):
    """A module whose computation cannot be traced.

    Attributes:
        where: the file and line of the module's code that fails.
        needs_values: whether it fails because a trace has shapes and no values.
        remedy: what to do.
    """

    def __init__(self, module: nn.Module, error: Exception):
        frame = _users_frame(error)
        code, number = frame.f_code, _line_number(error, frame)
        text = getline(code.co_filename, number, frame.f_globals).strip()
        self.where = f"{Path(code.co_filename).name}:{number}"
        self.needs_values = isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError)
        self.remedy = _VALUES if self.needs_values else _OTHER
        reason = (str(error).strip() or "no message").splitlines()[0]
        problem = "needs the values of tensors" if self.needs_values else "cannot be traced"
        lines = [
            f"{type(module).__name__} cannot be traced: at {self.where}, in {code.co_qualname}, "
            + (f"the line `{text}` {problem}" if text else f"an operation {problem}"),
            f"  got: {type(error).__name__}: {reason}",
            f"  remedy: {self.remedy}",
        ]
        super().__init__("\n".join(lines))


def trace(
    module: nn.Module, inputs: tuple, kwargs: dict[str, Any], use: Callable[..., Result]
) -> tuple[State, Result]:
    """What `use(function, shapes, *arguments)` returns for the first trace that it can use.

    Args:
        module: the module, which is traced directly, or else through torch.export.
        inputs: its arguments.
        kwargs: its keyword arguments.
        use: gets the module as a function, the shapes of its weights, and those of the tensors
            among the arguments, and traces the function.

    Raises:
        TraceError: if neither trace can be used, naming the line that is at fault.
        SpecError: if this is not a module, or it has no weights.
    """
    if not isinstance(module, nn.Module):
        raise SpecError(
            "not a PyTorch module",
            expected="a torch.nn.Module",
            got=f"a {type(module).__name__}",
            remedy="for a JAX function, use unf.infer(fn, params, *inputs)",
        )
    state = State.of(module.state_dict(keep_vars=True))
    if not state.weights:
        raise SpecError("the module has no weights", got=f"entries {list(state.left_out)}")
    shapes = {name: to_struct(x) for name, x in state.weights.items()}
    arguments = [to_struct(x) for x in tensors((inputs, kwargs))]
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        try:
            return state, use(trace_directly(module, inputs, kwargs), shapes, *arguments)
        except TraceError as error:
            _check_runs(module, inputs, kwargs)
            if error.needs_values:
                raise
            try:
                return state, use(trace_exported(module, state, inputs, kwargs), shapes, *arguments)
            except Exception:
                raise error from error.__cause__


def trace_directly(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Function:
    """The module's `forward`, run on torchax's tensors."""
    environment = _environment()

    def function(weights: dict[str, jax.Array], *inputs: jax.Array) -> list[jax.Array]:
        states = environment.j2t_iso(weights)
        new_args, new_kwargs = environment.j2t_iso(with_tensors((args, kwargs), inputs))
        key = jax.random.key(0)
        try:
            with _no_fast_path(), environment.override_property(prng=key), environment:
                with torch.device("jax"):
                    outputs = call(module, states, new_args, new_kwargs, _constant)
            return [environment.t2j_iso(environment.to_xla(x)) for x in outputs]
        except Exception as error:
            raise TraceError(module, error) from error

    return function


def trace_exported(
    module: nn.Module, state: State, args: tuple, kwargs: dict[str, Any]
) -> Function:
    """The graph that torch.export finds, also of modules that write to their own tensors."""
    _environment()
    from torchax.export import exported_program_to_jax

    with evaluating(module), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export warns about itself
        program = torch.export.export(module, args, kwargs, strict=False)
        names, values, run = exported_program_to_jax(program, export_raw=True)
    names = [state.aliases.get(str(name), str(name)) for name in names]
    names += [""] * (len(values) - len(names))  # constants in the code have no names
    pairs = list(zip(names, values, strict=True))
    constants = [None if n in state.weights else _constant(x).jax() for n, x in pairs]

    def function(weights: dict[str, jax.Array], *inputs: jax.Array) -> list[jax.Array]:
        states = [weights.get(n, x) for n, x in zip(names, constants, strict=True)]
        outputs = run(states, pytree.tree_leaves(with_tensors((args, kwargs), inputs)))
        return [x for x in outputs if isinstance(x, jax.Array)]

    return function


def _check_runs(module: nn.Module, inputs: tuple, kwargs: dict[str, Any]) -> None:
    """Raise PyTorch's own error if the module does not run with these inputs at all."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), evaluating(module):
            module(*inputs, **kwargs)
    except Exception as error:
        shapes = [tuple(x.shape) for x in tensors((inputs, kwargs))]
        error.add_note(
            f"unf.torch called the module with tensors of shapes {shapes}; does the module "
            "take these?"
        )
        raise


def _constant(tensor: Tensor) -> Any:
    """A tensor that is not a weight, for torchax.

    If it has no values, being on the meta device, it gets values that are all different: those
    have no symmetry.
    """
    if tensor.is_meta:
        numbers = torch.arange(tensor.numel(), device="cpu")
        tensor = numbers.reshape(tensor.shape).to(tensor.dtype)
    return _environment().to_xla(tensor.detach())


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of a tree."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, Tensor)]


def with_tensors(tree: Any, values: Sequence[Any]) -> Any:
    """The tree with other values in place of its tensors."""
    remaining = iter(values)
    return pytree.tree_map(lambda x: next(remaining) if isinstance(x, Tensor) else x, tree)


def to_struct(tensor: Tensor) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a tensor, for JAX."""
    _environment()
    from torchax.ops.mappings import t2j_dtype

    return jax.ShapeDtypeStruct(tuple(tensor.shape), t2j_dtype(tensor.dtype))


@cache
def _environment() -> Any:
    """The environment of torchax, made without changing how PyTorch runs."""
    try:
        with _no_fast_path(), _stand_in_for_overloads():
            import torchax

            return torchax.default_env()
    except ImportError as error:
        raise ImportError(
            "tracing a module needs torchax; run: pip install 'universal-neural-functionals[torch]'"
        ) from error


@contextmanager
def _stand_in_for_overloads() -> Iterator[None]:
    """Let torchax name overloads of operations that this version of PyTorch does not have.

    torchax 0.0.13 lists named-tensor overloads in its tables, and PyTorch 2.13 has dropped them.
    Each is replaced by a name that no operation has.
    """
    packet = torch._ops.OpOverloadPacket
    lookup = packet.__getattr__

    def find(self: Any, name: str) -> Any:
        try:
            return lookup(self, name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return f"{self}.{name}, which is missing"

    packet.__getattr__ = find
    try:
        yield
    finally:
        packet.__getattr__ = lookup


@contextmanager
def _no_fast_path() -> Iterator[None]:
    """Attention as separate operations, since torchax does not know the fused one."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _users_frame(error: Exception) -> FrameType:
    """The innermost frame of the module's own code, or of torch.nn's."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    own = [frame for frame in frames if not _is_library(frame.f_code.co_filename)]
    in_torch = str(Path(nn.__file__).parent)
    of_torch = [frame for frame in frames if frame.f_code.co_filename.startswith(in_torch)]
    return [*frames, *of_torch, *own][-1] if own or of_torch else frames[-1]


def _line_number(error: Exception, frame: FrameType) -> int:
    return next(n for f, n in walk_tb(error.__traceback__) if f is frame)


def _is_library(file: str) -> bool:
    standard = file.startswith(sysconfig.get_paths()["stdlib"]) and "-packages" not in file
    return standard or file.startswith(_library_folders())


@cache
def _library_folders() -> tuple[str, ...]:
    specs = [find_spec(name) for name in ("torch", "torchax", "jax", "jaxlib", "numpy")]
    origins = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    folders = [Path(origin).parent for origin in origins]
    return ("<", *[f"{folder}{os.sep}" for folder in [*folders, Path(__file__).parents[1]]])
