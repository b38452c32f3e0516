"""Problems run on CPU devices, in small: every bit of every tile compared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from reshards.problems import Problem
from shardwright.lowering import schedules_module
from shardwright.program import Layout, Schedule, ways
from shardwright.redistribution import plan_redistribution
from shardwright.runtime.call import sharded_call
from shardwright.topology import Topology

MAX_DEVICES = 12


def shrunk(problem: Problem) -> Problem:
    """The same layouts over a small shape, as even or uneven as it was."""
    sizes: list[int] = []
    for n, old, new in zip(
        problem.shape, problem.source.dims, problem.target.dims, strict=True
    ):
        unit = math.lcm(ways(old), ways(new))
        sizes.append(min(n, 2 * unit) if n % unit == 0 else min(n, unit + n % unit))
    return dataclasses.replace(problem, shape=tuple(sizes))


def run(problem: Problem, machines: Sequence[Topology]) -> int:
    """Run the plans for these machines; a wrong bit raises. The number of runs."""
    small = shrunk(problem)
    for machine in machines:
        dtype = "i32" if small.source.partial else "f32"
        schedule = plan_redistribution(
            small.shape, dtype, small.source, small.target, machine
        )
        _compare(schedule, small)
    return len(machines)


def _compare(schedule: Schedule, problem: Problem) -> None:
    count = problem.num_devices
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 2**32, problem.shape, dtype=np.uint32)
    kept = [axis for axis, _ in problem.target.partial]
    owed = [a for a, _ in problem.source.partial if a not in kept]
    mesh = problem.source.mesh
    given = np.stack(
        [
            _tile(problem.source, problem.shape, p, _part(whole, mesh, p, owed, kept))
            for p in range(count)
        ]
    )
    dtype = np.int32 if problem.source.partial else np.float32
    got = np.asarray(_moved(schedule, given.view(dtype))).view(np.uint32)
    for device in range(count):
        p = problem.target.mesh.position_of(device)
        box = problem.target.tile_box(problem.shape, p)
        window = tuple(slice(0, b - a) for a, b in box)
        value = whole + np.uint32(mesh.index(device, kept)) if kept else whole
        wanted = value[tuple(slice(a, b) for a, b in box)]
        np.testing.assert_array_equal(got[(device, *window)], wanted, str(problem))


def _part(whole: Any, mesh: Any, position: int, owed: Any, kept: Any) -> Any:
    """One of the values whose sum over the owed axes is the whole, which differs by
    the place along the kept axes."""
    parts, mine = ways(owed), mesh.index(position, owed)
    value = whole + np.uint32(mesh.index(position, kept)) if kept else whole
    others = [
        np.random.default_rng(k + 1).integers(0, 2**32, whole.shape, dtype=np.uint32)
        for k in range(parts - 1)
    ]
    if mine < parts - 1:
        return others[mine]
    return value - sum(others, np.uint32(0)) if others else value


def _tile(layout: Layout, shape: tuple[int, ...], position: int, whole: Any) -> Any:
    tile = np.full(layout.tile_shape(shape), 0xDEADBEEF, np.uint32)
    box = layout.tile_box(shape, position)
    tile[tuple(slice(0, b - a) for a, b in box)] = whole[
        tuple(slice(a, b) for a, b in box)
    ]
    return tile


def _moved(schedule: Schedule, tiles: Any) -> Any:
    devices = np.array(jax.devices()[: len(tiles)], dtype=object)
    mesh = jax.sharding.Mesh(devices, ("all",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("all")
    tile = schedule.target.tile_shape(schedule.shape)
    module = schedules_module([schedule])
    call = sharded_call(module, mesh, [spec], [spec], [(tile, schedule.dtype)])
    joined = tiles.reshape(-1, *tiles.shape[2:])
    placed = jax.device_put(joined, NamedSharding(mesh, spec))
    return np.asarray(jax.jit(call)(placed)[0]).reshape(len(tiles), *tile)
