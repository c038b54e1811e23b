"""A deep backbone whose features belong to neurons, which exchange messages through the weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod, sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import repr_html
from ..basis._cost import MAX_FIXED
from ..nn._fourier import append_waves
from ..nn._position import sinusoids
from ..nn._spaces import replace_fields
from ..spec import WeightSpace
from ..spec._blocks import Block
from ..spec._grammar import ancestors, base_name, fixed_indices
from ..spec._group import lineage_axes
from ..spec._space import check_differs_in_sizes, check_is_space
from ._unf import check_depth, record_call, record_spaces

SCALE = 0.1
"""Deviation of the frequencies, in cycles per deviation of a weight."""
_POSITIONS = 32
"""Channels of the encoding of an index, of long fixed axes."""


@dataclass(frozen=True)
class Neurons:
    """The neurons of one name.

    Attributes:
        name: the name, as blocks have it; "" is one place for the whole network.
        shape: how many there are, after those of the names it is nested in.
        parent: the number of the neurons that they are nested in.
        encoded: whether indices are told apart.
    """

    name: str
    shape: tuple[int, ...]
    parent: int | None
    encoded: bool = False


@dataclass(frozen=True)
class Reading:
    """Weights of a block that belong to neurons: averaged over the other axes, if there are any.

    Attributes:
        block: the number of the block.
        neurons: the number of the neurons.
        axes: the axes of the neurons in the block, outermost first.
        alone: whether the block has no other axes.
    """

    block: int
    neurons: int
    axes: tuple[int, ...]
    alone: bool


@dataclass(frozen=True)
class Edge:
    """A block whose weights carry messages from some neurons to others."""

    source: Reading
    target: Reading

    @property
    def block(self) -> int:
        """The number of the block."""
        return self.source.block


@dataclass(frozen=True)
class Graph:
    """The neurons of a weight space, which weights belong to them, and what connects them."""

    neurons: tuple[Neurons, ...]
    readings: tuple[Reading, ...]
    edges: tuple[Edge, ...]
    widths: tuple[int, ...]
    """Of each block, the size of its fixed axes."""

    def read_by(self, number: int) -> Iterator[Reading]:
        """What some neurons read."""
        return (reading for reading in self.readings if reading.neurons == number)

    def ends(self, block: int) -> list[Reading]:
        """The neurons that a block joins."""
        return [reading for reading in self.readings if reading.block == block]

    def children(self, number: int) -> list[int]:
        """The neurons that are nested in these."""
        return [i for i, each in enumerate(self.neurons) if each.parent == number]

    def own_width(self, number: int, channels: int) -> int:
        """How many numbers each of these neurons reads, and a one."""
        widths = (
            self.widths[x.block] * channels * (1 if x.alone else 2) for x in self.read_by(number)
        )
        return sum(widths) + _POSITIONS * self.neurons[number].encoded + 1


@lru_cache
def make_graph(space: WeightSpace, encoded: tuple[str, ...] = ()) -> Graph:
    """The graph of a weight space; indices of the names `encoded` are told apart."""
    numbers, neurons = {"": 0}, [Neurons("", (), None)]
    readings, edges = [], []
    for number, block in enumerate(space.blocks):
        for label in block.labels:
            _add(label.name, block, encoded, numbers, neurons)
        above = {label.parent for label in block.labels}
        last = [i for i in range(len(block.labels)) if i not in above]
        ends = [
            Reading(number, numbers[block.labels[i].name], _lineage(block, i), len(last) == 1)
            for i in last
        ]
        readings += ends or [Reading(number, 0, (), True)]
        edges += [Edge(a, b) for a in ends for b in ends if a is not b]
    widths = tuple(block.width for block in space.blocks)
    return Graph(tuple(neurons), tuple(readings), tuple(edges), widths)


def _add(
    name: str,
    block: Block,
    encoded: Sequence[str],
    numbers: dict[str, int],
    neurons: list[Neurons],
) -> int:
    """The number of the neurons with this name, which may be new."""
    if name not in numbers:
        label = next(label for label in block.labels if label.name == name)
        parent = 0
        if label.parent is not None:
            above = block.labels[label.parent].name
            parent = _add(above, block, encoded, numbers, neurons)
        shape = (*neurons[parent].shape, label.size)
        numbers[name] = len(neurons)
        neurons.append(Neurons(name, shape, parent, base_name(name) in encoded))
    return numbers[name]


def _lineage(block: Block, position: int) -> tuple[int, ...]:
    """The axes of a folded block that a label varies along, outermost first."""
    return tuple(block.permuted.index(axis) for axis in lineage_axes(block, position))


def _normalize(x: Array) -> Array:
    """Channels with mean 0 and variance 1 at every entry: a layer norm without coefficients."""
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(jnp.mean(jnp.square(centered), axis=-1, keepdims=True) + 1e-5)


def _draw(key: PRNGKeyArray, rows: int, columns: int, dtype: Any) -> Array:
    """A matrix from N(0, 1/rows)."""
    return jax.random.normal(key, (rows, columns), dtype) / sqrt(rows)


class NeuronBlock(eqx.Module):
    """A residual block, which adds V(a ⊙ gelu(b)) to the features xₜ of every neuron t.

    (a, b) is a linear function of the neuron's own weights, of xₜ, of the features of the neurons
    that it is nested in and of those nested in it, and of the messages that it receives. For each
    array of weights w between neurons s and t, the message is

        Σₛ wₛₜ A xₛ / √|s|,

    in the form of a network's own layers. Features are normalized first. V starts at zero, so that
    a deep stack starts as a shallow model. Dropout drops channels.
    """

    messages: tuple[Float[Array, "channels sent"], ...]
    mixers: tuple[Float[Array, "known hidden"], ...]
    projections: tuple[Float[Array, "channels channels"], ...]

    def __init__(
        self, graph: Graph, in_channels: int, channels: int, *, key: PRNGKeyArray, dtype: Any
    ):
        """Initialize a block."""
        keys = iter(jax.random.split(key, len(graph.edges) + len(graph.neurons)))
        self.messages = tuple(
            _draw(next(keys), channels, graph.widths[edge.block] * in_channels * channels, dtype)
            / sqrt(graph.widths[edge.block] * in_channels)
            for edge in graph.edges
        )
        self.mixers = tuple(
            _draw(next(keys), _known(graph, i, in_channels, channels), 2 * channels, dtype)
            for i in range(len(graph.neurons))
        )
        self.projections = tuple(jnp.zeros((channels, channels), dtype) for _ in graph.neurons)

    def __call__(
        self,
        features: Sequence[Array],
        own: Sequence[Array],
        blocks: Sequence[Array],
        graph: Graph,
        kept: Array | None,
    ) -> list[Array]:
        """The features after this block.

        Args:
            features: those of all neurons.
            own: what neurons read off their own weights.
            blocks: the weights, with fixed axes folded into channels.
            graph: which belong to which.
            kept: what channels are multiplied by, if they are dropped.
        """
        x = [_normalize(each) for each in features]
        received: dict[int, Array] = {}
        for edge, matrix in zip(graph.edges, self.messages, strict=True):
            sent, to = _send(edge, blocks[edge.block], x[edge.source.neurons] @ matrix), edge.target
            received[to.neurons] = received.get(to.neurons, 0) + sent
        out = []
        for i, each in enumerate(graph.neurons):
            known = [own[i], x[i]]
            if i in received:
                known.append(received[i])
            if each.parent is not None:
                above = x[each.parent]
                known.append(jnp.broadcast_to(above[..., None, :], x[i].shape))
            known += [jnp.mean(x[child], axis=-2) for child in graph.children(i)]
            a, b = jnp.split(jnp.concatenate(known, axis=-1) @ self.mixers[i], 2, axis=-1)
            hidden = a * jax.nn.gelu(b)
            if kept is not None:
                hidden = hidden * jnp.broadcast_to(kept, hidden.shape)
            out.append(features[i] + hidden @ self.projections[i])
        return out


def _known(graph: Graph, number: int, in_channels: int, channels: int) -> int:
    """How many numbers a neuron gathers."""
    receives = any(edge.target.neurons == number for edge in graph.edges)
    others = receives + (number > 0) + len(graph.children(number))
    return graph.own_width(number, in_channels) + (1 + others) * channels


def _send(edge: Edge, weights: Array, values: Array) -> Array:
    """Messages: Σ over the source's axes, averages over axes of neither."""
    axes = weights.ndim - 1
    source, target = edge.source.axes, edge.target.axes
    values = values.reshape(*values.shape[:-1], weights.shape[-1], -1)
    operands = (weights, [*range(axes), axes], values, [*source, axes, axes + 1])
    summed = [axis for axis in range(axes) if axis not in target]
    sizes = [weights.shape[axis] for axis in summed]
    added = prod(weights.shape[axis] for axis in summed if axis in source)
    found = jnp.einsum(*operands, [*target, axes + 1])
    return found * (sqrt(added) / prod(sizes))


