"""Layers sharded across eight virtual devices: run by `test_sharded.py`, prints what it found."""

import json
import re
from functools import partial
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.laws.architectures import space_of
from unf.basis import cost_report
from unf.models import InvariantUNF
from unf.nn import UNFLinear, leaf_shardings
from unf.optim import FORMS, init_theta, learned_optimizer
from unf.optim import _update as update

SPACES = {
    "mlp": space_of(
        {"w0": ("[i] a", (16, 64)), "b0": ("a", (64,)), "w1": ("a b", (64, 128)),
         "b1": ("b", (128,))}
    ),
    "rnn": space_of({"x": ("[i] h", (8, 64)), "r": ("h h", (64, 64)), "b": ("h", (64,))}),
    "attention, nested": space_of(
        {"q": ("d (h h.k)", (64, 64)), "b": ("(h h.k)", (64,)), "o": ("(h h.k) d", (64, 64))}, h=4
    ),
    "fused qkv": space_of(
        {"qkv": ("d ((h h.k) + (h h.k) + (h h.v))", (64, 192)), "o": ("(h h.v) d", (64, 64)),
         "b": ("((h h.k) + (h h.k) + (h h.v))", (192,))},
        h=4, **{"h.k": 16},
    ),
    "fused gates": space_of(
        {"h": ("(3 h) h", (192, 64)), "x": ("(3 h) [i]", (192, 16)), "b": ("(3 h)", (192,))}
    ),
    "convolution": space_of(
        {"k": ("[8 3] a b", (8, 3, 32, 64)), "b": ("b", (64,)), "w": ("b [o]", (64, 16))}
    ),
}  # fmt: skip

CHANNELS = 2
COLLECTIVE = re.compile(
    r" = (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)


def collectives(text: str) -> list[tuple[str, int]]:
    """Each collective of a compiled program: what it is, and the bytes of what it makes."""
    found = []
    for shapes, kind in COLLECTIVE.findall(text):
        arrays = re.findall(r"f64\[(.*?)\]", shapes)
        sizes = [prod(map(int, filter(None, array.split(",")))) for array in arrays]
        made = [sum(sizes)] if kind == "all-to-all" else sizes  # pieces of one array, or several
        found += [(kind, 8 * size) for size in made]
    return found


def cuts(space, mesh):
    """Every leaf along its first axis, its second and so on, as far as the largest can be cut."""
    largest = max((leaf.shape for leaf in space.leaves), key=prod)
    for position in (i for i, size in enumerate(largest) if size % mesh.size == 0):
        specs = [
            PartitionSpec(*[None] * position, "devices")
            if leaf.shape[position : position + 1] and leaf.shape[position] % mesh.size == 0
            else PartitionSpec()
            for leaf in space.leaves
        ]
        yield f"axis {position}", space.unflatten([NamedSharding(mesh, spec) for spec in specs])


def draw(space, *batch):
    """A layer and features of random numbers, without compiling anything."""
    make = partial(UNFLinear, space, CHANNELS, CHANNELS, dtype=jnp.float64)
    layer = eqx.filter_eval_shape(lambda key: make(key=key), jax.random.key(0))
    random = np.random.default_rng(0)

    def fill(leaf, *batch):
        return random.standard_normal((*batch, *leaf.shape))

    layer = jax.tree.map(lambda leaf: 0.1 * fill(leaf), layer)
    return layer, jax.tree.map(lambda leaf: fill(leaf, *batch), space.to_shapes(CHANNELS))


def forward(layer, x, mesh):
    return layer(x, mesh=mesh)


def gradient(layer, x, mesh):
    """The gradient of a function of the output, and the output."""

    def loss(layer, x):
        y = layer(x, mesh=mesh)
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(y)), y

    return jax.grad(loss, argnums=(0, 1), has_aux=True)(layer, x)


def difference(found, expected) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in pairs)


def describe(compiled) -> dict:
    memory = compiled.memory_analysis()
    return {
        "temporary": memory.temp_size_in_bytes,
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "collectives": collectives(compiled.as_text()),
    }


