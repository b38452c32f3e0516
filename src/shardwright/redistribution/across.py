"""From a layout on one mesh to a layout on another, of the same devices or of others.

Where the axes of both fit together, the change is planned on a mesh of both. Else the
tiles have to change devices somewhere, and are compared device by device: an exchange
of boxes, alone or with a *relay*, a layout on one of the meshes that is reached or
left by that mesh's own collectives:

    source -> relay on the target's mesh, an exchange; relay -> target, collectives
    source -> relay on the source's mesh, collectives; relay -> target, an exchange

A relay with tiles of the other end's shape makes the exchange one permute. A relay
that cuts what the target replicates sends each piece once, and gathers it there.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial

from shardwright.errors import PlanError
from shardwright.program.layout import Box, Layout
from shardwright.program.mesh import Mesh, ways
from shardwright.program.schedule import Alternative, Permute, Schedule, Step
from shardwright.program.types import dtype_bits
from shardwright.redistribution.choose import (
    chosen,
    has_levels,
    leg_steps,
    plan_schedule,
    without_elements,
)
from shardwright.redistribution.common import on_common_mesh
from shardwright.redistribution.exchange_boxes import Ends, Worth, boxes, corners
from shardwright.redistribution.joined import joined
from shardwright.redistribution.matching import matches
from shardwright.redistribution.ordered import room_elements
from shardwright.redistribution.ranking import family_of, priced, ranked_by_price
from shardwright.redistribution.relays import alike, cut_further
from shardwright.redistribution.routes import MAX_MEMBERS, Request, exchanges
from shardwright.redistribution.sequences import Prices
from shardwright.redistribution.slabs import within
from shardwright.topology import (
    Network,
    Topology,
    fastest_bandwidth,
    launch_seconds,
    member_distances,
    permute_bandwidth,
)

MAX_RELAYS = 8
"""Most relays of one kind that are priced, those most like the end."""

MAX_DEVICES = 256
"""Most devices for which layouts are put on joined meshes, which list them all."""

DEVICES = "device"
"""The one axis of a mesh of all devices, where neither end's mesh has them all."""


def plan_redistribution(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
    max_bytes: int | None = None,
) -> Schedule:
    """The cheapest schedule between layouts, on one mesh or on two.

    Device ids of both meshes number the same devices, and may be any: the ends may
    lie on other devices altogether. Layouts whose axes fit together are planned on a
    mesh of both; the schedule's layouts are then on that one. `max_bytes` limits what
    a device holds beside the two tiles.
    """
    if source.mesh != target.mesh and _devices(source.mesh) == _devices(target.mesh):
        source, target = on_common_mesh(source, target) or (source, target)
    plan = _plan_on_one if source.mesh == target.mesh else _plan_across
    schedule = plan(shape, dtype, source, target, topology)
    if max_bytes is None:
        return schedule
    return within(
        schedule,
        max_bytes,
        lambda small: plan(small, dtype, source, target, topology),
        topology,
    )


def _devices(mesh: Mesh) -> set[int]:
    return {mesh.device_id(p) for p in range(mesh.num_devices)}


@lru_cache(maxsize=1 << 14)
def _plan_on_one(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
) -> Schedule:
    """By the mesh's own axes, or by joined ones where links differ."""
    schedule = plan_schedule(shape, dtype, source, target, topology)
    may_gain = has_levels(topology, source.mesh) and schedule.num_collectives > 0
    if not may_gain or not _can_join(shape, schedule):
        return schedule
    more = _ways(shape, dtype, joined(source), joined(target), topology)
    found = _cheapest(shape, dtype, source, target, topology, more, schedule.seconds)
    return found or schedule


def _can_join(shape: tuple[int, ...], change: Schedule | Change) -> bool:
    """Whether all tiles are alike, none is partial, and devices are few."""
    ends = change.source, change.target
    return (
        all(x.view is None and not x.partial and x.is_even(shape) for x in ends)
        and ends[0].mesh.num_devices == ends[1].mesh.num_devices <= MAX_DEVICES
        and math.prod(shape) > 0
    )


