"""What a step costs on a machine in modelled seconds.

Formulas, with n members of a group and B the bytes of the whole (gathered) tile:

- an all-to-all copies its tile once for packing and once for joining chunks that are
  not contiguous, as XLA's transposes around it do.
- switched: all-gather and reduce-scatter B (n-1)/(n W); all-to-all B (n-1)/(n W) of
  the bytes a device holds; a group over several islands is bound by the slower of
  its links, B (d-1)/d over each level's bandwidth, where the islands' egress is
  shared by the groups that cross at the same time.
- torus: a ring moves at twice its one-way link bandwidth, a line at about half a
  ring; all-to-all B/(4 W) with W both ways; hops cost latency.

Source: scaling-book, chapters on sharding and GPUs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Fold,
    Mesh,
    Permute,
    ReduceScatter,
    Resize,
    Shuffle,
    Slice,
    Step,
    SubAxis,
    Unreduce,
    count_collectives,
    step_result_shape,
    tile_bytes,
    ways,
)
from shardwright.topology.groups import axes_of_groups
from shardwright.topology.machine import Switched, Topology, Torus
from shardwright.topology.scattered import (
    GroupRate,
    first_positions,
    groups_of,
    scattered_permute,
    scattered_rate,
    torus_load,
)

MAX_ROUTED = 1024
"""Up to so many devices, all routes of a permute on a torus are followed."""


def step_seconds(
    topology: Topology,
    mesh: Mesh,
    step: Step,
    tile_shape: tuple[int, ...],
    dtype: str,
) -> float:
    """Modelled seconds that a collective takes on the network; local steps take none.

    An exchange includes the copies of its pieces into the new tile. What a whole
    schedule takes, local copies included, is `schedule_seconds`.
    """
    tile = float(tile_bytes(tile_shape, dtype))
    match step:
        case Slice() | Shuffle() | Resize() | Unreduce() | Fold():
            return 0.0
        case Permute():
            return _permute_seconds(topology, mesh, step, tile)
        case Exchange():
            return _exchange_seconds(topology, mesh, step, dtype)
        case _:
            return _group_seconds(topology, mesh, step, tile)


def schedule_seconds(
    topology: Topology,
    mesh: Mesh,
    steps: Iterable[Step],
    tile_shape: tuple[int, ...],
    dtype: str,
) -> float:
    """Modelled seconds of steps in a row: collectives, and copies between them.

    All local work between two collectives is one fusion: it copies the tile once, or
    not at all where it is a reshape.
    """
    total, pending, tile = 0.0, False, tile_shape
    for step in steps:
        seconds, pending = next_seconds(topology, mesh, step, tile, dtype, pending)
        total += seconds
        tile = step_result_shape(step, tile)
    return total + (copy_seconds(topology, tile, dtype) if pending else 0.0)


def next_seconds(
    topology: Topology,
    mesh: Mesh,
    step: Step,
    tile: tuple[int, ...],
    dtype: str,
    pending: bool,
) -> tuple[float, bool]:
    """Seconds that one more step adds, and whether a copy is still to be paid.

    `pending` says so of the steps before. `tile` is the shape before the step.
    """
    match step:
        case Slice() | Resize() | Unreduce():
            return 0.0, True
        case Exchange() if count_collectives(step) == 0:
            return 0.0, True
        case Shuffle():
            return 0.0, pending or _is_copy(step)
        case Fold():  # reads all parts, writes one
            touched = tile_bytes(tile, dtype) + tile_bytes(tile[1:], dtype)
            return touched / topology.memory_bandwidth, False
        case _:
            seconds = step_seconds(topology, mesh, step, tile, dtype)
            if pending or _packs(step, tile):
                seconds += copy_seconds(topology, tile, dtype)
            return seconds, _joins(step, step_result_shape(step, tile))


def launch_seconds(topology: Topology) -> float:
    """What the smallest collective between neighbours takes."""
    network = topology.network
    is_torus = isinstance(network, Torus)
    return network.hop_seconds if is_torus else network.launch_seconds


def fastest_bandwidth(
    topology: Topology, mesh: Mesh, axes: tuple[SubAxis, ...]
) -> float:
    """Bytes/s that a device receives at best, over all links that lead to its group.

    On a torus those are both ways of each dim along which the group lies.
    """
    network = topology.network
    if isinstance(network, Switched):
        return network.device_bandwidth
    dims = len(network.shape)
    if mesh.device_ids is None:
        spans = _spans(network, _digits(mesh, axes))
        dims = max(1, sum(span.size > 1 for span in spans))
    return 2 * dims * network.link_bandwidth


def permute_bandwidth(topology: Topology) -> float:
    """Bytes/s that a device receives in a permute at best: by one route."""
    network = topology.network
    is_torus = isinstance(network, Torus)
    return network.link_bandwidth if is_torus else network.device_bandwidth


def op_seconds(
    topology: Topology, flops: float, bytes_touched: float, dtype: str
) -> float:
    """Seconds of an op on one device: the slower of arithmetic and memory."""
    compute = flops / topology.peak_flops(dtype)
    return max(compute, bytes_touched / topology.memory_bandwidth)


def _is_copy(step: Shuffle) -> bool:
    moved = [n for n, _ in zip(step.split, step.perm, strict=True) if n > 1]
    order = [p for p in step.perm if step.split[p] > 1]
    return len(moved) > 1 and order != sorted(order)


def copy_seconds(topology: Topology, tile: tuple[int, ...], dtype: str) -> float:
    """Seconds to read and write a tile once in a device's memory."""
    return 2 * tile_bytes(tile, dtype) / topology.memory_bandwidth


