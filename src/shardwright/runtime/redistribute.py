"""Move an array to another sharding by the best schedule, and plan such a move."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding

from shardwright.capture import from_named_sharding, to_partition_spec
from shardwright.errors import LayoutError
from shardwright.lowering import schedule_module
from shardwright.program import Schedule, TensorType
from shardwright.redistribution import plan_schedule
from shardwright.runtime.call import sharded_call
from shardwright.runtime.dtypes import mlir_dtype
from shardwright.runtime.jit import resolve_topology
from shardwright.topology import Topology


def redistribute(
    x: jax.Array, sharding: NamedSharding, *, topology: Topology | str | None = None
) -> jax.Array:
    """`x` in another NamedSharding of its mesh, moved by the cheapest schedule.

    As `jax.device_put(x, sharding)`, and traceable under `jax.jit`. Raises
    LayoutError where `x` has no NamedSharding, or one on another mesh.
    """
    source = _sharding_of(x)
    shape, dtype = tuple(x.shape), mlir_dtype(x.dtype)
    return _mover(shape, dtype, source, sharding, topology)(x)


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
    if not _same_mesh(source.mesh, target.mesh):
        raise LayoutError(
            f"the array lies on mesh {source.mesh}, the sharding asked for on "
            f"{target.mesh}; both must have the same axes over the same devices"
        )
    old, new = (from_named_sharding(s, len(shape)).layout for s in (source, target))
    for what, layout in (("array's", old), ("target", new)):
        if not layout.is_even(shape):
            raise LayoutError(
                f"the {what} layout {layout} does not divide shape {shape} on mesh "
                f"{layout.mesh}; choose axes that divide each dim"
            )
    machine = resolve_topology(topology, source.mesh)
    return plan_schedule(shape, dtype, old, new, machine)


def _same_mesh(one: Any, other: Any) -> bool:
    if one.axis_names != other.axis_names or dict(one.shape) != dict(other.shape):
        return False
    if isinstance(one, AbstractMesh) or isinstance(other, AbstractMesh):
        return True
    return bool((one.devices == other.devices).all())


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
