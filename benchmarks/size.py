"""How large a checkout is: `python -m benchmarks.size [CHECKOUT]` (standard library only)."""

import ast
import sys
import tomllib
from collections import Counter
from pathlib import Path


def measure(root: Path) -> dict[str, Counter[str]]:
    """Lines, files, names in `__all__`, `raise` and `except`, for each package of `src/unf`."""
    found: dict[str, Counter[str]] = {}
    source = root / "src" / "unf"
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).parts
        package = parts[0] if len(parts) > 1 else "."
        counts, text = found.setdefault(package, Counter()), path.read_text()
        counts.update(lines=text.count("\n"), files=1)
        for node in ast.walk(ast.parse(text)):
            counts["raise"] += isinstance(node, ast.Raise)
            counts["except"] += isinstance(node, ast.ExceptHandler)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                counts["names"] += len(ast.literal_eval(node.value))
    return found


def report(root: Path) -> str:
    """A row for each package, then the totals, the tests and the dependencies."""
    rows = measure(root)
    columns = ("lines", "files", "names", "raise", "except")
    total = sum(rows.values(), Counter[str]())
    lines = [f"{'package':12}" + "".join(f"{column:>8}" for column in columns)]
    for name, counts in [*rows.items(), ("total", total)]:
        lines.append(f"{name:12}" + "".join(f"{counts[column]:8,}" for column in columns))
    tests = [path.read_text().count("\n") for path in (root / "tests").rglob("*.py")]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = {name: len(needs) for name, needs in project["optional-dependencies"].items()}
    lines.append(f"tests: {sum(tests):,} lines in {len(tests)} files")
    lines.append(f"dependencies: {len(project['dependencies'])}; of extras: {extras}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
