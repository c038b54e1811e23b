"""What reads files and descriptions, each with something good to begin with."""

import json
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import unf
from tests.lab.faults.datasets import Datasets
from tests.lab.faults.mutations import changed_bytes, changed_file, changed_json, dumps
from tests.lab.faults.specs import altered_spec, random_tree
from unf.lab._checkpoint import CheckpointError
from unf.lab._folder import claim
from unf.lab.lopt import MetaError, _job
from unf.lab.zoos import TinyRNN
from unf.lab.zoos._build import describe
from unf.meta._train import MetaState
from unf.models import UNF, InvariantUNF, StatNN
from unf.optim import init_theta, load, origin, save
from unf.spec import SpecError, WeightSpace
from unf.zoo import Status, Zoo, ZooError
from unf.zoo._store import Store
from unf.zoo._zoo import stored_arrays

KEY = jax.random.key(0)
SPACE = WeightSpace.from_spec(
    {"w": "[i] h", "r": "h h", "heads": ["(h + [i]) (g g.k)", None], "s": ()},
    {
        "w": jax.ShapeDtypeStruct((2, 3), "float32"),
        "r": jax.ShapeDtypeStruct((3, 3), "float32"),
        "heads": [jax.ShapeDtypeStruct((5, 4), "float32"), None],
        "s": jax.ShapeDtypeStruct((), "float32"),
    },
    sizes={"g": 2},
)
LAYERS = WeightSpace.from_spec(
    ("[layer] d layer.m", "(d + 2)"),
    (jax.ShapeDtypeStruct((2, 3, 4), "float32"), jax.ShapeDtypeStruct((5,), "float32")),
)


def blank(make, *arguments, **options):
    """A module of zeros: nothing is drawn, so nothing is compiled."""
    shapes = eqx.filter_eval_shape(make, *arguments, key=KEY, **options)
    return jax.tree.map(
        lambda x: jnp.asarray(np.zeros(x.shape, x.dtype)) if hasattr(x, "dtype") else x, shapes
    )


class Specs:
    """`WeightSpace.from_spec`, and all that a space can say of itself."""

    errors, name_in_errors = (SpecError,), ""
    good = {"w": "a b"}, {"w": (2, 3)}, {}

    def __init__(self, folder):
        pass

    def alter(self, rng):
        return altered_spec(rng) if rng.random() < 0.6 else random_tree(rng)

    def read(self, given):
        spec, shapes, sizes = given
        shapes = jax.tree.map(
            lambda shape: jax.ShapeDtypeStruct(shape, "float32"),
            shapes,
            is_leaf=lambda x: isinstance(x, tuple),
        )
        space = WeightSpace.from_spec(spec, shapes, sizes=sizes)
        again = WeightSpace.from_json(space.to_json())
        assert again == space and hash(again) == hash(space) and repr(again) == repr(space)


class Descriptions:
    """`WeightSpace.from_json`."""

    errors, name_in_errors = (SpecError,), ""
    good = SPACE.to_json()

    def __init__(self, folder):
        self.known = [json.loads(space.to_json()) for space in (SPACE, LAYERS)]

    def alter(self, rng):
        description = rng.choice(self.known)
        if rng.random() < 0.3:
            return changed_bytes(rng, dumps(description).encode()).decode("utf-8", "replace")
        return dumps(changed_json(rng, description))

    def read(self, given):
        space = WeightSpace.from_json(given)
        assert WeightSpace.from_json(space.to_json()) == space


class _Files:
    """A reader of one file, of which there are several good ones."""

    errors = (ValueError, SpecError)

    def __init__(self, folder):
        self.path = folder / "given.safetensors"
        self.name_in_errors = str(self.path)
        self.known = []
        for i, content in enumerate(self.contents()):
            self.write(folder / f"good{i}", content)
            self.known.append((folder / f"good{i}").read_bytes())
        self.good = self.known[0]

    def alter(self, rng):
        return changed_file(rng, rng.choice(self.known))

    def read(self, given):
        self.path.write_bytes(given)
        self.load()


class Models(_Files):
    """`unf.load_model`."""

    def contents(self):
        stat = blank(StatNN, SPACE, 1, 1, mlp_width=2, mlp_layers=2)
        scores = WeightSpace.from_spec({"s": "h"}, {"s": jax.ShapeDtypeStruct((3,), "float32")})
        equivariant = blank(UNF, LAYERS, 1, 1, num_layers=1, minimal=True)
        pooled = blank(
            InvariantUNF, scores, 1, 1, num_layers=2, hidden_channels=2, mlp_width=2, mlp_layers=1,
            norm=True, statistics=("mean", "max"), products=1,
        )  # fmt: skip
        other = blank(UNF, scores, 1, 2, num_layers=1, out_space=LAYERS)
        return [stat, stat, equivariant, pooled, other]

    def write(self, path, content):
        unf.save_model(path, content)

    def load(self):
        unf.load_model(self.path)


