"""What `infer` calls axes: by their role in the network, then by the paths of their leaves."""

import jax
import jax.numpy as jnp
import pytest

import unf
from tests.graph.networks import inferred
from tests.graph.networks._case import f32

NAMES = {
    "mlp_linen": "dense_0 dense_1",
    "mlp_equinox": "hidden_0 hidden_1",
    "mlp_haiku": "mlp_0 mlp_1",
    "mlp_loss": "hidden",
    "residual": "stream mlp",
    "scanned_layers": "layer.mlp stream",
    "averaged_ensemble": "part part.hidden",
    "soft_experts": "expert expert.up",
    "cnn_linen": "conv_0 conv_1 dense_0",
    "batch_norm": "conv_0",
    "group_norm": "group group.conv_0",
    "unet": "down_1 down_2 up",
    "gru_linen": "gru",
    "lstm_haiku": "lstm",
    "simple_rnn_linen": "state",
    "attention_equinox": "head head.key head.value",
    "fused_by_head": "head head.key head.value",
    "grouped_queries": "head head.key head.query head.value",
    "shared_query_key_norm": "head head.value key",
    "gpt_tied": "stream head_0 head_0.key head_0.value mlp_0 head_1 head_1.key head_1.value mlp_1",
    "vit": "stream head head.key head.value mlp",
    "scanned_transformer": "stream layer.head layer.head.key layer.head.value layer.mlp",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_tell_the_role_of_an_axis(name):
    *_, space = inferred(name)
    assert sorted(space.sizes) == sorted(NAMES[name].split())


def infer_block(widths, path=lambda i, name: f"{name}{i}"):
    """Two residual blocks of some widths, with leaves named by `path`."""
    stream, *hidden = widths

    def apply(p, x):
        x = x @ p["first"]
        for i in range(len(hidden)):
            x = x + jnp.tanh(x @ p[path(i, "u")]) @ p[path(i, "v")]
        return x @ p["last"]

    shapes = {"first": f32(3, stream), "last": f32(stream, 2)}
    for i, width in enumerate(hidden):
        shapes[path(i, "u")], shapes[path(i, "v")] = f32(stream, width), f32(width, stream)
    return unf.infer(apply, shapes, f32(1, 3))


def test_names_do_not_depend_on_sizes():
    assert infer_block([4, 5, 6]).to_spec() == infer_block([6, 5, 5]).to_spec()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (lambda i, name: f"model.layers.{i}.mlp.{name}_proj.weight", "mlp_0 mlp_1"),
        (lambda i, name: f"layers/{i + 9}/{name}", "mlp_9 mlp_10"),
        (lambda i, name: f"layer1.{i}.{name}.conv1", "mlp_0 mlp_1"),
        (lambda i, name: f"{['encoder', 'decoder'][i]}/{name}/w", "encoder_mlp decoder_mlp"),
        (lambda i, name: f"{'ab'[i]}/{name}", "mlp_0 mlp_1"),
    ],
)
def test_axes_of_one_role_are_told_apart_by_their_paths(path, expected):
    assert sorted(infer_block([4, 5, 6], path).sizes) == sorted(["stream", *expected.split()])


def test_each_stage_of_a_residual_network_is_a_stream():
    *_, space = inferred("resnet18")
    streams = [f"stream_{i}" for i in range(4)]
    hidden = [f"conv_{i}" for i in (1, 3, 5, 8, 10, 13, 15, 18)]
    assert sorted(space.sizes) == sorted([*streams, *hidden])
    assert [space.sizes[name] for name in streams] == [2, 4, 8, 16]


@pytest.mark.parametrize(
    "combine",
    [
        lambda h, p: h + p["b"],
        lambda h, p: jax.nn.gelu(h),
        lambda h, p: h - jnp.mean(h, axis=0, keepdims=True),
        lambda h, p: h @ p["w"] + h @ p["v"],
    ],
    ids=["a bias", "an activation", "a mean", "two branches"],
)
def test_not_every_sum_is_a_skip_connection(combine):
    def apply(p, x):
        h = jnp.tanh(x @ p["first"])
        return jnp.sum(combine(h, {"b": p["b"][None], "w": p["w"], "v": p["v"]}))

    shapes = {"first": f32(3, 4), "b": f32(4), "w": f32(4, 5), "v": f32(4, 5)}
    assert "stream" not in unf.infer(apply, shapes, f32(2, 3)).sizes


def test_a_name_given_for_an_input_is_kept():
    def apply(p, x):
        x = x @ p["first"]
        return (x + jnp.tanh(x @ p["up"]) @ p["down"]) @ p["last"]

    shapes = {"first": f32(3, 4), "up": f32(4, 5), "down": f32(5, 4), "last": f32(4, 2)}
    space = unf.infer(apply, shapes, f32(1, 3), inputs=("[batch] mlp",))
    assert space.to_spec()["first"] == "mlp stream"
    assert space.to_spec()["up"] == "stream mlp_2"
