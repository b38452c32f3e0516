"""What groups cost whose members lie anywhere: each link's or island's load, summed.

Where a mesh lists its devices in an order of its own, its axes say nothing of how far
apart they are, so the traffic of every group is laid on the network at once:

- islands: an island must be sent, for an all-gather, what each group that touches it
  lacks there, 1 - m/n of the whole for m of n members; for an all-to-all its members
  send m (1 - m/n) of a tile. Members spread evenly give the formulas of `cost`.
- torus: an all-gather goes round a ring in member order, an all-to-all sends each
  member its chunk; routes are dimension-ordered, the busiest link bounds the time.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shardwright.program import Mesh, SubAxis, positions_by_group
from shardwright.topology.machine import Network, Switched, Torus

Groups = NDArray[np.int64]
"""Devices by [group, member]."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRate:
    """Latency of one group's collective, and its seconds a byte.

    `gather` counts bytes of the whole tile, `exchange` bytes that a device holds.
    """

    latency: float
    gather: float
    exchange: float


def groups_of(mesh: Mesh, axes: tuple[SubAxis, ...]) -> Groups:
    """Devices, by their own numbers, of every group over the axes."""
    ids = np.array([mesh.device_id(p) for p in range(mesh.num_devices)])
    return ids[positions_by_group(mesh, axes)]


def scattered_rate(network: Network, groups: Groups) -> GroupRate:
    """Rates of the same collective in all groups at once."""
    n = groups.shape[1]
    if isinstance(network, Switched):
        member = np.arange(len(groups))[:, None] * (groups.max() + 1)
        held, counts = np.unique(member + groups // network.island, return_counts=True)
        island = held % (groups.max() + 1)
        lacks = 1 - counts / n
        gather = np.bincount(island, lacks)
        exchange = np.bincount(island, counts * lacks)
        inside = (n - 1) / n / network.device_bandwidth
        return GroupRate(
            network.launch_seconds,
            max(inside, float(gather.max()) / network.island_bandwidth),
            max(inside, float(exchange.max()) / network.island_bandwidth),
        )
    ring = [(int(a), int(b)) for row in groups for a, b in _neighbours(row)]
    hops, load = torus_load(network, ring)
    _, everyone = torus_load(network, [(a, b) for row in groups for a, b in _all(row)])
    both_ways = 2 * network.link_bandwidth
    return GroupRate(
        network.hop_seconds * max(1, hops * (n // 2)),
        (n - 1) / n * load / both_ways,
        everyone / n / network.link_bandwidth,
    )


def scattered_permute(
    network: Network, groups: Groups, pairs: Iterable[tuple[int, int]]
) -> tuple[float, float]:
    """(latency, seconds a byte of the tile sent) of one permute in all groups."""
    routes = [(int(row[s]), int(row[t])) for s, t in pairs for row in groups]
    if isinstance(network, Torus):
        hops, load = torus_load(network, routes)
        return hops * network.hop_seconds, load / network.link_bandwidth
    islands = ((s // network.island, t // network.island) for s, t in routes)
    leaving = Counter(s for s, t in islands if s != t)
    crossing = max(leaving.values(), default=0) / network.island_bandwidth
    return network.launch_seconds, max(1 / network.device_bandwidth, crossing)


def _neighbours(row: Sequence[int]) -> Iterable[tuple[int, int]]:
    return zip(row, np.roll(row, -1), strict=True)


def _all(row: Sequence[int]) -> Iterable[tuple[int, int]]:
    return ((int(a), int(b)) for a in row for b in row if a != b)


def torus_load(network: Torus, routes: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """(longest route in hops, most routes over one link), dimension by dimension."""
    load: dict[tuple[int, int, int], int] = {}
    longest = 0
    for source, target in routes:
        hops = 0
        at = source
        minor = 1
        for dim in reversed(range(len(network.shape))):
            length = network.shape[dim]
            want = target // minor % length
            direction, steps = _shortest(
                at // minor % length, want, length, network.wrap[dim]
            )
            for _ in range(steps):
                key = (dim, direction, at)
                load[key] = load.get(key, 0) + 1
                here = at // minor % length
                at += ((here + direction) % length - here) * minor
            hops += steps
            minor *= length
        longest = max(longest, hops)
    return longest, max(load.values(), default=0)


def _shortest(start: int, stop: int, length: int, wrap: bool) -> tuple[int, int]:
    """(direction, steps) of the shortest way along one dim of a torus."""
    forward = (stop - start) % length
    if not wrap:
        return (1, stop - start) if stop >= start else (-1, start - stop)
    return (1, forward) if forward <= length - forward else (-1, length - forward)