class Optimizers(_Files):
    """`unf.optim.load` and `unf.optim.origin`."""

    def contents(self):
        sgdm, deepset = blank(init_theta, "sgdm"), blank(init_theta, "deepset", hidden_channels=2)
        small = WeightSpace.from_spec({"w": "a [b]"}, {"w": jax.ShapeDtypeStruct((3, 2), "int8")})
        options = {"hidden_channels": 2, "head_bias": False, "spatial": ("a",)}
        nfn = blank(init_theta, "nfn", small, **options)
        return [sgdm, sgdm, deepset, nfn, blank(init_theta, "unf", small, hidden_channels=2)]

    def write(self, path, content):
        save(path, content, task="mlp", steps=3)

    def load(self):
        assert isinstance(origin(self.path), dict)
        load(self.path)


class Checkpoint(NamedTuple):
    """One file of a meta-training, altered."""

    name: str
    content: bytes


class Checkpoints:
    """Resuming a meta-training: `claim` and `restore`."""

    errors = (MetaError, CheckpointError)

    def __init__(self, folder):
        self.folder = folder / "run"
        self.name_in_errors = str(self.folder)
        theta = blank(init_theta, "sgdm")
        runs = {"key": jax.random.key_data(KEY), "x": jnp.ones((2, 3)), "on": jnp.ones(2, bool)}
        memory = optax.adam(1e-3).init(theta)
        self.state = MetaState(theta, memory, runs, jnp.asarray(3, jnp.int32))
        self.config = {"format": 1, "task": "mlp", "task.hidden": [3], "kind": "sgdm", "seed": 0}
        checkpoints = self._claim(resume=False)
        row = dict.fromkeys(_job.COLUMNS, 1.5) | {"step": 3}
        _job.store(self.folder, checkpoints, self.state, [row], self.config)
        (state,) = (self.folder / "checkpoints").iterdir()
        self.files = {str(state.relative_to(self.folder)): state.read_bytes()}
        self.good = Checkpoint(*next(iter(self.files.items())))

    def _claim(self, **how):
        names = (_job.METRICS, _job.OPTIMIZER)
        return claim(
            self.folder, self.config, outputs=names, overwrite=False, error=MetaError, **how
        )

    def alter(self, rng):
        (name,) = self.files
        return Checkpoint(name, changed_file(rng, self.files[name]))

    def read(self, given):
        (self.folder / given.name).write_bytes(given.content)
        _, rows = _job.restore(self._claim(resume=True), self.state)
        assert all(list(row) == list(_job.COLUMNS) for row in rows)


class ZooFile(NamedTuple):
    """One file of a zoo, altered, and what is read of the zoo then."""

    name: str
    content: bytes
    wanted: tuple[str, ...]


_PARTS = {
    "zarr.json": ("success",),
    "status": ("complete",),
    "success": ("success",),
    "loss": ("loss",),
    "weights.w": ("weights",),
    "batch_size": ("choices",),
    "choices.learning_rate": ("choices",),
    "seed": ("damage",),
}
"""What reads a file, by the first part of its name."""


class Zoos:
    """`unf.zoo.Zoo`: descriptions, arrays' descriptions and chunks."""

    errors = (ZooError, SpecError)

    def __init__(self, folder):
        self.path = folder / "zoo"
        self.name_in_errors = str(self.path)
        recipe = TinyRNN(hidden=3, digits=1, steps=1, problems=1, batch_sizes=(2,), dtype="float32")
        space = WeightSpace.from_spec({"w": "a b"}, {"w": np.zeros((2, 3))})
        store = Store(self.path, 3, 2)
        attributes = describe(recipe, models=3, seed=0, chunk=2) | {"space": space.to_json()}
        arrays = stored_arrays(space, attributes["choices"])
        store.create(arrays, attributes)
        for chunk in range(2):
            values = {name: np.ones((2, *shape)) for name, (shape, _) in arrays.items()}
            store.write(chunk, values | {"status": np.full(2, Status.TRAINED)})
        found = (file for file in self.path.rglob("*") if file.is_file())
        self.files = {str(file.relative_to(self.path)): file.read_bytes() for file in found}
        self.good = ZooFile("zarr.json", self.files["zarr.json"], ("describe", "damage", "weights"))

    def alter(self, rng):
        name = rng.choice(["zarr.json"] * 8 + [n for n in self.files if n.endswith("json")] * 2
                          + list(self.files))  # fmt: skip
        content, wanted = self.files[name], _PARTS[name.split("/")[0]]
        if rng.random() < 0.1:
            wanted = (*wanted, "choices", "weights", "damage", "describe")
        if name.endswith("json") and rng.random() < 0.8:
            description = json.loads(content)
            if name == "zarr.json" and rng.random() < 0.3:
                attributes = description["attributes"]
                attributes["space"] = dumps(changed_json(rng, json.loads(attributes["space"])))
            altered = dumps(changed_json(rng, description)).encode("utf-8", "surrogatepass")
        else:
            altered = changed_bytes(rng, content)
        return ZooFile(name, altered, wanted)

    def read(self, given):
        file = self.path / given.name
        file.write_bytes(given.content)
        try:
            zoo = Zoo(self.path)
            for name in given.wanted:
                wanted = getattr(zoo, name)
                if callable(wanted):
                    wanted()
        finally:
            file.write_bytes(self.files[given.name])


READERS = {
    "specs": Specs,
    "descriptions": Descriptions,
    "models": Models,
    "optimizers": Optimizers,
    "checkpoints": Checkpoints,
    "zoos": Zoos,
    "datasets": Datasets,
}
"""By the name that `fuzz.py` is given."""