def run(space) -> dict:
    """Programs on one device and on eight, and how far apart their results are."""
    layer, x = draw(space)
    alone = jax.jit(partial(gradient, mesh=None)).lower(layer, x).compile()
    expected = alone(layer, x)
    mesh = Mesh(jax.devices(), "devices")
    whole = jax.device_put(layer, NamedSharding(mesh, PartitionSpec()))
    gradients = {}
    for cut, shardings in cuts(space, mesh):
        args = whole, jax.tree.map(jax.device_put, x, shardings)
        compiled = jax.jit(partial(gradient, mesh=mesh)).lower(*args).compile()
        gradients[cut] = describe(compiled) | {"difference": difference(compiled(*args), expected)}
    args = whole, jax.device_put(x, leaf_shardings(space, mesh))
    chosen = jax.jit(partial(forward, mesh=mesh)).lower(*args).compile()
    report = cost_report(space, CHANNELS, CHANNELS, devices=mesh.size, itemsize=8)
    return {
        "largest": 8 * CHANNELS * max(prod(leaf.shape) for leaf in space.leaves),
        "leaves": len(space.leaves),
        "one device": describe(alone),
        "gradients": gradients,
        "forward": describe(chosen),
        "report": {
            "exchanged": report.total.bytes_exchanged,
            "arguments": report.bytes_in + report.bytes_coefficients + layer.bias.nbytes,
            "outputs": report.bytes_out,
        },
    }


def run_batch(space) -> float:
    """A batch over one axis of a mesh and leaves over the other: the distance to one device."""
    layer, x = draw(space, 4)
    mesh = Mesh(np.reshape(jax.devices(), (2, 4)), ("batch", "weights"))
    cut = partial(layer, mesh=mesh, axis="weights")
    found = jax.jit(jax.vmap(cut, spmd_axis_name="batch"))(
        jax.device_put(x, NamedSharding(mesh, PartitionSpec("batch")))
    )
    return difference(found, jax.jit(jax.vmap(layer))(x))


def run_model(space) -> float:
    """An invariant model on sharded features: the difference to one device."""
    make = partial(InvariantUNF, space, CHANNELS, 2, num_layers=2, mlp_width=8)
    model = eqx.filter_jit(lambda key: make(key=key))(jax.random.key(0))
    _, x = draw(space)
    mesh = Mesh(jax.devices(), "devices")
    sharded = jax.device_put(x, leaf_shardings(space, mesh))
    found = eqx.filter_jit(partial(model, mesh=mesh))(sharded)
    return difference(found, eqx.filter_jit(model)(x))


def run_optimizer(space, kind, momenta_dtype=None) -> dict:
    """An update of sharded weights, each leaf in slabs: the difference to one device."""
    theta = init_theta(kind, space, key=jax.random.key(0), form=FORMS["normalized"], beta=0.3)
    random, mesh = np.random.default_rng(0), Mesh(jax.devices(), "devices")
    params = space.unflatten([random.standard_normal(leaf.shape) for leaf in space.leaves])
    make = partial(learned_optimizer, theta, space=space, momenta_dtype=momenta_dtype)
    expected, cut = make(), make(mesh=mesh)
    update.TOGETHER, update.SLAB = 256, {"cpu": 1024}
    sharded = jax.device_put(params, leaf_shardings(space, mesh))
    compiled = jax.jit(cut.update).lower(sharded, cut.init(sharded), sharded).compile()
    found = compiled(sharded, cut.init(sharded), sharded)
    alone = jax.jit(expected.update)(params, expected.init(params), params)
    moved = [size for kind, size in collectives(compiled.as_text()) if kind != "all-reduce"]
    largest = 8 * max(prod(leaf.shape) for leaf in space.leaves)
    return {"difference": difference(found, alone), "moved": max(moved, default=0) / largest}


if __name__ == "__main__":
    results: dict = {name: run(space) for name, space in SPACES.items()}
    results |= {"batch": run_batch(SPACES["mlp"]), "model": run_model(SPACES["rnn"])}
    cases = [("deepset", None), ("tied", None), ("tied", jnp.bfloat16)]
    results["optimizers"] = [run_optimizer(SPACES["fused qkv"], *case) for case in cases]
    print(json.dumps(results))
