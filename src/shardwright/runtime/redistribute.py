"""Move arrays to other shardings by the best schedule, and plan such moves."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec as P

from shardwright.capture import (
    from_named_sharding,
    to_partition_spec,
)
from shardwright.errors import LayoutError
from shardwright.lowering import schedule_module
from shardwright.program import Layout, Mesh, Schedule, TensorType
from shardwright.redistribution import plan_redistribution as plan_layouts
from shardwright.runtime.call import sharded_call
from shardwright.runtime.dtypes import mlir_dtype
from shardwright.runtime.jit import resolve_topology
from shardwright.topology import Topology


def redistribute(
    x: Any, sharding: Any, *, topology: Topology | str | None = None
) -> Any:
    """`x` in another NamedSharding, moved by the cheapest schedule.

    As `jax.device_put(x, sharding)`: `x` may be a tree of arrays and `sharding` a
    tree that is a prefix of it. The new mesh may differ from the array's, in axes and
    in device order, as long as it is over the same devices. Raises LayoutError where
    an array has no NamedSharding, or a sharding does not divide its shape.
    """
    wanted, tree = jax.tree.flatten(
        sharding, is_leaf=lambda s: isinstance(s, NamedSharding)
    )
    parts = tree.flatten_up_to(x)
    moved = [
        jax.tree.map(lambda leaf, s=s: _redistribute(leaf, s, topology), part)
        for part, s in zip(parts, wanted, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


def plan_redistribution(
    x: Any, sharding: NamedSharding, *, topology: Topology | str | None = None
) -> Schedule:
    """The schedule that `redistribute` would run; no device is needed.

    `x` is an array or a jax.ShapeDtypeStruct with a NamedSharding, whose mesh may
    be abstract. The result has `steps`, `bytes_received`, `lower_bound`,
    `peak_bytes` (per device), `seconds` and `alternatives`.
    """
    shape, dtype = tuple(x.shape), mlir_dtype(x.dtype)
    return _schedule(shape, dtype, _sharding_of(x), sharding, topology)


def _redistribute(
    x: jax.Array, sharding: NamedSharding, topology: Topology | str | None
) -> jax.Array:
    source = _sharding_of(x)
    shape, dtype = tuple(x.shape), mlir_dtype(x.dtype)
    if _same_mesh(source.mesh, sharding.mesh):
        return _mover(shape, dtype, source, sharding, topology)(x)
    move, flat = _tile_mover(shape, dtype, source, sharding, topology)
    return _unstacked(move(_stacked(x, flat)), shape, sharding)


def _sharding_of(x: Any) -> NamedSharding:
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding):
        raise LayoutError(
            f"the array of shape {tuple(x.shape)} has no NamedSharding but "
            f"{sharding}; put it on a mesh with jax.device_put first"
        )
    return sharding


def _schedule(
    shape: tuple[int, ...],
    dtype: str,
    source: NamedSharding,
    target: NamedSharding,
    topology: Topology | str | None,
) -> Schedule:
    old, new = (from_named_sharding(s, len(shape)).layout for s in (source, target))
    for what, layout in (("array's", old), ("target", new)):
        if not layout.is_even(shape):
            raise LayoutError(
                f"the {what} layout {layout} does not divide shape {shape} on mesh "
                f"{layout.mesh}; choose axes that divide each dim"
            )
    machine = resolve_topology(topology, source.mesh)
    if not _same_mesh(source.mesh, target.mesh):
        order = _positions(source.mesh, target.mesh)
        new = Layout(Mesh(new.mesh.axes, order), new.dims)
    return plan_layouts(shape, dtype, old, new, machine)


def _same_mesh(one: Any, other: Any) -> bool:
    if one.axis_names != other.axis_names or dict(one.shape) != dict(other.shape):
        return False
    if isinstance(one, AbstractMesh) or isinstance(other, AbstractMesh):
        return True
    return bool((one.devices == other.devices).all())


# Between meshes -----------------------------------------------------------------


def _positions(one: Any, other: Any) -> tuple[int, ...] | None:
    """Where each device of `other`, in its order, stands in the order of `one`.

    None for the same order, which is taken to be so where a mesh is abstract.
    """
    if one.size != other.size:
        raise LayoutError(
            f"the array lies on mesh {one} of {one.size} devices, the sharding asked "
            f"for on {other} of {other.size}; both must be over the same devices"
        )
    if isinstance(one, AbstractMesh) or isinstance(other, AbstractMesh):
        return None
    place = {device: i for i, device in enumerate(one.devices.flat)}
    if any(device not in place for device in other.devices.flat):
        raise LayoutError(
            f"the array lies on mesh {one}, the sharding asked for on {other}, which "
            "has other devices; use jax.device_put"
        )
    return tuple(place[device] for device in other.devices.flat)


def _stacked(x: jax.Array, flat: NamedSharding) -> jax.Array:
    """The tiles of all devices, one after the other along a first dim."""
    tiles = [shard.data[None] for shard in x.addressable_shards]
    shape = (flat.mesh.size, *tiles[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, flat, tiles)


def _unstacked(
    x: jax.Array, shape: tuple[int, ...], sharding: NamedSharding
) -> jax.Array:
    tiles = [shard.data[0] for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays(shape, sharding, tiles)


@lru_cache(maxsize=4096)
def _tile_mover(
    shape: tuple[int, ...],
    dtype: str,
    source: NamedSharding,
    target: NamedSharding,
    topology: Topology | str | None,
) -> tuple[Any, NamedSharding]:
    """A function of stacked tiles, and how it wants them, in the source's order."""
    schedule = _schedule(shape, dtype, source, target, topology)
    module = schedule_module(schedule, TensorType(shape, dtype), stacked=True)
    order: Any = source.mesh.devices
    mesh = JaxMesh(order.reshape(-1), ("all",), axis_types=(AxisType.Auto,))
    flat = NamedSharding(mesh, P("all"))
    tile = (1, *schedule.target.tile_shape(shape))
    call = sharded_call(module, mesh, [flat.spec], [flat.spec], [(tile, dtype)])
    return jax.jit(lambda x: call(x)[0]), flat


@lru_cache(maxsize=4096)
def _mover(
    shape: tuple[int, ...],
    dtype: str,
    source: NamedSharding,
    target: NamedSharding,
    topology: Topology | str | None,
) -> Any:
    schedule = _schedule(shape, dtype, source, target, topology)
    tile = schedule.target.tile_shape(shape)
    module = schedule_module(schedule, TensorType(shape, dtype))
    specs = [to_partition_spec(x) for x in (schedule.source, schedule.target)]
    call = sharded_call(module, source.mesh, specs[:1], specs[1:], [(tile, dtype)])
    return jax.jit(lambda x: call(x)[0], out_shardings=target)
