"""How objects show themselves in notebooks and inside Equinox modules."""

import importlib
from typing import Any

from wadler_lindig import TextDoc


def repr_html(self: object) -> str:
    """The HTML that notebooks show for an object, as a method `_repr_html_`; `unf.viz` makes it.

    The import is late because `unf.viz` depends on every class that it draws.
    """
    return importlib.import_module("unf.viz").to_html(self)


def in_brief(self: object, **_: Any) -> Any:
    """The first line of an object's `repr`, as a method `__pdoc__`: how Equinox prints it."""
    return TextDoc(repr(self).partition("\n")[0])
