"""How objects show themselves in notebooks and inside Equinox modules."""

import importlib
from typing import Any

from wadler_lindig import TextDoc


def repr_html(x: object) -> str:
    """The HTML that notebooks show for an object, which `unf.viz` makes.

    The import is late because `unf.viz` depends on every class that it draws.
    """
    return importlib.import_module("unf.viz").to_html(x)


def in_brief(x: object) -> Any:
    """The first line of an object's `repr`, for `__pdoc__`: how Equinox prints it in a module."""
    return TextDoc(repr(x).partition("\n")[0])
