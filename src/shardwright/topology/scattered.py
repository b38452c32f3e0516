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
from collections.abc import Sequence

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
    positions = positions_by_group(mesh, axes)
    return (
        positions if mesh.device_ids is None else np.array(mesh.device_ids)[positions]
    )


def first_positions(mesh: Mesh, axes: tuple[SubAxis, ...]) -> list[int]:
    """Row-major positions of the members of the group that holds position 0."""
    places = [0]
    for axis in axes:
        stride = mesh.stride(axis)
        places = [p + k * stride for p in places for k in range(axis.size)]
    return places


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
    ring = np.stack([groups, np.roll(groups, -1, axis=1)], axis=-1)
    hops, load = torus_load(network, ring.reshape(-1, 2))
    pairs = np.array([(a, b) for a in range(n) for b in range(n) if a != b])
    _, everyone = torus_load(network, groups[:, pairs].reshape(-1, 2))
    both_ways = 2 * network.link_bandwidth
    return GroupRate(
        network.hop_seconds * max(1, hops * (n // 2)),
        (n - 1) / n * load / both_ways,
        everyone / n / network.link_bandwidth,
    )


def scattered_permute(
    network: Network, groups: Groups, pairs: Sequence[tuple[int, int]]
) -> tuple[float, float]:
    """(latency, seconds a byte of the tile sent) of one permute in all groups."""
    members = np.asarray(pairs)
    routes = groups[:, members].reshape(-1, 2)
    if isinstance(network, Torus):
        hops, load = torus_load(network, routes)
        return hops * network.hop_seconds, load / network.link_bandwidth
    islands = routes // network.island
    leaving = np.bincount(islands[islands[:, 0] != islands[:, 1], 0])
    crossing = float(leaving.max(initial=0)) / network.island_bandwidth
    return network.launch_seconds, max(1 / network.device_bandwidth, crossing)


def torus_load(network: Torus, routes: NDArray[np.int64]) -> tuple[int, int]:
    """(longest route in hops, most routes over one link), dimension by dimension.

    `routes` are (source, target) rows.
    """
    at, goal = routes[:, 0].copy(), routes[:, 1]
    hops = np.zeros_like(at)
    busiest, minor = 0, 1
    for dim in reversed(range(len(network.shape))):
        length = network.shape[dim]
        here, want = at // minor % length, goal // minor % length
        base = at - here * minor
        steps = (want - here) % length
        direction = np.ones_like(steps)
        if network.wrap[dim]:
            back = steps > length - steps
            steps = np.where(back, length - steps, steps)
        else:
            back = want < here
            steps = np.abs(want - here)
        direction[back] = -1
        links = [np.zeros(0, np.int64)]
        for k in range(int(steps.max(initial=0))):
            on = steps > k
            link = base + (here + k * direction) % length * minor
            links.append((2 * link + back)[on])
        load = np.bincount(np.concatenate(links))
        busiest = max(busiest, int(load.max(initial=0)))
        hops += steps
        at = base + want * minor
        minor *= length
    return int(hops.max(initial=0)), busiest


def member_distances(
    network: Network, mesh: Mesh, axes: tuple[SubAxis, ...]
) -> NDArray[np.int64]:
    """How far members of the first group are from each other, by [sender, receiver].

    Hops on a torus; else 0 to oneself, 1 within an island, and more to another.
    """
    row = np.array([mesh.device_id(p) for p in first_positions(mesh, axes)])
    one, other = row[:, None], row[None, :]
    if isinstance(network, Switched):
        across = one // network.island != other // network.island
        return (one != other) + 8 * across
    total = np.zeros((len(row), len(row)), np.int64)
    minor = 1
    for length, wrap in zip(network.shape[::-1], network.wrap[::-1], strict=True):
        apart = np.abs(one // minor % length - other // minor % length)
        total += np.minimum(apart, length - apart) if wrap else apart
        minor *= length
    return total
