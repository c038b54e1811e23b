"""Finding a user's function: `package.module:function` or `file.py:function`."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from ...graph import infer
from ...spec import WeightSpace


class TargetError(Exception):
    """What was named on the command line cannot be used."""


def infer_example(target: str, **options: Any) -> tuple[Any, Any, tuple, WeightSpace]:
    """An example and the weight space of its network.

    Raises:
        TargetError: if the network cannot be run with these inputs; says in which line.
    """
    fn, params, inputs = load_example(target)
    try:
        return fn, params, inputs, infer(fn, params, *inputs, **options)
    except TypeError as error:
        ours = (str(Path(__file__).parents[1]), str(Path(jax.__file__).parent))
        frames = [f for f in traceback.extract_tb(error.__traceback__)
                  if not f.filename.startswith(ours)]  # fmt: skip
        where = f" in line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
        notes = "\n".join(getattr(error, "__notes__", ()))
        raise TargetError(f"{target}: the network fails{where}: {error}\n{notes}") from error


def load_example(target: str) -> tuple[Any, Any, tuple]:
    """The `(fn, params, inputs)` that a function named on the command line returns.

    Args:
        target: `package.module:function` or `path/to/file.py:function`. The function takes no
            arguments and returns `(fn, params, *inputs)`; shapes are enough.
    """
    module_name, colon, function_name = target.rpartition(":")
    if not colon or not module_name or not function_name:
        raise TargetError(f"{target!r} does not name a function: write package.module:function")
    module = _load_module(module_name)
    example = getattr(module, function_name, None)
    if not callable(example):
        found = [name for name, value in vars(module).items() if callable(value)]
        public = ", ".join(name for name in found if not name.startswith("_")) or "none"
        raise TargetError(f"{module_name!r} has no function {function_name!r}; it has {public}")
    remedy = (
        f"write a function without arguments that returns (fn, params, *inputs), e.g.\n"
        f"  def {function_name}_example():\n"
        f"      return {function_name}, params, jax.ShapeDtypeStruct((1, 8), 'float32')"
    )
    try:
        returned = example()
    except TypeError as error:
        if "required" not in str(error) or "argument" not in str(error):
            raise
        raise TargetError(f"{target} wants arguments ({error}): {remedy}") from error
    if not isinstance(returned, tuple) or len(returned) < 2 or not callable(returned[0]):
        raise TargetError(f"{target} returned a {type(returned).__name__}: {remedy}")
    fn, params, *inputs = returned
    return fn, params, tuple(inputs)


def _load_module(name: str) -> ModuleType:
    path = Path(name)
    if name.endswith(".py"):
        if not path.is_file():
            raise TargetError(f"there is no file {name!r}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        sys.path.insert(0, str(path.parent.resolve()))
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not name.startswith(error.name):
            raise
        raise TargetError(
            f"no module {name!r}: give its file (path/to/file.py:function) or run where "
            "Python finds it"
        ) from error
