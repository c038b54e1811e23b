"""The paper's four tasks, on data that every installation has."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.lab.data import DataError
from unf.lab.lopt._options import PAPER, TASKS
from unf.lab.tasks import CNNTask, MLPTask, RNNTask
from unf.lab.tasks._images import convolve
from unf.lab.tasks._task import ACTIVATIONS, check_finite
from unf.meta import Data, Task

KEY = jax.random.key(0)
SMALL = {
    "mlp": {"dataset": "digits", "batch_size": 4},
    "cnn": {"dataset": "digits", "batch_size": 4, "channels": (4, 5)},
    "rnn": {"dataset": "python-docs", "batch_size": 3, "length": 5, "hidden": 6, "embedding": 4},
    "transformer": {
        "dataset": "python-docs", "batch_size": 2, "length": 4, "vocabulary": 300,
        "width": 8, "num_heads": 2,
    },
}  # fmt: skip
TERMS = {"mlp": 32, "cnn": 86, "rnn": 165, "transformer": 2_382}


@pytest.fixture(params=PAPER, scope="module")
def task(request):
    return TASKS[request.param](**SMALL[request.param])


def test_the_weight_space_is_a_symmetry_and_relaxed_the_papers_size(task):
    params, batch = task.init(key=KEY), task.batch(task.data().train, key=KEY)
    unf.verify(task.loss, params, task.space, batch, key=KEY)
    assert unf.count_terms(task.space.relax()) == TERMS[task.name]


def test_the_roles_are_those_that_infer_finds(task):
    params = jax.eval_shape(lambda: task.init(key=KEY))
    batch = jax.eval_shape(lambda: task.batch(task.data().train, key=KEY))
    assert unf.infer(task.loss, params, batch).roles == task.space.roles


def test_an_untrained_network_knows_nothing(task):
    data = task.data()
    classes = 10 if task.name in ("mlp", "cnn") else task.num_symbols
    losses = [
        float(task.loss(task.init(key=k), task.batch(data.heldout, key=k)))
        for k in jax.random.split(KEY, 20)
    ]
    assert abs(np.mean(losses) - np.log(classes)) < 0.5


def test_batches_are_drawn_from_the_data():
    images = MLPTask(**SMALL["mlp"])
    data = images.data()
    batch = images.batch(data.train, key=KEY)
    for image, label in zip(batch.images, batch.classes, strict=True):
        rows = np.flatnonzero(
            (np.asarray(data.train.images) == np.round(np.asarray(image) * 255)).all((1, 2, 3))
        )
        assert int(label) in np.asarray(data.train.classes)[rows]
    text = RNNTask(**SMALL["rnn"])
    stream = np.asarray(text.data().train).tobytes()
    for window in np.asarray(text.batch(text.data().train, key=KEY)):
        assert window.astype(np.uint8).tobytes() in stream


def test_the_papers_sizes():
    defaults = {
        name: {f.name: f.default for f in dataclasses.fields(t)} for name, t in TASKS.items()
    }
    assert defaults["mlp"]["hidden"] == (32,) and defaults["mlp"]["batch_size"] == 128
    assert defaults["cnn"]["channels"] == (16, 32) and defaults["cnn"]["dataset"] == "cifar10"
    assert (defaults["rnn"]["embedding"], defaults["rnn"]["hidden"]) == (32, 64)
    assert (defaults["rnn"]["length"], defaults["rnn"]["batch_size"]) == (16, 64)
    assert (defaults["transformer"]["length"], defaults["transformer"]["batch_size"]) == (8, 8)
    assert [TASKS[name].horizon for name in PAPER] == [2000, 2000, 2000, 5000]


def test_the_recurrence_begins_as_the_identity():
    params = RNNTask(**SMALL["rnn"]).init(key=KEY)
    np.testing.assert_array_equal(params["rec_w"], np.eye(6))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_recurrences_gradient_is_that_of_a_scan(activation):
    shapes = {"embed": (9, 4), "in_w": (4, 6), "rec_w": (6, 6), "out_w": (6, 9),
              "in_b": (6,), "rec_b": (6,), "out_b": (9,), "initial_state": (1, 6)}  # fmt: skip
    keys = dict(zip(shapes, jax.random.split(KEY, len(shapes)), strict=True))
    params = {name: jax.random.normal(keys[name], shape) for name, shape in shapes.items()}
    symbols = jax.random.randint(KEY, (3, 6), 0, 9)
    task = RNNTask(**SMALL["rnn"], activation=activation)

    def scanned(params, symbols):
        def step(state, symbol):
            x = params["embed"][symbol] @ params["in_w"] + params["in_b"][None]
            state = ACTIVATIONS[activation](x + state @ params["rec_w"] + params["rec_b"][None])
            return state, state @ params["out_w"] + params["out_b"][None]

        first = jnp.broadcast_to(params["initial_state"], (3, 6))
        return jnp.swapaxes(jax.lax.scan(step, first, symbols.T)[1], 0, 1)

    loss = lambda f: jax.jit(jax.grad(lambda p: jnp.mean(jnp.sin(f(p, symbols)))))  # noqa: E731
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12),
        loss(task.logits)(params),
        loss(scanned)(params),
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_products_by_rows_are_a_convolution(stride):
    x, kernel = jax.random.normal(KEY, (2, 6, 8, 3)), jax.random.normal(KEY, (3, 3, 3, 5))
    true = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(convolve(x, kernel, stride), true, rtol=1e-10, atol=1e-12)


def test_half_precision_is_near():
    """Sums over 128 images in half precision would be far off."""
    options = SMALL["cnn"] | {"batch_size": 128}
    both = [CNNTask(**options, dtype=dtype) for dtype in ("float32", "bfloat16")]
    params, batch = both[0].init(key=KEY), both[0].batch(both[0].data().train, key=KEY)
    wide, half = (jax.jit(jax.grad(task.loss))(params, batch) for task in both)
    for a, b in zip(jax.tree.leaves(wide), jax.tree.leaves(half), strict=True):
        assert b.dtype == jnp.float32
        assert np.linalg.norm(a - b) < 0.1 * np.linalg.norm(a)


@dataclasses.dataclass(frozen=True)
class Line(Task):
    """A task of four methods, whose weight space is read off its loss."""

    name = "line"

    def init(self, *, key):
        return {"w": jax.random.normal(key, (1, 3)), "v": jnp.ones((3, 1))}

    def data(self):
        return Data(jnp.linspace(0, 1, 10), jnp.linspace(1, 2, 10))

    def batch(self, examples, *, key):
        return jax.random.choice(key, examples, (4, 1))

    def loss(self, params, batch):
        return jnp.mean((jnp.tanh(batch @ params["w"]) @ params["v"] - batch**2) ** 2)


def test_a_new_task_needs_four_methods():
    assert Line().space.sizes and list(Line().space.sizes.values()) == [3]
    with pytest.raises(NotImplementedError, match="Line has no method `measure`, which zoos need"):
        Line().measure({}, jnp.zeros(3), key=KEY)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mlp", {"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ("cnn", {"dtype": "int8"}, "dtype is 'int8'; expected float32 or bfloat16"),
        ("rnn", {"length": -1}, "length is -1; expected at least 1"),
        ("rnn", {"activation": "gelu"}, r"activation is 'gelu'; expected one of \['relu', 'tanh'"),
        ("rnn", {"unit": "words"}, "unit is 'words'; expected one of"),
        ("mlp", {"hidden": (4, 0)}, r"hidden is \(4, 0\); expected at least 1"),
        ("mlp", {"activation": "sine"}, "activation is 'sine'; expected one of"),
        ("cnn", {"channels": ()}, "channels is empty"),
        (
            "transformer",
            {"num_heads": 5},
            "num_heads is 5; expected a divisor of expand",
        ),
    ],
)
def test_invalid_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        TASKS[name](**{**SMALL[name], **options})


def test_windows_longer_than_the_text_are_refused():
    with pytest.raises(DataError, match="expected more than the 100000000 of a window"):
        RNNTask(**{**SMALL["rnn"], "length": 100_000_000}).data()


def test_an_unfinished_task_cannot_be_made():
    @dataclasses.dataclass(frozen=True)
    class Unfinished(Task):
        name = "unfinished"

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]


def test_data_with_nan_is_refused():
    with pytest.raises(DataError, match="task 'line' are not finite"):
        check_finite(jnp.array([1.0, jnp.nan]), "line")
