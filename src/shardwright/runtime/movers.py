"""Compiled programs that take arrays through schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, Sharding
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec as P

from shardwright.capture import from_named_sharding, to_partition_spec
from shardwright.errors import LayoutError
from shardwright.jaxlib_bindings import tiles_by_device
from shardwright.lowering import schedules_module
from shardwright.program import Layout, Mesh, Schedule
from shardwright.runtime.call import sharded_call


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One array's schedule, and where its tiles lie before and after.

    `devices` are all that take part, by the numbers that the schedule gives them; None
    where both ends lie on one mesh, in its order.
    """

    schedule: Schedule
    source: Sharding
    target: Sharding
    devices: tuple[Any, ...] | None


def layout_of(sharding: Any, rank: int, what: str) -> Layout:
    """The layout that a sharding says; LayoutError where it is of another kind."""
    if isinstance(sharding, NamedSharding):
        return from_named_sharding(sharding, rank).layout
    if isinstance(sharding, Sharding) and len(sharding.device_set) == 1:
        return Layout.replicated(Mesh(()), rank)
    raise LayoutError(
        f"{what} has no NamedSharding but {sharding}; put it on a mesh with "
        "jax.device_put first"
    )


def devices_of(sharding: Sharding) -> tuple[Any, ...] | None:
    """A sharding's devices in its mesh's order; None where the mesh is abstract."""
    if not isinstance(sharding, NamedSharding):
        return tuple(sharding.device_set)
    mesh: Any = sharding.mesh
    return tuple(mesh.devices.flat) if isinstance(mesh, JaxMesh) else None


def on_one_mesh(source: Sharding, target: Sharding) -> bool:
    """Whether both name the axes of one mesh over devices in one order."""
    if not (isinstance(source, NamedSharding) and isinstance(target, NamedSharding)):
        return False
    one, other = source.mesh, target.mesh
    if one.axis_names != other.axis_names or dict(one.shape) != dict(other.shape):
        return False
    mine, theirs = devices_of(source), devices_of(target)
    return mine is None or theirs is None or mine == theirs


def move(
    moves: Sequence[Move],
    arrays: Sequence[jax.Array],
    *,
    donate: bool = False,
    accumulate: str | None = None,
) -> list[jax.Array]:
    """The arrays in their targets, by one program; all moves are of one kind."""
    run = _program(tuple(moves), donate, accumulate)
    devices = moves[0].devices
    with jax.set_mesh(_mesh(moves[0])):  # not the mesh of the caller's context
        if devices is None:
            return list(run(*arrays))
        given = [_stacked(x, m, devices) for x, m in zip(arrays, moves, strict=True)]
        moved = run(*given)
    if donate:
        for x in arrays:
            x.delete()
    return [_unstacked(y, m, devices) for y, m in zip(moved, moves, strict=True)]


def _mesh(m: Move) -> JaxMesh:
    """The mesh that the program runs on."""
    mesh: Any = m.source.mesh if m.devices is None else _flat(m.devices).mesh
    return mesh


@lru_cache(maxsize=4096)
def _program(moves: tuple[Move, ...], donate: bool, accumulate: str | None) -> Any:
    schedules = [m.schedule for m in moves]
    module = schedules_module(schedules, accumulate=accumulate)
    tiles = [(s.target.tile_shape(s.shape) or (1,), s.dtype) for s in schedules]
    devices = moves[0].devices
    if devices is not None:
        flat = _flat(devices)
        mesh, shardings = flat.mesh, None
        before = after = [flat.spec] * len(moves)
    else:
        mesh = moves[0].source.mesh
        before, after = (
            [to_partition_spec(layout.without_partial()) for layout in layouts]
            for layouts in (
                [s.source for s in schedules],
                [s.target for s in schedules],
            )
        )
        shardings = tuple(m.target for m in moves)
    call = sharded_call(module, mesh, before, after, tiles)
    donated = tuple(range(len(moves))) if donate else ()
    return jax.jit(call, out_shardings=shardings, donate_argnums=donated)


# Tiles of all devices as one array ------------------------------------------------


@lru_cache(maxsize=256)
def _flat(devices: tuple[Any, ...]) -> NamedSharding:
    """How stacked tiles lie: one a device, along the first dim."""
    grid = np.empty(len(devices), dtype=object)
    grid[:] = devices
    mesh = JaxMesh(grid, ("all",), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, P("all"))


def _stacked(x: jax.Array, m: Move, devices: tuple[Any, ...]) -> jax.Array:
    """The tiles of all devices, one after the other along the first dim.

    Devices that hold none have zeros.
    """
    tile = m.schedule.source.tile_shape(m.schedule.shape) or (1,)
    held = {device: _shaped(data, tile) for device, data in tiles_by_device(x).items()}
    mine = jax.process_index()
    tiles = [
        held[d] if d in held else jax.device_put(np.zeros(tile, x.dtype), d)
        for d in devices
        if d.process_index == mine
    ]
    shape = (len(devices) * tile[0], *tile[1:])
    return jax.make_array_from_single_device_arrays(shape, _flat(devices), tiles)


def _shaped(data: jax.Array, tile: tuple[int, ...]) -> jax.Array:
    """A scalar's one element with another rank; by way of the host, on no mesh."""
    if data.shape == tile:
        return data
    return jax.device_put(np.asarray(data).reshape(tile), data.device)


def _unstacked(x: jax.Array, m: Move, devices: tuple[Any, ...]) -> jax.Array:
    wanted = set(devices_of(m.target) or devices)
    tile = m.schedule.target.tile_shape(m.schedule.shape)
    tiles = [_shaped(s.data, tile) for s in x.addressable_shards if s.device in wanted]
    return jax.make_array_from_single_device_arrays(m.schedule.shape, m.target, tiles)
