"""Move arrays to other shardings by the best schedule, and plan such moves."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, Sharding
from rich.console import Console
from rich.progress import Progress

from shardwright.errors import LayoutError
from shardwright.jaxlib_bindings import sharding_of
from shardwright.lowering import kind_of
from shardwright.program import Mesh, Schedule, tile_bytes
from shardwright.redistribution import plan_redistribution as plan_layouts
from shardwright.runtime.dtypes import mlir_dtype
from shardwright.runtime.host_copies import copy_tiles, shares_memory
from shardwright.runtime.jit import resolve_topology
from shardwright.runtime.movers import (
    Move,
    devices_of,
    layout_of,
    move,
    on_one_mesh,
)
from shardwright.topology import Topology, launch_seconds

BUCKET_BYTES = 64 << 20
"""Most bytes a device of tiles that are moved together."""

LONG_BYTES = 1 << 30
"""Moves of more bytes a device than this show their progress on a terminal."""


def redistribute(
    x: Any,
    sharding: Any,
    *,
    topology: Topology | str | None = None,
    donate: bool = False,
    max_bytes: int | None = None,
    accumulate: Any = None,
    progress: bool | None = None,
) -> Any:
    """`x` in another sharding, moved by the cheapest schedule.

    As `jax.device_put(x, sharding)`: `x` may be a tree of arrays and `sharding` a
    tree that is a prefix of it. Shardings are NamedShardings on any meshes, of the
    same devices or others, or SingleDeviceShardings. Small arrays that take the same
    steps are moved together. CPU devices of one process share the host's memory: where
    no `topology` is named, tiles are copied there and no schedule is run.

    With `donate` the arrays given are freed as soon as they are moved, but for those
    of one element or none, whose memory may be the result's. `max_bytes`
    limits what a device holds beside an array's tiles before and after; a PlanError
    tells where that cannot be kept. Sums still to be made (`P(unreduced=...)`) are
    made in the dtype `accumulate` where that is wider. `progress` shows a bar; by
    default on a terminal, for moves that are long.

    Raises LayoutError where an array has another kind of sharding, or a sharding does
    not divide its shape.
    """
    wanted, tree = jax.tree.flatten(sharding, is_leaf=_is_sharding)
    parts = tree.flatten_up_to(x)
    pairs: list[tuple[Any, Any]] = []
    for part, s in zip(parts, wanted, strict=True):
        pairs += [(leaf, s) for leaf in jax.tree.leaves(part)]
    leaves = [_plain(leaf) for leaf, _ in pairs]
    moves = [
        _move(leaf, s, topology, max_bytes)
        for leaf, (_, s) in zip(leaves, pairs, strict=True)
    ]
    wide = None if accumulate is None else mlir_dtype(accumulate)
    results: list[Any] = list(leaves)
    total = sum(_bytes(m) for m in moves if m is not None)
    with _bar(total, progress) as advance:
        for i, m in enumerate(moves):
            if m is None:
                continue
            if leaves[i].size <= 1 and not m.schedule.num_collectives:
                results[i] = jax.device_put(leaves[i], m.target)
            elif topology is None and _is_on_host(m, leaves[i]):
                results[i] = copy_tiles(leaves[i], m.target)
                if donate:
                    leaves[i].delete()
            else:
                continue
            moves[i] = None
            advance(results[i], _bytes(m))
        for bucket in _buckets(moves, topology, max_bytes):
            chosen = [moves[i] for i in bucket]
            moved = move(
                [m for m in chosen if m is not None],
                [leaves[i] for i in bucket],
                donate=donate,
                accumulate=wide,
            )
            for i, y in zip(bucket, moved, strict=True):
                results[i] = leaves[i] = y  # the array given is not kept
            advance(moved, sum(_bytes(m) for m in chosen if m is not None))
    results = [_as_given(y, leaf) for y, (leaf, _) in zip(results, pairs, strict=True)]
    rest = iter(results)
    filled = [jax.tree.map(lambda _: next(rest), part) for part in parts]
    return jax.tree.unflatten(tree, filled)


def plan_redistribution(
    x: Any,
    sharding: Any,
    *,
    topology: Topology | str | None = None,
    max_bytes: int | None = None,
) -> Schedule:
    """The schedule that `redistribute` would run; no device is needed.

    `x` is an array or a jax.ShapeDtypeStruct with a NamedSharding, whose mesh may
    be abstract. The result has `steps`, `bytes_received`, `lower_bound`,
    `peak_bytes`, `room_bytes` (per device), `seconds` and `alternatives`.
    """
    shape, dtype = tuple(x.shape), mlir_dtype(x.dtype)
    source = sharding_of(x)
    return _planned(shape, dtype, source, sharding, topology, max_bytes).schedule


def _is_sharding(x: Any) -> bool:
    return isinstance(x, jax.sharding.Sharding)


def _is_on_host(m: Move, leaf: jax.Array) -> bool:
    """Whether to copy through the host: not what only cuts tiles, and not in one piece.

    For that XLA's copy within each device is the faster one.
    """
    schedule = m.schedule
    if schedule.source.partial or not shares_memory(leaf, m.target):
        return False
    if schedule.num_collectives:
        return True
    old, new = (
        layout.tile_shape(schedule.shape)
        for layout in (schedule.source, schedule.target)
    )
    cut = next((d for d, n in enumerate(new) if n != old[d]), 0)
    return math.prod(new[:cut]) == 1


# One array ----------------------------------------------------------------------


def _plain(leaf: Any) -> Any:
    """A PRNG key as the integers inside it."""
    if not isinstance(leaf, jax.Array):
        raise LayoutError(
            f"redistribute moves jax arrays, not {type(leaf).__name__}; put it on a "
            "mesh with jax.device_put first"
        )
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _as_given(moved: Any, leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(moved, impl=jax.random.key_impl(leaf))
    return moved


def _move(
    leaf: jax.Array,
    sharding: Any,
    topology: Topology | str | None,
    max_bytes: int | None,
) -> Move | None:
    """How to move an array; None where it lies as wanted already."""
    source = sharding_of(leaf)  # a traced array has none
    if source == sharding:
        return None
    shape, dtype = tuple(leaf.shape), mlir_dtype(leaf.dtype)
    return _planned(shape, dtype, source, sharding, topology, max_bytes)


@lru_cache(maxsize=1 << 16)
def _planned(
    shape: tuple[int, ...],
    dtype: str,
    source: Sharding,
    target: Sharding,
    topology: Topology | str | None,
    max_bytes: int | None,
) -> Move:
    old = layout_of(source, len(shape), f"the array of shape {shape}")
    new = layout_of(target, len(shape), "the sharding asked for")
    for what, layout in (("array's", old), ("target", new)):
        if not layout.is_even(shape):
            raise LayoutError(
                f"the {what} layout {layout} does not divide shape {shape} on mesh "
                f"{layout.mesh}; choose axes that divide each dim"
            )
    if on_one_mesh(source, target):
        machine = resolve_topology(topology, _mesh_of(source, target))
        schedule = plan_layouts(shape, dtype, old, new, machine, max_bytes)
        # jax.shard_map takes no sums still to be made, tiles as they are it does.
        is_partial = bool(old.partial or new.partial)
        devices = devices_of(source) if is_partial else None
        return Move(schedule, source, target, devices)
    mine, theirs = devices_of(source), devices_of(target)
    if mine is None or theirs is None:
        mine, theirs = _numbered(old.mesh), _numbered(new.mesh)
        if len(mine) != len(theirs):
            raise LayoutError(
                f"the array lies on mesh {old.mesh} of {len(mine)} devices, the "
                f"sharding asked for on {new.mesh} of {len(theirs)}; abstract meshes "
                "must be of the same devices"
            )
    devices = tuple(dict.fromkeys((*mine, *theirs)))
    number = {device: i for i, device in enumerate(devices)}
    new = dataclasses.replace(
        new, mesh=Mesh(new.mesh.axes, tuple(number[d] for d in theirs))
    )
    machine = resolve_topology(topology, _mesh_of(source, target))
    schedule = plan_layouts(shape, dtype, old, new, machine, max_bytes)
    return Move(schedule, source, target, devices)


def _numbered(mesh: Mesh) -> tuple[int, ...]:
    return tuple(range(mesh.num_devices))


def _mesh_of(source: Sharding, target: Sharding) -> Any:
    """The larger mesh of both ends, for the machine it is of."""
    meshes = [s.mesh for s in (source, target) if isinstance(s, NamedSharding)]
    return max(meshes, key=lambda mesh: mesh.size, default=None)


# Many arrays ----------------------------------------------------------------------


def _bytes(m: Move) -> int:
    s = m.schedule
    return tile_bytes(s.target.tile_shape(s.shape), s.dtype)


def _buckets(
    moves: Sequence[Move | None],
    topology: Topology | str | None,
    max_bytes: int | None,
) -> Iterator[list[int]]:
    """Which arrays to move together: small ones of one kind, others alone."""
    room = BUCKET_BYTES if max_bytes is None else max_bytes // 4
    alike: defaultdict[Hashable, list[int]] = defaultdict(list)
    for i, m in enumerate(moves):
        if m is None:
            continue
        machine = resolve_topology(topology, _mesh_of(m.source, m.target))
        is_small = m.schedule.num_collectives and _pays(m.schedule, machine)
        where = (m.devices, None if m.devices else m.source.mesh)
        alike[(kind_of(m.schedule), where) if is_small else i].append(i)
    for members in alike.values():
        bucket: list[int] = []
        held = 0
        for i in members:
            m = moves[i]
            size = _bytes(m) if m is not None else 0
            if bucket and held + size > room:
                yield bucket
                bucket, held = [], 0
            bucket.append(i)
            held += size
        yield bucket


def _pays(schedule: Schedule, machine: Topology) -> bool:
    """Whether a launch takes longer than the copies to and from the common tile."""
    tiles = (
        tile_bytes(layout.tile_shape(schedule.shape), schedule.dtype)
        for layout in (schedule.source, schedule.target)
    )
    return 4 * max(tiles) / machine.memory_bandwidth < launch_seconds(machine)


class _bar:  # noqa: N801 - used as a function
    """A progress bar over bytes, where one is wanted; advancing waits for arrays."""

    def __init__(self, total: int, wanted: bool | None) -> None:
        if wanted is None:
            wanted = total > LONG_BYTES and sys.stderr.isatty()
        self._bar = Progress(console=Console(stderr=True)) if wanted else None
        self._total = total

    def __enter__(self) -> Any:
        if self._bar is None:
            return lambda moved, size: None
        bar = self._bar
        bar.start()
        task = bar.add_task("redistribute", total=self._total)

        def advance(moved: Any, size: int) -> None:
            jax.block_until_ready(moved)
            bar.advance(task, size)

        return advance

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