@lru_cache(maxsize=1 << 14)
def _plan_across(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
) -> Schedule:
    old, new = _devices(source.mesh), _devices(target.mesh)
    count = len(old | new)
    if target.partial or source.view or target.view:
        raise PlanError(
            f"cannot move {source} to {target} on another mesh: reduce it first"
        )
    if source.partial and not old <= new and not new <= old:
        raise PlanError(
            f"cannot move {source} to other devices: reduce it on its own first"
        )
    if count > MAX_MEMBERS:
        raise PlanError(
            f"{count} devices are too many for a move between meshes whose axes do "
            f"not fit together (at most {MAX_MEMBERS}); go by a layout that both have"
        )
    if math.prod(shape) == 0:
        local = without_elements(*(x.tile_shape(shape) for x in (source, target)))
        every = _all_devices(source, target)
        request = Request(shape, source, target, Prices(topology, every, dtype))
        return chosen(request, [priced(request, "local", local)], 0, steps_mesh=every)
    every_way = _ways(shape, dtype, source, target, topology)
    if old == new and _can_join(shape, Change(source, target)):
        more = _ways(shape, dtype, joined(source), joined(target), topology)
        every_way = itertools.chain(every_way, more)
    found = _cheapest(shape, dtype, source, target, topology, every_way, math.inf)
    if found is None:
        raise PlanError(
            f"a move of shape {shape} from {source} to {target} takes too many pieces"
        )
    return found


