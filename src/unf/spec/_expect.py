"""Telling people who gave something else that a weight space is wanted, and how to make one."""

from typing import Any

from ._errors import SpecError, shown
from ._space import WeightSpace


def check_is_space(x: Any) -> None:
    """Say what to do to people who have a specification, or mixed up the order of arguments.

    Raises:
        SpecError: if it is no weight space.
    """
    if not isinstance(x, WeightSpace):
        raise SpecError(
            "this is no weight space",
            expected="a WeightSpace where it is wanted, which is before numbers of channels",
            got=f"a {type(x).__name__}: {shown(x)}",
            remedy="make one with unf.WeightSpace.from_spec(spec, params) or unf.infer(fn, "
            "params, *inputs); see docs/quickstart.md",
        )
