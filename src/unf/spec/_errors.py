"""The errors that specifications raise."""

MOST_SHOWN = 200
MOST_ELEMENTS = 2**63 - 1
"""The most elements of an array or an axis; larger sizes are mistakes, and too long to print."""


def shown(x: object) -> str:
    """The `repr` of an object for an error message: bounded in length, and never an error."""
    try:
        text = repr(x)
    except (ValueError, RecursionError):  # integers of thousands of digits; lists in lists
        return f"a {type(x).__name__} that cannot be printed"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


class SpecError(ValueError):
    """A specification that cannot describe the given arrays.

    The message says what failed and, where they apply, the leaf's path, what was expected,
    what was found and how to fix it. Each part is also an attribute.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        expected: object = None,
        got: object = None,
        remedy: str | None = None,
    ):
        self.problem, self.path = problem, path
        self.expected, self.got, self.remedy = expected, got, remedy
        where = f"at {path!r}: " if path is not None else ""
        details = {"expected": expected, "got": got, "remedy": remedy}
        lines = [f"  {key}: {value}" for key, value in details.items() if value is not None]
        super().__init__("\n".join([where + problem, *lines]))


class SymmetryError(ValueError):
    """Some permutations of a weight space change what the network computes.

    Attributes:
        axes: the names of these permutations.
    """

    def __init__(self, message: str, *, axes: tuple[str, ...] = ()):
        self.axes = axes
        super().__init__(message)