def _packs(step: Step, before: tuple[int, ...]) -> bool:
    """Whether chunks to send are not contiguous: those of the leading dim are."""
    return isinstance(step, AllToAll) and math.prod(before[: step.split_dim]) > 1


def _joins(step: Step, after: tuple[int, ...]) -> bool:
    """Whether received chunks do not lie one after the other in the new tile."""
    return isinstance(step, AllToAll) and math.prod(after[: step.concat_dim]) > 1


# Groups ---------------------------------------------------------------------


def _group_seconds(
    topology: Topology,
    mesh: Mesh,
    step: AllGather | AllToAll | AllReduce | ReduceScatter,
    tile: float,
) -> float:
    rate = _group_rate(topology, mesh, step.axes)
    if isinstance(step, AllToAll):
        return rate.latency + tile * rate.exchange
    whole = tile * ways(step.axes) if isinstance(step, AllGather) else tile
    if isinstance(step, AllReduce):  # a reduce-scatter and an all-gather
        is_launched = isinstance(topology.network, Switched)
        return rate.latency * (1 if is_launched else 2) + 2 * whole * rate.gather
    return rate.latency + whole * rate.gather


@lru_cache(maxsize=65536)
def _group_rate(topology: Topology, mesh: Mesh, axes: tuple[SubAxis, ...]) -> GroupRate:
    if mesh.device_ids is not None:
        groups = groups_of(mesh, axes)
        is_all = sorted(mesh.device_ids) == list(range(mesh.num_devices))
        found = axes_of_groups(groups, mesh.num_devices) if is_all else None
        if found is None:
            return scattered_rate(topology.network, groups)
        mesh, axes = found
    digits = _digits(mesh, axes)
    if isinstance(topology.network, Torus):
        return _torus_rate(topology.network, digits)
    inside = _members_inside(topology.network, digits)
    if inside is None:
        return scattered_rate(topology.network, groups_of(mesh, axes))
    return _switched_rate(topology.network, ways(axes), inside)


Digits = tuple[tuple[int, int], ...]
"""(size, stride) of a group's members, minor to major; neighbours are joined."""


def _digits(mesh: Mesh, axes: tuple[SubAxis, ...]) -> Digits:
    joined: list[tuple[int, int]] = []
    for stride, size in sorted((mesh.stride(axis), axis.size) for axis in axes):
        if joined and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = (joined[-1][0] * size, joined[-1][1])
        else:
            joined.append((size, stride))
    return tuple(joined)


def _switched_rate(network: Switched, n: int, inside: int) -> GroupRate:
    islands = n // inside
    groups = network.island // inside if islands > 1 else 0
    crossing = (islands - 1) / islands * groups / network.island_bandwidth
    in_island = (n - 1) / n / network.device_bandwidth
    return GroupRate(
        latency=network.launch_seconds,
        gather=max(in_island, crossing),
        exchange=max(in_island, inside * crossing),
    )


def _members_inside(network: Switched, digits: Digits) -> int | None:
    """Members of one group that share an island; None where islands have unlike many.

    A factor of the group lies within an island, or goes over islands evenly.
    """
    inside = 1
    for size, stride in digits:
        if network.island % (stride * size) == 0:
            inside *= size
        elif stride * size % network.island == 0 and network.island % stride == 0:
            inside *= network.island // stride
        elif stride % network.island:
            return None
    return inside