def _own(graph: Graph, number: int, blocks: Sequence[Array]) -> Array:
    """What neurons read off their weights: the weights or their means and mean squares, and 1."""
    neurons, found = graph.neurons[number], []
    for reading in graph.read_by(number):
        weights = blocks[reading.block]
        axes, kept = weights.ndim - 1, reading.axes
        others = tuple(axis for axis in range(axes) if axis not in kept)
        order = [sorted(kept).index(axis) for axis in kept]
        means = [weights]
        if not reading.alone:
            means = [jnp.mean(power, axis=others) for power in (weights, jnp.square(weights))]
        found += [jnp.transpose(x, (*order, len(order))) for x in means]
    dtype = jnp.result_type(*blocks)
    if neurons.encoded:
        codes = jnp.asarray(sinusoids(neurons.shape[-1], _POSITIONS), dtype)
        found.append(jnp.broadcast_to(codes, (*neurons.shape, _POSITIONS)))
    return jnp.concatenate([jnp.ones((*neurons.shape, 1), dtype), *found], axis=-1)


class NeuronFeatures(eqx.Module):
    """Features of neurons, in residual blocks that send messages through the weights.

    The features of a `UNF` belong to weights. These belong to neurons, that is to the indices of
    permutations, and to the network as a whole. They start from learned Fourier
    features of the neurons' own weights, such as biases. In every block, each neuron sends a
    vector to those it shares a weight with, multiplied by that weight, as a network sends
    activations. This is a polynomial of the weights that no linear layer computes, with far fewer
    features than there are weights. An array whose axes have more than two independent
    permutations is averaged over the others for each pair.

    The result has a leaf for each permutation of the weight space, `out_space`, and "" for the
    whole. Long fixed axes are permuted and told apart by positional encodings, as in `UNF`.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> model = NeuronFeatures(space, 1, key=jax.random.key(0), hidden_channels=8)
    >>> x = unf.testing.random_features(space, 1, key=jax.random.key(1))
    >>> jax.tree.map(jax.numpy.shape, model(x))
    {'': (8,), 'h1': (4, 8)}
    """

    frequencies: tuple[Float[Array, "width num_frequencies"], ...]
    embeddings: tuple[Float[Array, "known channels"], ...]
    blocks: tuple[NeuronBlock, ...]
    dropout: float = eqx.field(static=True)
    space: WeightSpace = eqx.field(static=True)
    made_by: tuple = eqx.field(static=True, repr=False)

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        *,
        key: PRNGKeyArray,
        hidden_channels: int = 64,
        num_blocks: int = 4,
        num_frequencies: int = 32,
        scale: float = SCALE,
        dropout: float = 0.0,
        max_fixed: int | None = MAX_FIXED,
        dtype: Any = jnp.float32,
    ):
        """Initialize a model.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            key: draws the coefficients.
            hidden_channels: channels of each neuron.
            num_blocks: the number of residual blocks.
            num_frequencies: Fourier features of each neuron's weights, which are learned.
            scale: the deviation of their frequencies at the start.
            dropout: rate of dropout in each block, if the model is called with a key.
            max_fixed: the longest fixed axes that stay fixed; None keeps all of them.
            dtype: dtype of the coefficients.
        """
        self.made_by = record_call("NeuronFeatures", locals())
        check_is_space(space)
        check_depth("num_blocks", num_blocks, dropout)
        self.space, self.dropout = space, dropout
        graph, keys = self.graph, jax.random.split(key, num_blocks + 2)
        widths = [graph.own_width(i, in_channels) for i in range(len(graph.neurons))]
        self.frequencies = tuple(
            scale * jax.random.normal(each, (width, num_frequencies), dtype)
            for each, width in zip(jax.random.split(keys[0], len(widths)), widths, strict=True)
        )
        self.embeddings = tuple(
            _draw(each, width + 2 * num_frequencies, hidden_channels, dtype)
            for each, width in zip(jax.random.split(keys[1], len(widths)), widths, strict=True)
        )
        self.blocks = tuple(
            NeuronBlock(graph, in_channels, hidden_channels, key=each, dtype=dtype)
            for each in keys[2:]
        )

    @property
    def inner_space(self) -> WeightSpace:
        """The weight space in which long fixed axes are permuted."""
        max_fixed = dict(self.made_by[1])["max_fixed"]
        return self.space if max_fixed is None else self.space.relax(above=max_fixed)

    @property
    def graph(self) -> Graph:
        """The neurons, and what connects them."""
        inner = self.inner_space
        return make_graph(inner, tuple(n for n in inner.sizes if n not in self.space.sizes))

    @property
    def out_space(self) -> WeightSpace:
        """The space of the result: a leaf for each permutation, and one for the whole network."""
        inner, spec = self.inner_space, {"": ""}
        for name in inner.sizes:
            axes = [*ancestors(name), name]
            spec[name] = " ".join(x if x in inner.sizes else f"[{x}]" for x in axes)
        shapes = {"": (), **inner.index_shapes}
        arrays = {name: jax.ShapeDtypeStruct(x, jnp.float32) for name, x in shapes.items()}
        return WeightSpace.from_spec(spec, arrays)

    def __call__(
        self,
        x: PyTree,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> dict[str, Array]:
        """Apply to features with a trailing channel axis.

        Args:
            x: the features.
            key: turns dropout on.
            mesh: not needed: XLA divides the products of weights that are sharded.
            axis: not needed.
        """
        del mesh, axis
        return self._by_permutation(self.of_neurons(x, key))

    def of_neurons(self, x: PyTree, key: PRNGKeyArray | None) -> list[Array]:
        """The features of all neurons of the graph, normalized."""
        inner, graph = self.inner_space, self.graph
        blocks = inner.fold(inner.flatten(x, channels=True))
        own = [_own(graph, i, blocks) for i in range(len(graph.neurons))]
        features = [
            append_waves(x, frequencies) @ matrix
            for x, frequencies, matrix in zip(own, self.frequencies, self.embeddings, strict=True)
        ]
        keys = [None] * len(self.blocks)
        if key is not None and self.dropout:
            keys = jax.random.split(key, len(self.blocks))
        for block, each in zip(self.blocks, keys, strict=True):
            kept = None
            if each is not None:
                shape = features[0].shape[-1:]
                kept = jax.random.bernoulli(each, 1 - self.dropout, shape) / (1 - self.dropout)
                kept = kept.astype(features[0].dtype)
            features = block(features, own, blocks, graph, kept)
        return [_normalize(each) for each in features]

    def _by_permutation(self, features: Sequence[Array]) -> dict[str, Array]:
        """One array for each permutation, from those of its occurrences in fixed axes."""
        found: dict[str, Array] = {"": features[0]}
        shapes = self.inner_space.index_shapes
        for each, array in zip(self.graph.neurons[1:], features[1:], strict=True):
            name, at = base_name(each.name), fixed_indices(each.name)
            if not any(isinstance(index, int) for index in at):
                found[name] = array
                continue
            if name not in found:
                found[name] = jnp.zeros((*shapes[name], array.shape[-1]), array.dtype)
            found[name] = found[name].at[at].set(array)
        return found

    def on(self, space: WeightSpace) -> "NeuronFeatures":
        """The model with the same coefficients on a weight space of other sizes.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs.
        """
        check_is_space(space)
        max_fixed = dict(self.made_by[1])["max_fixed"]
        inner = space if max_fixed is None else space.relax(above=max_fixed)
        check_differs_in_sizes(inner, self.inner_space)
        made_by = record_spaces(self.made_by, {self.space: space})
        return replace_fields(self, space=space, made_by=made_by)

    _repr_html_ = repr_html


class NeuronUNF(eqx.Module):
    """Weights to weights through `NeuronFeatures`: a weight is written by the neurons it joins.

    Entry (s, t) of an array between neurons s and t is Σᵣ (xₛ P)ᵣ (xₜ Q)ᵣ/√rank, for each output
    channel, and likewise for any number of axes.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> model = NeuronUNF(space, 1, 3, key=jax.random.key(0), hidden_channels=8)
    >>> x = unf.testing.random_features(space, 1, key=jax.random.key(1))
    >>> {leaf.shape[-1] for leaf in jax.tree.leaves(model(x))}
    {3}
    """

    features: NeuronFeatures
    factors: tuple[tuple[Float[Array, "channels written"], ...], ...]
    rank: int = eqx.field(static=True)
    made_by: tuple = eqx.field(static=True, repr=False)

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        hidden_channels: int = 64,
        num_blocks: int = 4,
        num_frequencies: int = 32,
        rank: int = 32,
        scale: float = SCALE,
        dropout: float = 0.0,
        max_fixed: int | None = MAX_FIXED,
        dtype: Any = jnp.float32,
    ):
        """Initialize a model.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients.
            hidden_channels: channels of each neuron.
            num_blocks: the number of residual blocks.
            num_frequencies: Fourier features of each neuron's weights, which are learned.
            rank: how many products each weight is a sum of.
            scale: the deviation of Fourier features' frequencies at the start.
            dropout: rate of dropout in each block, if the model is called with a key.
            max_fixed: the longest fixed axes that stay fixed; None keeps all of them.
            dtype: dtype of the coefficients.
        """
        self.made_by, self.rank = record_call("NeuronUNF", locals()), rank
        if rank < 1:
            raise ValueError(f"rank is {rank}; expected at least 1")
        keys = jax.random.split(key)
        self.features = NeuronFeatures(
            space, in_channels,
            key=keys[0], hidden_channels=hidden_channels, num_blocks=num_blocks,
            num_frequencies=num_frequencies, scale=scale, dropout=dropout, max_fixed=max_fixed,
            dtype=dtype,
        )  # fmt: skip
        factors = []
        for i, block in enumerate(self.inner_space.blocks):
            ends = self.features.graph.ends(i)
            columns = block.width * out_channels * (rank if len(ends) > 1 else 1)
            drawn = jax.random.split(jax.random.fold_in(keys[1], i), len(ends))
            factors.append(tuple(_draw(each, hidden_channels, columns, dtype) for each in drawn))
        self.factors = tuple(factors)

    @property
    def space(self) -> WeightSpace:
        """The weight space of input and output."""
        return self.features.space

    @property
    def inner_space(self) -> WeightSpace:
        """The weight space in which long fixed axes are permuted."""
        return self.features.inner_space

    def __call__(
        self,
        x: PyTree,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> PyTree:
        """Apply to features with a trailing channel axis; see `NeuronFeatures`."""
        del mesh, axis
        inner, graph = self.inner_space, self.features.graph
        neurons, blocks = self.features.of_neurons(x, key), []
        for i, (block, factors) in enumerate(zip(inner.blocks, self.factors, strict=True)):
            ends, axes = graph.ends(i), len(block.labels)
            rank = self.rank if len(ends) > 1 else 1
            operands: list[Any] = []
            for end, matrix in zip(ends, factors, strict=True):
                values = neurons[end.neurons] @ matrix
                values = values.reshape(*values.shape[:-1], rank, -1)
                operands += [values, [*end.axes, axes, axes + 1]]
            written = jnp.einsum(*operands, [*range(axes), axes + 1])
            blocks.append(written / sqrt(rank))
        return inner.unflatten(inner.unfold(blocks))

    def on(self, space: WeightSpace) -> "NeuronUNF":
        """The model with the same coefficients on a weight space of other sizes.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs.
        """
        made_by = record_spaces(self.made_by, {self.space: space})
        return replace_fields(self, features=self.features.on(space), made_by=made_by)

    _repr_html_ = repr_html
