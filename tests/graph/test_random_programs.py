"""Random programs: whatever is found is a symmetry."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unf

SIZES = [2, 3, 4, 6]


class Program:
    """A chain of operations drawn at random, with a parameter wherever one is wanted."""

    def __init__(self, draw):
        self.draw = draw
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.steps: list = []
        self.history: list[tuple[int, ...]] = []
        self.looking_back: list = []
        shape = self.parameter_shape(2)
        first = self.parameter(shape)
        self.then(lambda p, _: p[first], shape)
        for _ in range(draw(st.integers(2, 7))):
            getattr(self, draw(st.sampled_from(OPERATIONS)))()

    def __call__(self, params):
        values = [None]
        for step in self.steps:
            values.append(step(params, values if step in self.looking_back else values[-1]))
        if self.reduced:
            return jnp.sum(jnp.tanh(values[-1])) + jnp.sum(jnp.sin(values[-2]))
        return values[-1]

    @property
    def reduced(self) -> bool:
        return len(self.steps) % 2 == 0

    def parameter_shape(self, rank: int) -> tuple[int, ...]:
        return tuple(self.draw(st.sampled_from(SIZES)) for _ in range(rank))

    def parameter(self, shape) -> str:
        name = f"p{len(self.shapes)}"
        self.shapes[name] = tuple(shape)
        return name

    def axis(self) -> int:
        return self.draw(st.integers(0, len(self.shape) - 1))

    def then(self, step, shape) -> None:
        self.steps.append(step)
        self.shape = tuple(shape)
        self.history.append(self.shape)

    # --- operations ------------------------------------------------------------------------

    def nonlinearity(self):
        self.then(lambda p, x: jnp.sin(x), self.shape)

    def add(self):
        name = self.parameter(self.shape)
        self.then(lambda p, x: x + p[name], self.shape)

    def combine(self):
        """With an earlier value of the same shape."""
        earlier = [i for i, shape in enumerate(self.history[:-1]) if shape == self.shape]
        if earlier:
            i = self.draw(st.sampled_from(earlier)) + 1
            self.look_back(lambda p, values: jnp.tanh(values[-1] + 2 * values[i]))

    def look_back(self, step):
        self.looking_back.append(step)
        self.then(step, self.shape)

    def roll(self):
        axis = self.axis()
        self.then(lambda p, x: jnp.roll(x, 1, axis), self.shape)

    def flip_and_add(self):
        axis = self.axis()
        self.then(lambda p, x: x + 3 * jnp.flip(x, axis), self.shape)

    def identity_and_mean(self):
        size = self.shape[-1]
        self.then(lambda p, x: jnp.sin(x @ (2 * jnp.eye(size) + 0.5)), self.shape)

    def normalize(self):
        axis = self.axis()
        self.then(lambda p, x: x / (1 + jnp.sum(x**2, axis, keepdims=True)), self.shape)

    def scale(self):
        axis = self.axis()
        shape = [n if i == axis else 1 for i, n in enumerate(self.shape)]
        name = self.parameter(shape)
        self.then(lambda p, x: x * p[name], self.shape)

    def matmul(self):
        width = self.draw(st.sampled_from(SIZES))
        name = self.parameter((self.shape[-1], width))
        self.then(lambda p, x: x @ p[name], (*self.shape[:-1], width))

    def gram(self):
        if len(self.shape) == 2:
            self.then(lambda p, x: x @ x.T, (self.shape[0], self.shape[0]))

    def transpose(self):
        order = self.draw(st.permutations(range(len(self.shape))))
        self.then(lambda p, x: x.transpose(order), [self.shape[i] for i in order])

    def merge(self):
        if len(self.shape) > 1:
            shape = (self.shape[0] * self.shape[1], *self.shape[2:])
            if shape[0] <= 24:
                self.then(lambda p, x: x.reshape(shape), shape)

    def split(self):
        axis = self.axis()
        size = self.shape[axis]
        if size % 2 == 0 and len(self.shape) < 4:
            pair = (2, size // 2) if self.draw(st.booleans()) else (size // 2, 2)
            shape = (*self.shape[:axis], *pair, *self.shape[axis + 1 :])
            self.then(lambda p, x: x.reshape(shape), shape)

    def reduce(self):
        if len(self.shape) > 1:
            axis = self.axis()
            shape = [n for i, n in enumerate(self.shape) if i != axis]
            self.then(lambda p, x: jnp.max(x, axis), shape)

    def softmax(self):
        axis = self.axis()
        self.then(lambda p, x: jax.nn.softmax(x, axis), self.shape)

    def slice(self):
        axis = self.axis()
        size = self.shape[axis]
        start = self.draw(st.integers(0, size - 1))
        stop = self.draw(st.integers(start + 1, size))
        shape = [stop - start if i == axis else n for i, n in enumerate(self.shape)]
        self.then(lambda p, x: jax.lax.slice_in_dim(x, start, stop, axis=axis), shape)

    def take_apart(self):
        """One index of an axis is told from the others, which are stacked again or summed."""
        axis = self.axis()
        shape = [n for i, n in enumerate(self.shape) if i != axis]
        if not shape:
            return
        chosen, again = self.draw(st.integers(0, self.shape[axis] - 1)), self.draw(st.booleans())
        name = self.parameter((shape[-1],))

        def step(p, x):
            rows = [jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]
            weight = p[name].reshape([1] * (len(shape) - 1) + [-1])
            rows = [row * weight if i == chosen else jnp.sin(row) for i, row in enumerate(rows)]
            others = sum(jnp.sum(row) for i, row in enumerate(rows) if i != chosen)
            return jnp.stack(rows, axis) if again else rows[chosen] + others

        self.then(step, self.shape if again else shape)

    def stride(self):
        axis = self.axis()
        shape = [-(-n // 2) if i == axis else n for i, n in enumerate(self.shape)]
        self.then(lambda p, x: jax.lax.slice_in_dim(x, 0, None, 2, axis), shape)

    def concatenate(self):
        axis = self.axis()
        extra = list(self.shape)
        extra[axis] = self.draw(st.integers(1, 3))
        name = self.parameter(extra)
        shape = [n + extra[axis] if i == axis else n for i, n in enumerate(self.shape)]
        self.then(lambda p, x: jnp.concatenate([x, p[name]], axis), shape)

    def duplicate(self):
        axis = self.axis()
        shape = [2 * n if i == axis else n for i, n in enumerate(self.shape)]
        if shape[axis] <= 24:
            self.then(lambda p, x: jnp.concatenate([x, jnp.sin(x)], axis), shape)

    def pad(self):
        axis = self.axis()
        widths = [(1, 1) if i == axis else (0, 0) for i in range(len(self.shape))]
        shape = [n + sum(w) for n, w in zip(self.shape, widths, strict=True)]
        self.then(lambda p, x: jnp.pad(x, widths), shape)

    def repeat(self):
        axis = self.axis()
        shape = [2 * n if i == axis else n for i, n in enumerate(self.shape)]
        if shape[axis] <= 24:
            self.then(lambda p, x: jnp.repeat(x, 2, axis), shape)

    def tile(self):
        shape = [2 * n if i == 0 else n for i, n in enumerate(self.shape)]
        repeats = [2 if i == 0 else 1 for i in range(len(shape))]
        if shape[0] <= 24:
            self.then(lambda p, x: jnp.tile(x, repeats), shape)

    def cumulate(self):
        axis = self.axis()
        self.then(lambda p, x: jnp.cumsum(x, axis), self.shape)

    def reverse(self):
        axis = self.axis()
        self.then(lambda p, x: jnp.flip(x, axis), self.shape)

    def take(self):
        axis = self.axis()
        index = np.array([0, self.shape[axis] - 1])
        shape = [2 if i == axis else n for i, n in enumerate(self.shape)]
        self.then(lambda p, x: jnp.take(x, index, axis), shape)

    def weigh_by_position(self):
        axis = self.axis()
        shape = [-1 if i == axis else 1 for i in range(len(self.shape))]
        size = self.shape[axis]
        self.then(lambda p, x: x * jnp.arange(1.0, size + 1).reshape(shape), self.shape)

    def weigh_by_pattern(self):
        """With a constant that is tiled, or has repeats."""
        axis = self.axis()
        size, shape = self.shape[axis], [-1 if i == axis else 1 for i in range(len(self.shape))]
        if size % 2 == 0:
            repeat = self.draw(st.sampled_from([np.tile, np.repeat]))
            pattern = repeat(np.array([1.0, 2.0]), size // 2).reshape(shape)
            self.then(lambda p, x: x * pattern, self.shape)

    def average_blocks(self):
        """A product with an identity of blocks."""
        size = self.shape[-1]
        if size % 2 == 0:
            blocks = np.kron(np.eye(size // 2), np.ones((2, 2)))
            self.then(lambda p, x: jnp.sin(x @ blocks), self.shape)

    def overwrite(self):
        """A part of an axis, at a known position or one that is not known."""
        axis = self.axis()
        size, known = self.shape[axis], self.draw(st.booleans())
        piece = [
            self.draw(st.integers(1, size)) if i == axis else n for i, n in enumerate(self.shape)
        ]
        name = self.parameter(piece)
        start = self.draw(st.integers(0, size - piece[axis]))
        starts = [start if i == axis else 0 for i in range(len(self.shape))]

        def step(p, x):
            index = starts if known else [jnp.int32(jnp.sum(p[name]) > 0)] * len(starts)
            return jax.lax.dynamic_update_slice(x, p[name] + 0 * x.ravel()[0], index)

        self.then(step, self.shape)

    def scatter(self):
        """Rows added where constants or parameters say."""
        rows, known = self.draw(st.integers(1, 4)), self.draw(st.booleans())
        name = self.parameter((rows, *self.shape[1:]))
        where = self.parameter((rows,))
        size = self.shape[0]

        def step(p, x):
            index = np.arange(rows) % size if known else jnp.int32(p[where] > 0)
            return jnp.sin(x.at[index].add(p[name]))

        self.then(step, self.shape)

    def layers(self):
        """A scan over stacked weights."""
        width = self.shape[-1]
        name = self.parameter((2, width, width))
        self.then(
            lambda p, x: jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, p[name])[0],
            self.shape,
        )

    def indexed(self):
        """Stacked weights taken one by one."""
        width, hidden = self.shape[-1], self.draw(st.sampled_from(SIZES))
        up, down = self.parameter((2, width, hidden)), self.parameter((2, hidden, width))

        def step(p, x):
            for i in range(2):
                x = x + jnp.tanh(x @ p[up][i]) @ p[down][i]
            return x

        self.then(step, self.shape)

    def recur(self):
        width = self.shape[-1]
        name = self.parameter((width, width))
        self.then(
            lambda p, x: jax.lax.scan(
                lambda h, _: (jnp.tanh(h @ p[name] + x), None), jnp.zeros_like(x), None, 2
            )[0],
            self.shape,
        )


OPERATIONS = [
    name for name, value in vars(Program).items()
    if callable(value) and not name.startswith("_")
    and name not in ("parameter_shape", "parameter", "axis", "then", "look_back", "reduced")
]  # fmt: skip


@st.composite
def programs(draw):
    return Program(draw)


def broken(program: Program) -> tuple[str, ...]:
    """The permutations found that change what the program computes."""
    params = {n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in program.shapes.items()}
    space = unf.infer(program, params)
    rng = np.random.default_rng(0)
    weights = {n: jnp.asarray(rng.normal(size=s)) for n, s in program.shapes.items()}
    try:
        return unf.verify(lambda p: program(p), weights, space, key=jax.random.key(0)).broken
    except unf.SymmetryError as error:
        return error.axes


QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=60, derandomize=True, **QUIET)
@given(programs())
def test_never_unsound(program):
    assert broken(program) == ()


@pytest.mark.nightly
@settings(max_examples=1000, derandomize=True, **QUIET)
@given(programs())
def test_never_unsound_at_length(program):
    assert broken(program) == ()