def _torus_rate(network: Torus, digits: Digits) -> GroupRate:
    n = math.prod(size for size, _ in digits)
    both_ways = 2 * network.link_bandwidth
    spans = [span for span in _spans(network, digits) if span.size > 1]
    width = sum(span.width / span.spacing for span in spans) or 1.0
    hops = sum(span.hops for span in spans)
    slowest = max((s.size * s.spacing / s.width for s in spans), default=0.0)
    return GroupRate(
        latency=network.hop_seconds * max(hops, 1),
        gather=(n - 1) / n / (both_ways * width),
        exchange=slowest / (4 * both_ways),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Span:
    """How a group lies along one dim of a torus.

    Members are `spacing` links apart; as many other groups lie between them and
    share the links. `width` is 1 for a closed ring, 1/2 for a line.
    """

    size: int
    spacing: int
    wrap: bool

    @property
    def width(self) -> float:
        return 1.0 if self.wrap else 0.5

    @property
    def hops(self) -> int:
        steps = self.size // 2 if self.wrap else self.size - 1
        return steps * self.spacing


def _spans(network: Torus, digits: Digits) -> list[_Span]:
    """The group's span in each dim, by the strides of its factors on the grid."""
    spans: list[_Span] = []
    minor = 1
    for length, wrap in zip(
        reversed(network.shape), reversed(network.wrap), strict=True
    ):
        size, spacing = 1, length
        for count, stride in digits:
            low = max(stride, minor)
            high = min(stride * count, minor * length)
            if high > low:
                size *= -(-high // low)
                spacing = min(spacing, max(1, low // minor))
        size = min(size, length)
        spacing = spacing if size > 1 else 1
        spans.append(_Span(size, spacing, wrap and size * spacing >= length))
        minor *= length
    return spans


# Permutes -------------------------------------------------------------------


def _permute_seconds(
    topology: Topology, mesh: Mesh, step: Permute, tile: float
) -> float:
    latency, per_byte = _permute_rate(topology, mesh, step.axes, step.pairs)
    return latency + tile * per_byte


def _exchange_seconds(
    topology: Topology, mesh: Mesh, step: Exchange, dtype: str
) -> float:
    """Each round a permute of its piece, and a copy of it into the new tile.

    Joined rounds are one all-to-all, packed before and unpacked after.
    """
    total, written = 0.0, 0.0
    if step.joined:
        room = ways(step.axes) * float(tile_bytes(step.joined[0].shape, dtype))
        rate = _group_rate(topology, mesh, step.axes)
        total += rate.latency + room * rate.exchange
        written += 2 * room
    for r in step.rounds:
        piece = float(tile_bytes(r.shape, dtype))
        latency, per_byte = _permute_rate(topology, mesh, step.axes, r.pairs)
        total += latency + piece * per_byte
        written += piece
    return total + 2 * written / topology.memory_bandwidth


@lru_cache(maxsize=65536)
def _permute_rate(
    topology: Topology,
    mesh: Mesh,
    axes: tuple[SubAxis, ...],
    pairs: tuple[tuple[int, int], ...],
) -> tuple[float, float]:
    """(latency, seconds a byte of the tile sent) of one permute."""
    moving = [(s, t) for s, t in pairs if s != t]
    if not moving:
        return 0.0, 0.0
    network = topology.network
    digits = _digits(mesh, axes)
    inside = isinstance(network, Switched) and _members_inside(network, digits)
    is_torus = isinstance(network, Torus) and mesh.num_devices <= MAX_ROUTED
    if mesh.device_ids is not None or inside is None or is_torus:
        return scattered_permute(network, groups_of(mesh, axes), moving)
    places = first_positions(mesh, axes)
    routes = [(places[s], places[t]) for s, t in moving]
    if isinstance(network, Torus):
        return _torus_routes(network, digits, routes)
    leaving: dict[int, int] = {}
    for source, target in routes:
        if source // network.island != target // network.island:
            island = source // network.island
            leaving[island] = leaving.get(island, 0) + 1
    groups = network.island // inside
    crossing = max(leaving.values(), default=0) * groups / network.island_bandwidth
    return network.launch_seconds, max(1 / network.device_bandwidth, crossing)


def _torus_routes(
    network: Torus, digits: Digits, routes: list[tuple[int, int]]
) -> tuple[float, float]:
    """Dimension-ordered shortest routes; the busiest link bounds the time."""
    longest, busiest = torus_load(network, np.array(routes))
    shared = max((s.spacing for s in _spans(network, digits)), default=1)
    return longest * network.hop_seconds, busiest * shared / network.link_bandwidth
