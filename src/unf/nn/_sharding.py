"""Weight spaces sharded across devices, each leaf along one of its axes."""

from collections.abc import Sequence
from math import prod

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ..basis._sharding import shard_axes, shard_blocks
from ..spec import WeightSpace

AnyMesh = Mesh | AbstractMesh


def leaf_shardings(space: WeightSpace, mesh: AnyMesh, axis: str | None = None) -> PyTree:
    """The sharding of every leaf of a weight space on a mesh, with or without channels.

    Each leaf is sharded along its largest permuted axis that the number of devices divides. A
    leaf without one is replicated on every device.

    Args:
        space: the weight space.
        mesh: the devices, or an abstract mesh.
        axis: the mesh axis to shard leaves along; by default all of its axes together.

    Raises:
        ValueError: if an axis of the mesh does not exist or is not of type Auto.

    >>> shapes = {"w": jax.ShapeDtypeStruct((4, 6), "float32")}
    >>> space = WeightSpace.from_spec({"w": "[in] hidden"}, shapes)
    >>> auto = (jax.sharding.AxisType.Auto,)
    >>> mesh = jax.sharding.AbstractMesh((2,), ("devices",), axis_types=auto)
    >>> tuple(leaf_shardings(space, mesh)["w"].spec)
    (None, 'devices')
    """
    devices = _count(mesh, axis)
    return space.unflatten([_along(mesh, axis, at) for at in shard_axes(space, devices)])


def shard(space: WeightSpace, tree: PyTree, mesh: AnyMesh, axis: str | None = None) -> PyTree:
    """Shard weights or features across devices as in `leaf_shardings`.

    Under `jax.jit` this is a sharding constraint: a leaf that is sharded along another axis is
    resharded, and no device ever holds more of it than its shard.
    """
    return jax.lax.with_sharding_constraint(tree, leaf_shardings(space, mesh, axis))


def fold(
    space: WeightSpace, leaves: Sequence[Array], mesh: AnyMesh | None, axis: str | None
) -> list[Array]:
    """`space.fold`, with every leaf and block sharded if there is a mesh."""
    if mesh is None:
        return space.fold(leaves)
    leaves = jax.tree.leaves(shard(space, space.unflatten(list(leaves)), mesh, axis))
    parts = [
        part
        for layout, leaf in zip(space.layouts, leaves, strict=True)
        for part in layout.split(leaf)
    ]
    parts = _shard_parts(space, parts, mesh, axis)
    return [block.fold(part) for block, part in zip(space.blocks, parts, strict=True)]


def unfold(
    space: WeightSpace, blocks: Sequence[Array], mesh: AnyMesh | None, axis: str | None
) -> list[Array]:
    """`space.unfold`, with every leaf and block sharded if there is a mesh."""
    if mesh is None:
        return space.unfold(blocks)
    parts = [block.unfold(array) for block, array in zip(space.blocks, blocks, strict=True)]
    remaining = iter(_shard_parts(space, parts, mesh, axis))
    leaves = [layout.join([next(remaining) for _ in layout.blocks]) for layout in space.layouts]
    return jax.tree.leaves(shard(space, space.unflatten(leaves), mesh, axis))


def _shard_parts(
    space: WeightSpace, parts: Sequence[Array], mesh: AnyMesh, axis: str | None
) -> list[Array]:
    """Reshard blocks of leaves that are sharded along a fixed axis along a permuted one."""
    cuts = shard_blocks(space, _count(mesh, axis))
    return [
        jax.lax.with_sharding_constraint(part, _along(mesh, axis, block.permuted[cut.label]))
        if cut is not None and cut.resharded
        else part
        for block, cut, part in zip(space.blocks, cuts, parts, strict=True)
    ]


def _along(mesh: AnyMesh, axis: str | None, position: int | None) -> NamedSharding:
    names = mesh.axis_names if axis is None else (axis,)
    spec = () if position is None else (*[None] * position, names)
    return NamedSharding(mesh, PartitionSpec(*spec))


def _count(mesh: AnyMesh, axis: str | None) -> int:
    """The number of devices to shard across, after checking that the compiler may do it."""
    names = mesh.axis_names if axis is None else (axis,)
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    for name in names:
        if name not in kinds:
            raise ValueError(f"the mesh has no axis {name!r}: expected one of {mesh.axis_names}")
        if kinds[name] != AxisType.Auto:
            raise ValueError(
                f"axis {name!r} of the mesh is {kinds[name].name}, expected Auto: make the mesh "
                "with jax.sharding.Mesh(devices, names), or jax.make_mesh with axis_types="
            )
    return prod(mesh.shape[name] for name in names)
