"""The interface of `infer`: inputs and outputs, state, explanations, warnings, errors."""

import re

import equinox
import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive

import unf
from tests.graph.compare import canonical
from tests.graph.networks import NETWORKS
from tests.graph.networks._case import f32
from unf.graph import UnknownOperation, Value, unify
from unf.graph._registry import RULES


def mlp(p, x):
    return jnp.tanh(x @ p["w1"] + p["b1"][None]) @ p["w2"]


MLP = {"w1": f32(4, 6), "b1": f32(6), "w2": f32(6, 3)}


def test_inputs_and_outputs_are_fixed_by_default():
    space = unf.infer(mlp, MLP, f32(2, 4))
    assert space.to_spec() == {"w1": "[in] hidden", "b1": "hidden", "w2": "hidden [out]"}


def test_relaxing_everything_is_the_papers_setting():
    space = unf.infer(mlp, MLP, f32(2, 4)).relax()
    assert space.to_spec() == {"w1": "in hidden", "b1": "hidden", "w2": "hidden out"}


def test_free_inputs_and_outputs():
    space = unf.infer(mlp, MLP, f32(2, 4), inputs="free", outputs="free")
    assert space.fixed == ()
    assert space.to_spec() == {"w1": "in hidden_1", "b1": "hidden_1", "w2": "hidden_1 hidden_2"}


def test_named_inputs_and_outputs():
    space = unf.infer(mlp, MLP, f32(2, 4), inputs=("[batch] pixel",), outputs="[batch] [digit]")
    assert space.to_spec() == {"w1": "pixel hidden", "b1": "hidden", "w2": "hidden [digit]"}


def test_a_name_common_to_input_and_output_ties_them():
    def residual(p, x):
        return x + jnp.tanh(x @ p["up"]) @ p["down"]

    params = {"up": f32(4, 6), "down": f32(6, 4)}
    space = unf.infer(residual, params, f32(2, 4), inputs=("[b] d",), outputs="[b] d")
    assert space.to_spec() == {"up": "d mlp", "down": "mlp d"}


def test_arrays_and_shapes_give_the_same():
    arrays = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), MLP)
    assert unf.infer(mlp, arrays, jnp.zeros((2, 4))) == unf.infer(mlp, MLP, f32(2, 4))


def test_nothing_is_executed():
    executed = []

    def fn(p, x):
        jax.debug.callback(executed.append, x)
        return mlp(p, x)

    unf.infer(fn, MLP, f32(2, 4))
    jax.effects_barrier()
    assert not executed
    fn(jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), MLP), jnp.zeros((2, 4), jnp.float32))
    jax.effects_barrier()
    assert len(executed) == 1


def test_verify_accepts_what_was_found_and_rejects_a_permuted_window():
    fn, params, x = NETWORKS["cnn_linen"].make()
    space = unf.infer(fn, params, x)
    wrong = unf.WeightSpace.from_spec(
        jax.tree.map(
            lambda spec: spec.replace("[3 3 in] conv_0", "3 kw [in] conv_0"), space.to_spec()
        ),
        params,
        sizes={n: s for n, s in space.axis_sizes.items()},
    )
    arrays = jax.tree.map(lambda s: jax.random.normal(jax.random.key(0), s.shape), params)
    values = jax.random.normal(jax.random.key(1), x.shape)
    with pytest.raises(unf.SymmetryError, match="'kw' changes the outputs"):
        unf.verify(fn, arrays, wrong, values, key=jax.random.key(0))


@pytest.mark.parametrize(
    "name",
    [
        "fused_by_kind",
        "patches",
        "group_norm_of_a_skip",
        "residual_group_norm",
    ],
)
def test_gradients_have_the_symmetries_of_the_loss(name):
    fn, params, x = NETWORKS[name].make()

    def loss(p, x):
        y = fn(p, x)
        return jnp.sum(y**2 * jnp.arange(1.0, y.size + 1).reshape(y.shape))

    found = unf.infer(jax.value_and_grad(loss), params, x)
    assert canonical(found) == canonical(unf.infer(loss, params, x))


