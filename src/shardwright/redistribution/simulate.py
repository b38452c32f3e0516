"""What each step does to the tiles of all devices, in numpy: the steps' meaning.

Tiles are one array, the mesh position first. The exact check runs it on index sets,
the tests on numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from shardwright.program.mesh import Mesh, positions_by_group
from shardwright.program.schedule import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Fold,
    Permute,
    ReduceScatter,
    Resize,
    Schedule,
    Shuffle,
    Slice,
    Step,
    Unreduce,
)

Tiles = NDArray[Any]
Reduce = Callable[[str, Tiles], Tiles]
"""Reduce axis 1 of an array of (group, member, tile...) by a named reducer."""

Identity = Callable[[str, Tiles], Tiles]
"""What members that do not keep a value hold in its stead."""

GroupStep = (
    Slice
    | AllGather
    | AllToAll
    | AllReduce
    | ReduceScatter
    | Permute
    | Unreduce
    | Exchange
)
"""Steps in which members of a group differ."""

_UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "only": np.bitwise_or,
}


def reduce_numbers(reducer: str, tiles: Tiles) -> Tiles:
    """Elementwise reduction over axis 1."""
    return _UFUNCS[reducer].reduce(tiles, axis=1)


def identity_numbers(reducer: str, tiles: Tiles) -> Tiles:
    """The reducer's identity, in the shape of the tiles."""
    match reducer:
        case "sum" | "or" | "only":
            value: Any = 0
        case "prod":
            value = 1
        case "and":
            value = -1 if tiles.dtype.kind == "i" else np.iinfo(tiles.dtype).max
        case _:
            ends = np.iinfo(tiles.dtype) if tiles.dtype.kind in "iu" else None
            low, high = (ends.min, ends.max) if ends else (-np.inf, np.inf)
            value = low if reducer == "max" else high
    return np.full_like(tiles, value)


def simulate(
    mesh: Mesh,
    steps: Schedule | Iterable[Step],
    tiles: Tiles,
    reduce: Reduce = reduce_numbers,
    identity: Identity = identity_numbers,
) -> Tiles:
    """Run the steps on `tiles`, of shape (devices of the mesh, *tile shape).

    A schedule begins on tiles as the source's view sees them and ends on tiles as
    the target's view sees them.
    """
    if isinstance(steps, Schedule):
        steps = steps.steps
    for step in steps:
        tiles = _run(mesh, step, tiles, reduce, identity)
    return tiles


def _run(
    mesh: Mesh, step: Step, tiles: Tiles, reduce: Reduce, identity: Identity
) -> Tiles:
    match step:
        case Resize():
            return _resized(tiles, step.shape)
        case Shuffle():
            return _shuffled(tiles, step)
        case Fold():
            return reduce(step.reducer, tiles)
        case _:
            return _by_groups(mesh, step, tiles, reduce, identity)


def _shuffled(tiles: Tiles, step: Shuffle) -> Tiles:
    devices = tiles.shape[:1]
    split = tiles.reshape(devices + step.split)
    order = (0, *(p + 1 for p in step.perm))
    return split.transpose(order).reshape(devices + step.shape)


def _by_groups(
    mesh: Mesh,
    step: GroupStep,
    tiles: Tiles,
    reduce: Reduce,
    identity: Identity,
) -> Tiles:
    table = positions_by_group(mesh, step.axes)
    grouped = tiles[table]
    match step:
        case Slice():
            new = _chunks(grouped, step.dim)
        case AllGather():
            new = _for_all(_joined(grouped, step.dim), grouped)
        case AllToAll():
            new = _all_to_all(grouped, step)
        case AllReduce():
            new = _for_all(reduce(step.reducer, grouped), grouped)
        case ReduceScatter():
            whole = _for_all(reduce(step.reducer, grouped), grouped)
            new = _chunks(whole, step.dim)
        case Permute():
            new = np.zeros_like(grouped)
            for s, t in step.pairs:
                new[:, t] = grouped[:, s]
        case Unreduce():
            new = identity(step.reducer, grouped)
            new[:, 0] = grouped[:, 0]
        case Exchange():
            new = _exchange(grouped, step)
        case _:
            assert_never(step)
    result = np.empty((len(tiles), *new.shape[2:]), tiles.dtype)
    result[table] = new
    return result


def _resized(tiles: Tiles, shape: Sequence[int]) -> Tiles:
    sizes = tuple(map(min, tiles.shape[1:], shape))
    new = np.zeros((len(tiles), *shape), tiles.dtype)
    window = (slice(None), *(slice(n) for n in sizes))
    new[window] = tiles[window]
    return new


def _for_all(whole: Tiles, grouped: Tiles) -> Tiles:
    """One array a group, given to each of its members."""
    shape = (grouped.shape[0], grouped.shape[1], *whole.shape[1:])
    return np.broadcast_to(whole[:, None], shape)


def _joined(grouped: Tiles, dim: int) -> Tiles:
    return np.concatenate([grouped[:, k] for k in range(grouped.shape[1])], dim + 1)


def _chunks(grouped: Tiles, dim: int) -> Tiles:
    """Member k's chunk k of `dim`."""
    n = grouped.shape[1]
    pieces = np.split(grouped, n, dim + 2)
    return np.stack([pieces[k][:, k] for k in range(n)], 1)


def _all_to_all(grouped: Tiles, step: AllToAll) -> Tiles:
    pieces = np.split(grouped, grouped.shape[1], step.split_dim + 2)
    return np.stack([_joined(piece, step.concat_dim) for piece in pieces], 1)


def _exchange(grouped: Tiles, step: Exchange) -> Tiles:
    new = np.zeros((*grouped.shape[:2], *step.shape), grouped.dtype)
    for r in step.all_rounds:
        for s, t in r.pairs:
            source, target = [], []
            for o, w, n, size in zip(
                r.read[s], r.write[t], r.shape, step.shape, strict=True
            ):
                start, stop = max(0, w), min(size, w + n)  # the rest is dropped
                target.append(slice(start, max(start, stop)))
                source.append(slice(o + start - w, max(o + stop, o + start) - w))
            new[(slice(None), t, *target)] = grouped[(slice(None), s, *source)]
    return new