def _cheapest(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
    found_ways: Iterator[_Way],
    below: float,
) -> Schedule | None:
    """The cheapest of those that take fewer than `below` seconds, or None."""
    found: list[tuple[Alternative, Mesh]] = []
    launch = launch_seconds(topology)
    per_element = dtype_bits(dtype) / 8 / permute_bandwidth(topology)
    for way in found_ways:
        if way.least >= below:
            continue
        prices = Prices(topology, way.mesh, dtype)
        request = Request(shape, source, target, prices)

        def worth(rounds: int, elements: int, left: float = below - way.rest) -> bool:
            return rounds * launch + elements * per_element < left

        for step in way.moves(worth):
            if prices.step_seconds(step, way.tile) + way.rest >= below:
                continue
            steps = (*way.before(), step, *way.after())
            candidate = priced(request, family_of(steps), steps)
            if candidate.seconds < below or math.isinf(below):
                found.append((candidate, way.mesh))
                below = min(below, candidate.seconds)
    if not found:
        return None
    ranked = ranked_by_price(candidate for candidate, _ in found)
    best = next(mesh for candidate, mesh in found if candidate is ranked[0])
    alike = [c for c in ranked if any(c is o and m == best for o, m in found)]
    request = Request(shape, source, target, Prices(topology, best, dtype))
    bound = -(-_bound(shape, source, target) * dtype_bits(dtype) // 8)
    return chosen(request, alike, bound, steps_mesh=best)


@lru_cache(maxsize=1 << 12)
def _bound(shape: tuple[int, ...], source: Layout, target: Layout) -> int:
    """Elements that the device which misses most must receive."""
    held = _boxes(source, shape)
    nothing = tuple((0, 0) for _ in shape)
    wanted = _boxes(target, shape)
    if source.partial:  # no device holds a finished element
        held = {}
    return max(_missing(held.get(d, nothing), box) for d, box in wanted.items())


@lru_cache(maxsize=1 << 10)
def _boxes(layout: Layout, shape: tuple[int, ...]) -> dict[int, Box]:
    """What each logical device holds."""
    mesh = layout.mesh
    return {mesh.device_id(p): box for p, box in enumerate(boxes(layout, shape))}


def _missing(old: Box, new: Box) -> int:
    """Elements of the new box that the old one lacks."""
    wanted = math.prod(b - a for a, b in new)
    common = math.prod(
        max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in zip(old, new, strict=True)
    )
    return wanted - common


# Candidates ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Where a tensor lies, and where it is to lie."""

    source: Layout
    target: Layout


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """A step over all devices of a mesh, one of `moves`, and a leg before or after it.

    `tile` is the step's own. The leg takes `rest` seconds or more, all `least` or more.
    """

    mesh: Mesh
    moves: Callable[[Worth], Iterator[Step]]
    tile: tuple[int, ...]
    least: float
    rest: float
    before: Callable[[], tuple[Step, ...]] = tuple
    after: Callable[[], tuple[Step, ...]] = tuple


def _ways(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
) -> Iterator[_Way]:
    old, new = _devices(source.mesh), _devices(target.mesh)
    network = topology.network
    tiles = [x.tile_shape(shape) for x in (source, target)]
    limit = room_elements(dtype, *tiles)

    every = Mesh(((DEVICES, source.mesh.num_devices),))
    is_all = old == new == set(range(every.num_devices))
    on = every if is_all else source.mesh
    fastest = fastest_bandwidth(topology, on, on.whole_axes())

    @cache
    def leg(one: Layout, other: Layout) -> tuple[Step, ...]:
        prices = Prices(topology, one.mesh, dtype)
        return leg_steps(Request(shape, one, other, prices, is_leg=True))

    def least(one: Layout, other: Layout) -> float:
        missing = _bound(shape, one, other) * dtype_bits(dtype) / 8
        seconds = max(launch_seconds(topology), missing / fastest)
        return seconds if missing else 0.0

    def way(mesh: Mesh, one: Layout, other: Layout) -> _Way:
        moves = partial(_moves, mesh, shape, one, other, network)
        rest = least(source, one) + least(other, target)
        return _Way(
            mesh,
            moves,
            one.tile_shape(shape),
            rest + least(one, other),
            rest,
            partial(leg, source, one) if one != source else tuple,
            partial(leg, other, target) if other != target else tuple,
        )

    if old <= new and not source.partial:
        for relay in [target, *_relays(shape, target, source, limit)]:
            yield way(target.mesh, source, relay)
    if new <= old:
        whole = source.without_partial()
        for relay in [whole, *_relays(shape, source, target, limit)]:
            yield way(source.mesh, relay, target)
    if not old <= new and not new <= old:
        yield way(_all_devices(source, target), source, target)


def _all_devices(source: Layout, target: Layout) -> Mesh:
    """One axis of every device of either mesh."""
    ids = sorted(_devices(source.mesh) | _devices(target.mesh))
    return Mesh(((DEVICES, len(ids)),), tuple(ids))


def _relays(
    shape: tuple[int, ...], end: Layout, other: Layout, limit: int
) -> list[Layout]:
    """Layouts on `end`'s mesh with tiles as `other` has, or cut further."""
    found = list(_coarser(end.without_partial()))
    found += cut_further(shape, end.without_partial())
    theirs = [ways(axes) for axes in other.dims]
    finer = [math.lcm(a, ways(b)) for a, b in zip(theirs, end.dims, strict=True)]
    found += alike(end.mesh, theirs, end, MAX_RELAYS)
    if not any(n % w for n, w in zip(shape, finer, strict=True)):
        found += alike(end.mesh, finer, end, MAX_RELAYS)
    return [x for x in dict.fromkeys(found) if math.prod(x.tile_shape(shape)) <= limit]


def _coarser(layout: Layout) -> Iterator[Layout]:
    """The layout with some of its dims whole, all of them first."""
    cut = [d for d, axes in enumerate(layout.dims) if axes]
    for count in range(len(cut), 0, -1):
        for whole in itertools.combinations(cut, count):
            dims = (() if d in whole else a for d, a in enumerate(layout.dims))
            yield dataclasses.replace(layout, dims=tuple(dims))


def _moves(
    mesh: Mesh,
    shape: tuple[int, ...],
    source: Layout,
    target: Layout,
    network: Network,
    worth: Worth,
) -> Iterator[Step]:
    """One step between layouts on two meshes, over all devices of `mesh`."""
    axes = mesh.whole_axes()
    devices = [mesh.device_id(p) for p in range(mesh.num_devices)]
    nothing = tuple((0, 0) for _ in shape)
    held, wanted = (_boxes(layout, shape) for layout in (source, target))
    old = tuple(held.get(d, nothing) for d in devices)
    new = tuple(wanted.get(d, nothing) for d in devices)
    tiles = source.tile_shape(shape), target.tile_shape(shape)
    first, last = (_corners(layout, shape, devices) for layout in (source, target))
    distances = member_distances(network, mesh, axes)
    ends = Ends(axes, old, new, first, last, *tiles, distances)
    if tiles[0] == tiles[1] and len(held) == len(wanted) == len(devices):
        for pairs in matches(ends.old_corners, ends.new_corners, distances, devices):
            yield Permute(axes, pairs)
    yield from exchanges(ends, shape, worth)


def _corners(
    layout: Layout, shape: tuple[int, ...], devices: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    mesh = layout.mesh
    found = {mesh.device_id(p): at for p, at in enumerate(corners(layout, shape))}
    return tuple(found.get(d, (0,) * len(shape)) for d in devices)