# --- explanations ---------------------------------------------------------------------------


def test_explanations_name_the_operation_and_the_line():
    space = unf.infer(mlp, MLP, f32(2, 4))
    text = space.explain("w2")
    assert "w2  hidden [out]" in text
    assert "dot_general (test_infer.py:" in text
    assert "fixed: the output axis 1" in text
    assert "axis 0, hidden, 6 long, in" in text and "axis 1, [out], 3 long, out" in text


def test_explanation_of_what_is_nested_split_and_stacked():
    explain = {
        name: unf.infer(*NETWORKS[name].make()).explain()
        for name in ("attention_equinox", "scanned_layers")
    }
    assert "a product: reshape" in explain["attention_equinox"]
    assert "is nested: wherever it occurs, head occurs exactly once" in explain["attention_equinox"]
    assert "one for each index: scan" in explain["scanned_layers"]


def test_unused_parameters_are_reported():
    space = unf.infer(mlp, {**MLP, "spare": f32(3, 4)}, f32(2, 4))
    assert space.notes is not None and space.notes.unused == ("spare",)
    assert "unused: no output depends on it" in space.explain("spare")


def test_unread_parts_are_reported():
    """Only the part that is read is combined with anything; a cast or a view reads nothing."""

    def fn(p, x):
        return (x + p["table"].astype(x.dtype)[None, :3]) @ p["w"][0]

    params = {"table": f32(8, 4), "w": f32(2, 4, 3)}
    space = unf.infer(fn, params, f32(1, 3, 4))
    assert space.to_spec()["table"] == "([in] + table) [in_2]"
    assert space.notes is not None and space.notes.unused == ("table[3:8]",)
    assert "unused: nothing reads table[3:8]" in space.explain("table")


@pytest.mark.parametrize("use", [jnp.sum, jnp.sort, lambda x: x, lambda x: x[:3] + jnp.sum(x)])
def test_what_is_read_as_a_whole_is_not_unread(use):
    space = unf.infer(lambda p: use(p["table"][:8]), {"table": f32(8)})
    assert space.notes is not None and space.notes.unused == ()


def test_terms_do_not_grow_with_the_length_of_a_shifted_sequence():
    def count(length):
        fn, shapes, _ = NETWORKS["positions_beyond_the_sequence"].make()
        shapes["pos"] = f32(2 * length, 5)
        return unf.count_terms(unf.infer(fn, shapes, jax.ShapeDtypeStruct((length,), "int32")))

    assert count(6) == count(60)


def test_dead_parameters_are_reported():
    fn, params, x = NETWORKS["attention_linen"].make()
    space = unf.infer(fn, params, x)
    arrays = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), params)
    values = jax.random.normal(jax.random.key(1), x.shape)
    report = unf.verify(fn, arrays, space, values, key=jax.random.key(0))
    assert report.dead == ("params/key/bias",)
    assert "params/key/bias" in str(report)


def test_a_space_written_by_hand_has_no_reasons():
    space = unf.WeightSpace.from_spec({"w": "a b"}, {"w": f32(2, 3)})
    with pytest.raises(unf.SpecError, match=r"written by hand[\s\S]*unf.infer"):
        space.explain("w")


def test_explanations_survive_relaxing_and_fixing():
    space = unf.infer(mlp, MLP, f32(2, 4)).relax("in").fix("hidden")
    assert "w2  [hidden out]" in space.explain("w2") and "dot_general" in space.explain("w2")


def test_explaining_a_leaf_that_is_not_there():
    with pytest.raises(unf.SpecError, match=r"no such leaf\n  expected: e.g. \['w2'"):
        unf.infer(mlp, MLP, f32(2, 4)).explain("w")


# --- operations without a rule --------------------------------------------------------------


