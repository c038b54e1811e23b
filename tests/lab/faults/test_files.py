"""Files that lie about what they hold: the lie is found before anything is made of its size."""

import json
import struct

import jax
import pytest

import unf
from tests.lab.faults.mutations import dumps, packed, sealed, unpacked
from tests.lab.faults.readers import blank
from unf.models import InvariantUNF
from unf.optim import init_theta, load, origin, save
from unf.spec import WeightSpace


def space_of(spec, *shape):
    return WeightSpace.from_spec({"w": spec}, {"w": jax.ShapeDtypeStruct(shape, "float32")})


def described(changes):
    """A change of a file's description; a mapping changes the mapping of that name."""

    def change(data):
        header, numbers = unpacked(data)
        description = json.loads(header["__metadata__"]["unf"])
        for name, value in changes.items():
            old = description.get(name)
            both = isinstance(value, dict) and isinstance(old, dict)
            description[name] = old | value if both else value
        header["__metadata__"]["unf"] = dumps(description)
        return sealed(packed(header, numbers))

    return change


def first_array(change_entry):
    """A change of what the header says of the first array."""

    def change(data):
        header, numbers = unpacked(data)
        name = next(name for name in header if name != "__metadata__")
        header[name] |= change_entry(header[name])
        return sealed(packed(header, numbers))

    return change


def as_integers(entry):
    return {"dtype": entry["dtype"].replace("F", "I")}


def as_eights(entry):
    return {"dtype": "F8_E4M3", "shape": [entry["data_offsets"][1]]}


def text(value):
    """A change of the description into a text."""

    def change(data):
        header, numbers = unpacked(data)
        header["__metadata__"]["unf"] = value
        return sealed(packed(header, numbers))

    return change


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Good files, by kind."""
    folder = tmp_path_factory.mktemp("good")
    sizes = {"num_layers": 2, "hidden_channels": 2, "mlp_width": 2, "mlp_layers": 2}
    unf.save_model(folder / "model", blank(InvariantUNF, space_of("a", 3), 1, 1, **sizes))
    save(folder / "optimizer", blank(init_theta, "unf", space_of("a", 3), hidden_channels=2))
    return {file.name: file.read_bytes() for file in folder.iterdir()}


HUGE = 10**12
LIES = {
    "header longer than the file": (lambda d: struct.pack("<Q", HUGE) + d[8:], "header too large"),
    "array longer than the file": (
        first_array(lambda _: {"data_offsets": [0, HUGE]}),
        "not a whole",
    ),
    "array of more numbers": (first_array(lambda _: {"shape": [HUGE]}), "not a whole"),
    "arrays that overlap": (first_array(lambda _: {"data_offsets": [4, 8]}), "not a whole"),
    "another type": (first_array(as_integers), r"of type int\d\d, expected float\d\d"),
    "strange type": (first_array(as_eights), "numbers of type F8_E4M3, expected one of"),
    "deep JSON": (text("[" * 100_000), "the description is not JSON"),
    "no JSON": (text('{"a": '), "the description is not JSON"),
    "no object": (text("[]"), "not a JSON object"),
    "no checksum": (lambda d: packed(*unpacked(d)).replace(b'"sum"', b'"som"'), "altered since"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("kind", ["model", "optimizer"])
def test_lies_of_any_file(good, kind, lie, tmp_path):
    bad, (change, match) = tmp_path / "bad", LIES[lie]
    bad.write_bytes(change(good[kind]))
    with pytest.raises(ValueError, match=f"{bad}: .*{match}"):
        (unf.load_model if kind == "model" else load)(bad)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"config": {"num_layers": HUGE}}, "num_layers is 1000000000000, but the file has"),
        ({"config": {"mlp_layers": HUGE}}, "mlp_layers is 1000000000000, but the file has"),
        ({"config": {"hidden_channels": HUGE}}, r"a layer has \d+ coefficients in 2 arrays"),
        ({"config": {"hidden_channels": "x"}}, "cannot be made"),
        ({"config": {"in_channels": 0, "hidden_channels": HUGE}}, "a layer from 0 to"),
        ({"config": {"in_channels": -1, "hidden_channels": HUGE}}, "a layer from -1 to"),
        ({"config": {"activation": "numpy"}}, "unknown activation"),
        ({"config": {"activation": ["relu"]}}, "cannot be made"),
        ({"config": {"dtype": "object"}}, "cannot be made"),
        ({"config": []}, "cannot be made"),
        ({"kind": ["UNF"]}, "unknown kind of model"),
        ({"space": space_of("[a] b", HUGE, 3).to_json()}, r"a layer has \d+ coefficients"),
        ({"space": space_of("n " * 7, *[2] * 7).to_json()}, "can be looked at in"),
        ({"space": space_of("[l] l.m", 12, 3).to_json()}, r"in \d+ arrays, but the file"),
        ({"space": {}}, "cannot be made"),
        ({"out_space": None}, "cannot be made"),
    ],
)
def test_lies_of_models(good, change, match, tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(described(change)(good["model"]))
    with pytest.raises(ValueError, match=rf"(?s){bad}: .*{match}"):
        unf.load_model(bad)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"hidden_channels": HUGE}, r"a layer has \d+ coefficients"),
        ({"hidden_channels": None}, "no optimizer can be made"),
        ({"kind": "sql"}, "kind is 'sql'"),
        ({"kind": {}}, "no optimizer can be made"),
        ({"form": {"momentum": "x"}}, "momentum is 'x'"),
        ({"form": 3}, "no optimizer can be made"),
        ({"spatial": ["z"]}, "no axis is named 'z'"),
        ({"spatial": 3}, "no optimizer can be made"),
        ({"head_bias": False}, "unexpected"),
        ({"space": space_of("[a] b", HUGE, 3).to_json()}, r"a layer has \d+ coefficients"),
        ({"space": None}, "needs the weight space"),
    ],
)
def test_lies_of_optimizers(good, change, match, tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(described(change)(good["optimizer"]))
    with pytest.raises(ValueError, match=f"{bad}: .*{match}"):
        load(bad)


def test_an_origin_is_a_mapping(good, tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(described({"origin": [1]})(good["optimizer"]))
    with pytest.raises(ValueError, match="bad: does not say where the optimizer comes from"):
        origin(bad)
