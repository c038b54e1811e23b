"""Griffe extension: show the `>>>` examples of docstrings as code instead of quotations."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Put each doctest of a docstring into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object, if it has examples."""
        if obj.docstring is None or ">>> " not in obj.docstring.value:
            return
        text = obj.docstring.value
        obj.docstring.value = _EXAMPLE.sub(lambda m: f"```pycon\n{m.group()}\n```", text)