def mystery(x):
    return MYSTERY.bind(x)


MYSTERY = Primitive("mystery")
MYSTERY.def_abstract_eval(lambda x: x)


def mysterious(p, x):
    return mystery(x @ p["w1"]) @ p["w2"]


def test_an_unknown_operation_fixes_what_it_touches_and_warns():
    params = {"w1": f32(4, 6), "w2": f32(6, 3)}
    expected = r"no rule for the operation 'mystery' at test_infer.py:\d+.*\(w1\)"
    with pytest.warns(UnknownOperation, match=expected):
        space = unf.infer(mysterious, params, f32(2, 4))
    assert canonical(space) == {"w1": "[4] [6]", "w2": "[6] [3]"}


def test_the_warning_comes_once_and_can_be_silenced():
    def twice(p, x):
        return mystery(mystery(x @ p["w1"])) @ p["w2"]

    params = {"w1": f32(4, 6), "w2": f32(6, 3)}
    with pytest.warns(UnknownOperation, match="mystery") as caught:
        unf.infer(twice, params, f32(2, 4))
    assert len(caught) == 1
    unf.infer(twice, params, f32(2, 4), warn=False)


def test_register_rule():
    @unf.register_rule("mystery")
    def rule(equation, x):
        return Value.of([unify(a, a, equation.reason) for a in x.axes])

    try:
        space = unf.infer(mysterious, {"w1": f32(4, 6), "w2": f32(6, 3)}, f32(2, 4))
        assert space.to_spec() == {"w1": "[in] hidden", "w2": "hidden [out]"}
    finally:
        del RULES["mystery"]


def test_register_rule_wants_names():
    with pytest.raises(TypeError, match="takes names of primitives"):
        unf.register_rule(MYSTERY)


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "loose"}, "inputs= does not fit"),
        ({"inputs": ("a b", "c d")}, "a specification for each of 1"),
        ({"inputs": ("a b c",)}, "has 3 axes, the array 2"),
        ({"inputs": ("a a",)}, "'a' has two sizes"),
        ({"inputs": ("3 a",)}, "a wrong size"),
        ({"inputs": ("(a b) c",)}, "only plain and fixed axes"),
        ({"outputs": "loose"}, "has 1 axes, the array 2"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(unf.SpecError, match=message):
        unf.infer(mlp, MLP, f32(2, 4), **options)


def test_a_leaf_that_is_not_an_array():
    with pytest.raises(unf.SpecError, match="at 'activation': not an array"):
        unf.infer(mlp, {**MLP, "activation": jnp.tanh}, f32(2, 4))


@pytest.mark.parametrize(
    ("last", "path"),
    [
        (equinox.nn.Lambda(jax.nn.relu), "layers/1/fn"),
        (equinox.nn.Dropout(0.5, inference=True), "layers/1/inference"),
    ],
)
def test_an_unpartitioned_equinox_module(last, path):
    """Functions and Python values among the arrays: the error names one, and its remedy runs."""
    model = equinox.nn.Sequential([equinox.nn.Linear(3, 4, key=jax.random.key(0)), last])
    with pytest.raises(unf.SpecError, match=f"at '{path}': not an array") as caught:
        unf.infer(lambda model, x: model(x), model, f32(3))
    (partition, network) = re.search(
        r"(params, static = .*); the network is then (lambda .*)", caught.value.remedy
    ).groups()
    names = {"equinox": equinox, "model": model}
    exec(f"{partition}\nnetwork = {network}", names)
    space = unf.infer(names["network"], names["params"], f32(3))
    assert str(space.leaves[0]) == "[out in]"


def test_an_error_of_the_network_itself_stays():
    """A branch on a parameter has nothing to do with Python values: JAX's error says where."""

    def branches(p, x):
        return x if p["w"][0] > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError, match="boolean conversion"):
        unf.infer(branches, {"w": f32(2)}, f32(2))
