"""How many bytes a device receives for steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Permute,
    ReduceScatter,
    Step,
    dtype_bits,
    step_result_shape,
    tile_bytes,
    ways,
)
from shardwright.program.schedule import Axes

Load = dict[int, int]
"""Elements that each member of a group receives from others."""


def step_bytes(step: Step, tile_shape: tuple[int, ...], dtype: str) -> int:
    """Bytes that the busiest device receives for a step on a tile of this shape."""
    if isinstance(step, Exchange | Permute):
        busiest = max(_load(step, tile_shape).values(), default=0)
        return _whole_bytes(busiest, dtype)
    return _group_bytes(step, tile_shape, dtype)


def schedule_bytes(
    steps: Iterable[Step], tile_shape: tuple[int, ...], dtype: str
) -> int:
    """Bytes that the busiest device receives for steps in a row.

    Who receives much in one exchange may receive little in the next: those of one
    group are added up device by device. Where groups differ, the busiest of each are
    taken to be the same.
    """
    total, tile = 0, tile_shape
    loads: dict[Axes, Load] = {}
    for step in steps:
        if isinstance(step, Exchange | Permute):
            load = loads.setdefault(step.axes, defaultdict(int))
            for member, elements in _load(step, tile).items():
                load[member] += elements
        else:
            total += _group_bytes(step, tile, dtype)
        tile = step_result_shape(step, tile)
    busiest = (max(load.values(), default=0) for load in loads.values())
    return total + sum(_whole_bytes(elements, dtype) for elements in busiest)


def _group_bytes(step: Step, tile_shape: tuple[int, ...], dtype: str) -> int:
    if not isinstance(step, AllGather | AllToAll | AllReduce | ReduceScatter):
        return 0
    tile, n = tile_bytes(tile_shape, dtype), ways(step.axes)
    if isinstance(step, AllGather):
        return tile * (n - 1)
    once = -(-tile * (n - 1) // n)
    return 2 * once if isinstance(step, AllReduce) else once


def _whole_bytes(elements: int, dtype: str) -> int:
    return -(-elements * dtype_bits(dtype) // 8)


def _load(step: Exchange | Permute, tile_shape: tuple[int, ...]) -> Load:
    load: defaultdict[int, int] = defaultdict(int)
    if isinstance(step, Permute):
        for s, t in step.pairs:
            if s != t:
                load[t] += math.prod(tile_shape)
        return load
    if step.joined:
        n = ways(step.axes)
        for member in range(n):
            load[member] += (n - 1) * math.prod(step.joined[0].shape)
    for r in step.rounds:
        size = math.prod(r.shape)
        for s, t in r.pairs:
            if s != t:
                load[t] += size
    return load
