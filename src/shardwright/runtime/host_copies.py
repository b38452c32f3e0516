"""Moves between CPU devices of one process: they share the host's memory.

There a tile is copied out of the tiles that hold its parts, each element once and with
no collective, and what lies in one piece within another tile is not copied at all: JAX
arrays are immutable, so both may use the memory.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

Box = tuple[tuple[int, int], ...]

ALIGNMENT = 64
"""Bytes; a buffer of this alignment becomes a CPU device's without a copy."""


def shares_memory(x: jax.Array, target: Any) -> bool:
    """Whether all devices of both ends are CPU devices of this process."""
    devices = {*x.sharding.device_set, *target.device_set}
    mine = jax.process_index()
    return all(d.platform == "cpu" and d.process_index == mine for d in devices)


def copy_tiles(x: jax.Array, target: Any) -> jax.Array:
    """The array in another sharding; nothing in it is partial."""
    held: dict[Box, Any] = {}
    for shard in x.addressable_shards:
        held.setdefault(_box(shard.index, x.shape), shard.data)
    tiles = {box: np.asarray(data) for box, data in held.items()}
    wanted = {
        device: _box(index, x.shape)
        for device, index in target.addressable_devices_indices_map(x.shape).items()
    }
    distinct = list(dict.fromkeys(wanted.values()))
    made = {box: _part(box, tiles) for box in distinct}
    rest = [box for box, tile in made.items() if tile is None]
    if rest:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            copies = pool.map(lambda box: _copy(box, tiles), rest)
            made.update(zip(rest, copies, strict=True))
    arrays = jax.device_put([made[box] for box in wanted.values()], list(wanted))
    return jax.make_array_from_single_device_arrays(x.shape, target, arrays)


def _box(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


def _part(box: Box, tiles: dict[Box, np.ndarray]) -> np.ndarray | None:
    """The tile where it lies in one piece within another."""
    for held, tile in tiles.items():
        is_inside = all(
            c <= a and b <= d for (a, b), (c, d) in zip(box, held, strict=True)
        )
        if is_inside:
            part = tile[_within(box, held)]
            return part if part.flags.c_contiguous else None
    return None


def _copy(box: Box, tiles: dict[Box, np.ndarray]) -> np.ndarray:
    """The tile put together from those that hold its parts."""
    made = _empty(tuple(b - a for a, b in box), next(iter(tiles.values())).dtype)
    for held, tile in tiles.items():
        common = tuple(
            (max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, held, strict=True)
        )
        if all(a < b for a, b in common):
            made[_within(common, box)] = tile[_within(common, held)]
            if common == box:
                break
    return made


def _within(box: Box, outer: Box) -> tuple[Any, ...]:
    slices = (
        slice(a - start, b - start)
        for (a, b), (start, _) in zip(box, outer, strict=True)
    )
    return (..., *slices)  # so that a scalar stays an array


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array whose buffer a CPU device takes as it is."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)
