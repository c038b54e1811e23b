"""Random specifications: wild strings, and right ones of random axes."""

from math import prod

PLAIN = ("a", "b", "c", "h", "g", "#0", "#-3", "x1_y")
NAMES = (*PLAIN, "h.k", "h.k.j", "g.k")
WORDS = (
    *NAMES,
    *("(", "(", ")", ")", "[", "]", "+", "+", " ", "  ", "\t", "\n", ".", "..", ",", "#", "-"),
    *("0", "1", "2", "12", "007", "9" * 18, "9" * 19, "9" * 5000, "²", "é", "\ud800", "\0"),
    *("_", "a.", ".a", "a" * 5000, "a" + ".a" * 40, "a" + ".a" * 5000),
    *("(" * 500, "[" * 500, "(a " * 300, "(a + " * 300, ")" * 300, "a " * 300, "(a + b) " * 30),
)
ENTRIES = (
    *("a", "b", "(a b)", "(a + b)", "[c]", "", "a b", 0, -0, 1, -7, 2**70, 10**5000),
    *(None, True, 1.5, b"a", (), ("a",), {}, {"a": "b"}, float("nan"), object, "h.k", "3"),
)
SIZES = (0, 1, 2, 3, 4, 6, 8, 12, -1, 2**31, 2**62, 2**63, 10**18, 10**30, 1.5)


def altered_spec(rng):
    """A specification, shapes and sizes with little reason to fit."""
    shape = tuple(rng.choice(SIZES[1:8]) for _ in range(rng.randrange(4)))
    if rng.random() < 0.2:
        shape = tuple(rng.choice(SIZES[:-1]) for _ in range(rng.choice((1, 2, 3, 30, 100))))
    kind = rng.randrange(4)
    if kind == 0:
        spec = "".join(rng.choice(WORDS) for _ in range(rng.randrange(12)))
    elif kind == 1:
        spec = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(8)))
    elif kind == 2:
        spec = tuple(rng.choice(ENTRIES) for _ in range(len(shape) or rng.randrange(3)))
    else:
        spec = rng.choice(ENTRIES)
    sizes = {rng.choice(ENTRIES[:13]): rng.choice(SIZES) for _ in range(rng.choice((0, 0, 0, 1)))}
    if rng.random() < 0.7:
        return {"w": spec}, {"w": shape}, sizes
    others = rng.choice(({}, [], None, {"w": {}}, {"w": [spec], "v": "a"}, [spec, spec], spec))
    return others, {"w": rng.choice((shape, [shape, shape], {"x": shape, "y": shape}))}, sizes


def random_tree(rng):
    """A specification of random axes with the shapes that follow from it; some entry may be off."""
    sizes = {name: rng.choice((1, 1, 2, 2, 3, 4)) for name in NAMES}
    spec, shapes = {}, {}
    fixed = {name for name in NAMES if rng.random() < 0.3}
    for leaf in "uvw"[: rng.randrange(1, 4)]:
        axes = [_axis(rng, sizes, fixed, 0) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 5)))]
        spec[leaf] = " ".join(text for text, _ in axes)
        shapes[leaf] = tuple(size for _, size in axes)
    known = " ".join(spec.values())
    given = {name: sizes[name] for name in PLAIN if name in known and rng.random() < 0.7}
    if rng.random() < 0.2:
        given[rng.choice(NAMES)] = rng.choice(SIZES)
    if rng.random() < 0.3:
        leaf = rng.choice(list(spec))
        i = rng.randrange(len(spec[leaf]) + 1)
        spec[leaf] = spec[leaf][:i] + rng.choice(WORDS) + spec[leaf][i + rng.randrange(3) :]
    return spec, shapes, given


def _axis(rng, sizes, fixed, depth):
    kind = rng.randrange(6) if depth < 3 else 0
    if kind == 0 or kind > 3:
        name = rng.choice(PLAIN if rng.random() < 0.9 else NAMES)
        return (f"[{name}]" if name in fixed else name), sizes[name]
    if kind == 1:
        size = rng.choice((1, 2, 3))
        return str(size), size
    parts = [_axis(rng, sizes, fixed, depth + 1) for _ in range(rng.choice((1, 2, 2, 3, 6)))]
    together, combine = ((" ", prod), (" + ", sum))[kind - 2]
    return f"({together.join(text for text, _ in parts)})", combine(size for _, size in parts)
