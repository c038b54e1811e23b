"""On tiny networks the group found is all of the scalar graph's automorphisms."""

import jax
import jax.numpy as jnp
import pytest

import unf
from tests.graph.networks import NETWORKS, inferred
from tests.graph.networks._case import f32
from tests.graph.networks.attention import attend
from tests.graph.networks.third_party import normalize_groups
from tests.graph.scalar_graph import count_symmetries, group_order

FROM_TABLE = [
    "attention_equinox", "attention_scaled_per_head", "fused_by_head", "fused_by_kind",
    "fused_by_kind_reshaped", "grouped_queries", "gru_equinox", "lstm_equinox",
    "shared_query_key_norm", "scanned_layers",
    "averaged_ensemble", "dense_concatenation", "gated_mlp", "indexed_layers", "lora",
    "mlp_equinox", "mlp_haiku", "mlp_linen", "mlp_loss_on_targets", "residual", "siren",
    "soft_experts",
    "tiny_attention", "tiny_fused", "tiny_group_norm", "tiny_grouped_queries", "tiny_layer_norm",
    "tiny_keys_and_values", "tiny_layers_in_a_row", "tiny_gated_pair", "tiny_shared_scale",
    "tiny_group_norm_of_a_skip", "tiny_residual_group_norm",
]  # fmt: skip


def mlp_loss_on_targets():
    def loss(p, x, y):
        logits = jnp.tanh(x @ p["w1"]) @ p["w2"]
        return -jnp.sum(jax.nn.log_softmax(logits) * y)

    return loss, {"w1": f32(2, 3), "w2": f32(3, 2)}, f32(2, 2), f32(2, 2)


def _attention(names, split):
    def apply(p, x):
        y = attend(*split(p, x))
        return y.reshape(y.shape[0], -1) @ p["out"]

    return apply, {**names, "out": f32(4, 2)}, f32(2, 2)


def tiny_attention():
    def split(p, x):
        return [jnp.einsum("td,dhk->thk", x, p[n]) for n in "qkv"]

    return _attention({n: f32(2, 2, 2) for n in "qkv"}, split)


def tiny_fused():
    def split(p, x):
        return [y.reshape(-1, 2, 2) for y in jnp.split(x @ p["qkv"], 3, axis=-1)]

    return _attention({"qkv": f32(2, 12)}, split)


def tiny_shared_scale():
    def split(p, x):
        q, k, v = (jnp.einsum("td,dhk->thk", x, p[n]) for n in "qkv")
        return q * p["s"][None, None], k, v

    return _attention({n: f32(2, 2, 2) for n in "qkv"} | {"s": f32(2)}, split)


def tiny_grouped_queries():
    def split(p, x):
        q = (x @ p["q"]).reshape(-1, 2, 2)
        k, v = (jnp.repeat((x @ p[n]).reshape(-1, 1, 2), 2, axis=1) for n in "kv")
        return q, k, v

    return _attention({"q": f32(2, 4), "k": f32(2, 2), "v": f32(2, 2)}, split)


def tiny_layer_norm():
    def apply(p, x):
        y = x @ p["w1"]
        y = y - jnp.mean(y, -1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y**2, -1, keepdims=True)) * p["scale"][None]
        return y @ p["w2"]

    return apply, {"w1": f32(2, 3), "scale": f32(3), "w2": f32(3, 2)}, f32(2, 2)


def tiny_group_norm():
    def apply(p, x):
        y = (x @ p["w1"]).reshape(-1, 2, 2)
        y = y * jax.lax.rsqrt(jnp.mean(y**2, -1, keepdims=True))
        return y.reshape(-1, 4) @ p["w2"]

    return apply, {"w1": f32(2, 4), "w2": f32(4, 2)}, f32(2, 2)


def tiny_group_norm_of_a_skip():
    def apply(p, x):
        y = jnp.concatenate([x @ p["a"], x @ p["b"]], -1)
        return normalize_groups(y, 3) @ p["out"]

    return apply, {"a": f32(2, 2), "b": f32(2, 4), "out": f32(6, 2)}, f32(2, 2)


def tiny_residual_group_norm():
    def apply(p, x):
        y = x @ p["a"]
        return (y + normalize_groups(y, 2) @ p["mix"]) @ p["out"]

    return apply, {"a": f32(2, 4), "mix": f32(4, 4), "out": f32(4, 2)}, f32(2, 2)


def tiny_keys_and_values():
    """One array for both; positions fix the keys."""

    def split(p, x):
        positions = jnp.array([[[2.0, 3.0]], [[5.0, 7.0]]])
        k, v = jnp.einsum("td,chdk->cthk", x, p["kv"])
        return jnp.einsum("td,hdk->thk", x, p["q"]) * positions, k * positions, v

    return _attention({"q": f32(2, 2, 2), "kv": f32(2, 2, 2, 2)}, split)


def tiny_layers_in_a_row():
    def apply(p, x):
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x @ p["in"], p["w"])[0] @ p["out"]

    return apply, {"in": f32(2, 3), "w": f32(2, 3, 3), "out": f32(3, 2)}, f32(2, 2)


def tiny_gated_pair():
    """A gate for each pair: interleaved columns `(m 2)`."""

    def apply(p, x):
        y = (x @ p["up"]).reshape(-1, 3, 2)
        return (jnp.tanh(y[..., 0]) * y[..., 1]) @ p["down"]

    return apply, {"up": f32(2, 6), "down": f32(3, 2)}, f32(2, 2)


@pytest.mark.parametrize("name", FROM_TABLE)
def test_group_is_all_automorphisms(name):
    if name in NETWORKS:
        fn, params, inputs, space = inferred(name)
    else:
        fn, params, *inputs = globals()[name]()
        space = unf.infer(fn, params, *inputs)
    assert group_order(space) == count_symmetries(fn, params, *inputs)
