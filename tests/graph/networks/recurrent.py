"""Recurrent networks: cells, scans, fused and separate gates, both directions."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp

from ._case import f32, linen, network


class Recurrent(nn.Module):
    cell: type[nn.RNNCellBase]

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, use_bias=False, name="out")(nn.RNN(self.cell(5), name="rnn")(x)[:, -1])


@network(
    {
        "params/SimpleCell_0/i/kernel": "[3] h", "params/SimpleCell_0/i/bias": "h",
        "params/SimpleCell_0/h/kernel": "h h", "params/out/kernel": "h [2]",
    },
    narrow=True,
)  # fmt: skip
def simple_rnn_linen():
    return linen(Recurrent(nn.SimpleCell), f32(2, 4, 3))


@network(
    {
        **{f"params/GRUCell_0/i{g}/kernel": "[3] h" for g in "rzn"},
        **{f"params/GRUCell_0/i{g}/bias": "h" for g in "rzn"},
        **{f"params/GRUCell_0/h{g}/kernel": "h h" for g in "rzn"},
        "params/GRUCell_0/hn/bias": "h", "params/out/kernel": "h [2]",
    },
    narrow=True,
)  # fmt: skip
def gru_linen():
    return linen(Recurrent(nn.GRUCell), f32(2, 4, 3))


@network(
    {
        **{f"params/LSTMCell_0/i{g}/kernel": "[3] h" for g in "ifgo"},
        **{f"params/LSTMCell_0/h{g}/kernel": "h h" for g in "ifgo"},
        **{f"params/LSTMCell_0/h{g}/bias": "h" for g in "ifgo"},
        "params/out/kernel": "h [2]",
    },
    narrow=True,
)  # fmt: skip
def lstm_linen():
    return linen(Recurrent(nn.LSTMCell), f32(2, 4, 3))


@network(
    {
        **{f"params/OptimizedLSTMCell_0/i{g}/kernel": "[3] h" for g in "ifgo"},
        **{f"params/OptimizedLSTMCell_0/h{g}/kernel": "h h" for g in "ifgo"},
        **{f"params/OptimizedLSTMCell_0/h{g}/bias": "h" for g in "ifgo"},
        "params/out/kernel": "h [2]",
    },
    narrow=True,
)  # fmt: skip
def lstm_optimized_linen():
    """Kernels concatenated inside the cell, one product for all gates."""
    return linen(Recurrent(nn.OptimizedLSTMCell), f32(2, 4, 3))


class Bidirectional(nn.Module):
    @nn.compact
    def __call__(self, x):
        forward, backward = nn.RNN(nn.SimpleCell(4)), nn.RNN(nn.SimpleCell(5))
        merged = nn.Bidirectional(forward, backward)(x)
        return nn.Dense(2, use_bias=False, name="out")(merged[:, 1])


@network(
    {
        "params/SimpleCell_0/i/kernel": "[3] f", "params/SimpleCell_0/i/bias": "f",
        "params/SimpleCell_0/h/kernel": "f f",
        "params/SimpleCell_1/i/kernel": "[3] b", "params/SimpleCell_1/i/bias": "b",
        "params/SimpleCell_1/h/kernel": "b b",
        "params/out/kernel": "(f + b) [2]",
    },
    narrow=True,
)  # fmt: skip
def bidirectional_linen():
    return linen(Bidirectional(), f32(2, 4, 3))


def _equinox(cell, out):
    def scan(model, x):
        cell, out = model
        hidden = jnp.zeros((5,))
        state = hidden if isinstance(cell, eqx.nn.GRUCell) else (hidden, hidden)
        state, _ = jax.lax.scan(lambda s, x: (cell(x, s), None), state, x)
        return out(state if isinstance(cell, eqx.nn.GRUCell) else state[0])

    params, static = eqx.partition((cell, out), eqx.is_array)

    def apply(params, x):
        return scan(eqx.combine(params, static), x)

    return apply, jax.eval_shape(lambda: params), f32(4, 3)


@network(
    {
        "0/weight_ih": "(3 h) [3]", "0/weight_hh": "(3 h) h", "0/bias": "(3 h)", "0/bias_n": "h",
        "1/weight": "[2] h", "1/bias": "[2]",
    },
    narrow=True,
)  # fmt: skip
def gru_equinox():
    key = jax.random.key(0)
    return _equinox(eqx.nn.GRUCell(3, 5, key=key), eqx.nn.Linear(5, 2, key=key))


@network(
    {
        "0/weight_ih": "(4 h) [3]", "0/weight_hh": "(4 h) h", "0/bias": "(4 h)",
        "1/weight": "[2] h", "1/bias": "[2]",
    },
    narrow=True,
)  # fmt: skip
def lstm_equinox():
    key = jax.random.key(0)
    return _equinox(eqx.nn.LSTMCell(3, 5, key=key), eqx.nn.Linear(5, 2, key=key))


def _haiku(make_cell):
    def forward(x):
        cell = make_cell()
        output, _ = hk.dynamic_unroll(cell, x, cell.initial_state(x.shape[1]))
        return hk.Linear(2, with_bias=False, name="out")(output[-1])

    model = hk.without_apply_rng(hk.transform(forward))
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((4, 2, 3))))
    return model.apply, params, f32(4, 2, 3)


@network(
    {"lstm/linear/w": "([3] + h) (4 h)", "lstm/linear/b": "(4 h)", "out/w": "h [2]"},
    narrow=True,
)
def lstm_haiku():
    return _haiku(lambda: hk.LSTM(5))


@network(
    {"gru/w_i": "[3] (3 h)", "gru/w_h": "h (3 h)", "gru/b": "(3 h)", "out/w": "h [2]"}, narrow=True
)
def gru_haiku():
    return _haiku(lambda: hk.GRU(5))


@network({"w": "h h", "u": "[3] h"})
def fori_loop():
    """A carry through a loop that counts."""

    def apply(p, x):
        return jnp.sum(
            jax.lax.fori_loop(0, 4, lambda i, h: jnp.tanh(h @ p["w"] + x @ p["u"]), x @ p["u"])
        )

    return apply, {"w": f32(5, 5), "u": f32(3, 5)}, f32(2, 3)


@network({"w": "h h", "u": "[3] h", "v": "[3] h"})
def conditional():
    def apply(p, x):
        h = jax.lax.cond(x[0, 0] > 0, lambda: x @ p["u"], lambda: jnp.tanh(x @ p["v"]))
        return jnp.sum(jnp.tanh(h @ p["w"]) * h)

    return apply, {"w": f32(5, 5), "u": f32(3, 5), "v": f32(3, 5)}, f32(2, 3)
