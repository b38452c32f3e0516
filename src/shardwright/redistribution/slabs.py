"""Schedules that keep to a limit of memory: the same change, slab by slab.

A dim that source and target cut into tiles of s and t elements is, in both, made of
runs of g = gcd(s, t) neighbours that stay together. Every k-th part of all runs is a
tensor of its own, 1/k of the whole, which lies on the devices as the whole does. So the
tensor is moved part after part, each with 1/k of the room.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from shardwright.errors import PlanError
from shardwright.program.layout import Layout
from shardwright.program.mesh import ways
from shardwright.program.schedule import Schedule, Slabs
from shardwright.program.types import tile_bytes
from shardwright.redistribution.ranking import room_bytes
from shardwright.topology import Topology, copy_seconds

Planner = Callable[[tuple[int, ...]], Schedule]


def within(
    schedule: Schedule, max_bytes: int, plan: Planner, topology: Topology
) -> Schedule:
    """The schedule, or one in slabs whose room is at most `max_bytes` a device.

    `plan` plans the same change for another shape. A PlanError where no number of
    slabs keeps to the limit.
    """
    least = schedule.room_bytes
    for found in _every_choice(schedule):
        if found.room_bytes <= max_bytes:
            return found
    best: Schedule | None = None
    done: set[int] = set()  # more slabs of a dim than are needed only take longer
    for slabs in _every_way(schedule):
        if slabs.source_dim in done:
            continue
        for part in _every_choice(plan(slabs.shape)):
            found = _in_slabs(schedule, slabs, part, topology)
            least = min(least, found.room_bytes)
            if found.room_bytes <= max_bytes:
                done.add(slabs.source_dim)
                if best is None or found.seconds < best.seconds:
                    best = found
    if best is None:
        raise PlanError(
            f"moving shape {schedule.shape} from {schedule.source} to "
            f"{schedule.target} takes {least} bytes of room a device at least, "
            f"max_bytes is {max_bytes}"
        )
    return best


def _every_way(schedule: Schedule) -> Iterator[Slabs]:
    """Along each dim, few slabs first: twice as many each time, then as many as go."""
    source, target = schedule.source, schedule.target
    shape = source.view_shape(schedule.shape)
    if source.view is not None or target.view is not None:
        return
    tiles = source.tile_shape(shape), target.tile_shape(shape)
    for d, n in enumerate(shape):
        old, new = source.dims[d], target.dims[d]
        is_same = source.mesh == target.mesh and old == new
        if not is_same and (n % ways(old) or n % ways(new)):
            continue
        run = math.gcd(tiles[0][d], tiles[1][d])
        counts = (
            [k for k in range(2, run + 1) if run % k == 0]
            if run <= 1 << 16
            else [1 << e for e in range(1, 40) if run % (1 << e) == 0]
        )
        for k in counts:
            small = (-(-n // ways(old)) // k) * ways(old) if is_same else n // k
            views = [
                (*tile[:d], tile[d] // run, k, run // k, *tile[d + 1 :])
                for tile in tiles
            ]
            slab = (*shape[:d], small, *shape[d + 1 :])
            yield Slabs(k, slab, views[0], d + 1, views[1], d + 1)


def _every_choice(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule, then its alternatives in its stead, cheapest first."""
    yield schedule
    tile = schedule.source.view_tile_shape(schedule.shape)
    for other in schedule.alternatives:
        yield dataclasses.replace(
            schedule,
            family=other.family,
            steps=other.steps,
            bytes_received=other.bytes_received,
            peak_bytes=other.peak_bytes,
            seconds=other.seconds,
            alternatives=(),
            room_bytes=room_bytes(other.steps, tile, schedule.dtype),
        )


def _in_slabs(
    schedule: Schedule, slabs: Slabs, part: Schedule, topology: Topology
) -> Schedule:
    tiles = [
        _tile(layout, slabs.shape) for layout in (schedule.source, schedule.target)
    ]
    copies = sum(copy_seconds(topology, tile, schedule.dtype) for tile in tiles)
    room = part.room_bytes + sum(tile_bytes(tile, schedule.dtype) for tile in tiles)
    return dataclasses.replace(
        schedule,
        family=part.family,
        steps=part.steps,
        steps_mesh=part.steps_mesh,
        bytes_received=slabs.count * part.bytes_received,
        peak_bytes=max(
            part.peak_bytes,
            *(
                tile_bytes(_tile(x, schedule.shape), schedule.dtype)
                for x in (schedule.source, schedule.target)
            ),
        ),
        seconds=slabs.count * (part.seconds + copies),
        alternatives=(),
        room_bytes=room,
        slabs=slabs,
    )


def _tile(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    return layout.tile_shape(shape)
