"""The errors a wrong specification raises."""

MOST_SHOWN = 200
MOST_ELEMENTS = 2**63 - 1
"""Of an array or an axis; sizes beyond this are mistakes, and too long to print."""


def shown(x: object) -> str:
    """An object as a message quotes it: not endless, and never an error of its own."""
    try:
        text = repr(x)
    except (ValueError, RecursionError):  # integers of thousands of digits; lists in lists
        return f"a {type(x).__name__} that cannot be printed"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


class SpecError(ValueError):
    """A specification that cannot describe the given arrays.

    Every instance says what failed and, where they apply, the leaf's path, what was
    expected, what was found and how to mend it. All four are attributes as well.
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
    """Permutations of a weight space that change what the network computes.

    Attributes:
        axes: the names of the permutations at fault.
    """

    def __init__(self, message: str, *, axes: tuple[str, ...] = ()):
        self.axes = axes
        super().__init__(message)
