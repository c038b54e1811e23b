"""Convolutions by kernels, in Pallas's interpreter, are those of XLA."""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unf.lab.tasks import _convolution as convolution
from unf.lab.tasks._convolution import convolve
from unf.optim import _kernel

ROUNDING = {"rtol": 2**-7, "atol": 2**-7}
"""Kernels add in single precision; what they return has the eight bits of bfloat16."""


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Run kernels on the CPU, with tiles of which even small images need several."""
    monkeypatch.setattr(_kernel, "INTERPRET", True)
    monkeypatch.setattr(convolution, "_PLACES", 16)
    monkeypatch.setattr(convolution, "_SUM_PLACES", 16)
    monkeypatch.setattr(convolution, "_SUM_TILES", 2)


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(jnp.bfloat16)


def true(x, kernel, stride):
    x, kernel, strides = x.astype(jnp.float64), kernel.astype(jnp.float64), (stride, stride)
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, strides, [(1, 1)] * 2, dimension_numbers=layout)


def inner(a, b):
    return jnp.sum(a.astype(jnp.float64) * b.astype(jnp.float64))


def assert_close(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.float64(a), np.float64(b), **ROUNDING),
        found,
        expected,
    )


@pytest.mark.parametrize(("source", "target", "stride"), [(3, 8, 1), (16, 32, 1), (20, 8, 2)])
def test_results_and_gradients(source, target, stride):
    x, kernel = draw(0, 2, 5, 7, source), draw(1, 3, 3, source, target)
    weights = draw(2, *true(x, kernel, stride).shape)

    def with_gradients(f):
        def weighted(x, kernel):
            y = f(x, kernel, stride)
            return inner(y, weights), y

        return jax.jit(jax.grad(weighted, argnums=(0, 1), has_aux=True))(x, kernel)

    found = with_gradients(convolve)
    assert [a.dtype for a in jax.tree.leaves(found)] == [jnp.bfloat16] * 3
    assert_close(found, with_gradients(true))


def test_networks_that_share_images():
    """Two networks see the same images, pairs of them others; or images share a network."""
    x, kernel, weights = (
        draw(0, 3, 2, 4, 5, 3),
        draw(1, 3, 2, 3, 3, 3, 8),
        draw(2, 3, 2, 2, 4, 5, 8),
    )

    def gradients(f):
        weighted = lambda x, kernel, weights: inner(f(x, kernel, 1), weights)  # noqa: E731
        gradient = jax.grad(weighted, argnums=(0, 1))
        pairs = jax.vmap(jax.vmap(gradient, in_axes=(None, 0, 0)))(x, kernel, weights)
        one = jax.vmap(gradient, in_axes=(0, None, 0))(x, kernel[0, 0], weights[:, 0])
        return pairs, one

    assert_close(*(jax.jit(gradients, static_argnums=0)(f) for f in (convolve, true)))


def test_gradients_of_gradients():
    """Backpropagation through steps of training differentiates both gradients."""
    x, kernel, stride = draw(0, 2, 4, 5, 3), draw(1, 3, 3, 3, 8), 2
    weights = draw(2, *true(x, kernel, stride).shape)
    by_x, by_kernel = draw(3, *x.shape), draw(4, *kernel.shape)

    def second(f):
        def gradients(x, kernel, weights):
            return jax.grad(lambda *args: inner(f(*args, stride), weights), (0, 1))(x, kernel)

        along_x = lambda *args: inner(gradients(*args)[0], by_x)  # noqa: E731
        along_kernel = lambda *args: inner(gradients(*args)[1], by_kernel)  # noqa: E731
        args = x, kernel, weights
        return jax.grad(along_x, (1, 2))(*args), jax.grad(along_kernel, (0, 2))(*args)

    assert_close(*(jax.jit(second, static_argnums=0)(f) for f in (convolve, true)))


def test_kernels_are_chosen_for_half_precision_and_few_channels():
    def uses_kernels(dtype, channels):
        x, kernel = jnp.zeros((1, 4, 4, channels), dtype), jnp.zeros((3, 3, channels, 8), dtype)
        return "pallas_call" in str(jax.make_jaxpr(lambda: convolve(x, kernel, 1))())

    assert uses_kernels(jnp.bfloat16, 3) and uses_kernels(jnp.float16, 64)
    assert not uses_kernels(jnp.float32, 3) and not uses_kernels(jnp.bfloat16, 65)


@pytest.mark.skipif(
    tuple(map(int, version("jaxlib").split(".")[:2])) >= (0, 11),
    reason="compiles, which needs CUDA",
)
@pytest.mark.parametrize("source", [3, 16])
def test_kernels_can_be_lowered_for_gpus(source, monkeypatch):
    monkeypatch.setattr(_kernel, "INTERPRET", False)
    monkeypatch.setattr(_kernel, "is_available", lambda: True)
    x, kernel = draw(0, 4, 2, 5, 7, source), draw(1, 4, 3, 3, source, 8)
    loss = lambda x, kernel: jnp.sum(jax.vmap(lambda *args: convolve(*args, 2))(x, kernel))  # noqa: E731
    traced = jax.jit(jax.grad(loss, argnums=(0, 1))).trace(x, kernel)
    assert traced.lower(lowering_platforms=("cuda",)).as_text().count("xla.gpu.triton") == 2
