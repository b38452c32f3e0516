"""Plan a change of layout: all candidates, priced, the cheapest chosen."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from shardwright.errors import PlanError
from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis, ways
from shardwright.program.schedule import (
    AllReduce,
    Alternative,
    ReduceScatter,
    Schedule,
    Shuffle,
    Step,
    Unreduce,
)
from shardwright.program.types import dtype_bits
from shardwright.redistribution.bound import lower_bound
from shardwright.redistribution.dealt import dealt
from shardwright.redistribution.folded import folded, relays
from shardwright.redistribution.ordered import (
    cheapest_ordered,
    ordered_problem,
    room_elements,
)
from shardwright.redistribution.padded import meeting_points, padded, with_lone_tiles
from shardwright.redistribution.project import project
from shardwright.redistribution.ranking import (
    family_of,
    priced,
    ranked_by_price,
    room_bytes,
)
from shardwright.redistribution.relays import permute_first, sliced
from shardwright.redistribution.retiled import retiled
from shardwright.redistribution.routes import Request, few_launches, routes
from shardwright.redistribution.sequences import (
    COLLECTIVES,
    Prices,
    by_digits,
    cheapest_path,
)
from shardwright.redistribution.shares import cheapest_shares, least_load, work_of
from shardwright.topology import Switched, Topology

MAX_DETOUR_ATOMS = 6
"""Most moving axes among which detours over faster links are looked for."""

MAX_DETOURS = 500
"""Most states that the search for a detour looks at."""

MAX_ORDERED = 3
"""Most axes that a sum is scattered over in every order."""

MAX_EVENED = 3
"""Most relays that are tried before uneven tiles are evened out."""

MAX_RELAYS = 12
"""Most relays of one kind that are tried."""


def plan_schedule(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
) -> Schedule:
    """The cheapest schedule from `source` to `target`, with what else was considered.

    Steps begin on the tile as the source's view sees it and end on the tile as the
    target's view sees it. Chosen by modelled seconds; ties by bytes received, then
    number of collectives, then peak bytes. Bytes are per device. A change that
    cannot be planned is a PlanError.
    """
    return _plan(tuple(shape), dtype, source, target, topology)


@lru_cache(maxsize=1 << 16)
def _plan(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
) -> Schedule:
    if source.mesh != target.mesh:
        raise PlanError(
            f"cannot move {source} on mesh {source.mesh} to {target} on mesh "
            f"{target.mesh}: both layouts must be on one mesh"
        )
    request = Request(shape, source, target, Prices(topology, source.mesh, dtype))
    bound = lower_bound(shape, dtype, source, target)
    ranked = _ranked(request)
    if source.partial and min(c.bytes_received for c in ranked) > bound:
        found, bound = _dealt_out(request, bound)
        ranked = ranked_by_price([*ranked, *found])
    return chosen(request, ranked, bound)


def _dealt_out(request: Request, bound: int) -> tuple[list[Alternative], int]:
    """A schedule that deals the reduction out, if any, and the bound with its proof."""
    shape, source, target = request.shape, request.source, request.target
    work = work_of(shape, source, target)
    shares = work and cheapest_shares(work)
    if work is None or shares is None:
        return [], bound
    dtype = request.prices.dtype
    elements = math.ceil(least_load(work, shares) * work.unit - 1e-6)
    tiles = (x.tile_shape(shape) for x in (source, target))
    steps = dealt(work, shares, room_elements(dtype, *tiles))
    found = [] if steps is None else [priced(request, family_of(steps), steps)]
    return found, max(bound, -(-elements * dtype_bits(dtype) // 8))


def chosen(
    request: Request,
    ranked: Sequence[Alternative],
    bound: int,
    steps_mesh: Mesh | None = None,
) -> Schedule:
    """The first of the ranked candidates as a schedule, the others behind it."""
    best = ranked[0]
    return Schedule(
        request.shape,
        request.prices.dtype,
        request.source,
        request.target,
        best.family,
        best.steps,
        best.bytes_received,
        bound,
        best.peak_bytes,
        best.seconds,
        tuple(ranked[1:]),
        steps_mesh,
        room_bytes(
            best.steps,
            request.source.view_tile_shape(request.shape),
            request.prices.dtype,
        ),
    )


def _ranked(request: Request) -> list[Alternative]:
    """All candidates, cheapest first; none at all is a PlanError."""
    found: dict[tuple[Step, ...], Alternative] = {}
    for family, steps in _candidates(request):
        if steps not in found:
            found[steps] = priced(request, family, steps)
    if found and not request.is_leg:
        below = min(candidate.seconds for candidate in found.values())
        for steps in _detours(request, below) if below > 0.0 else ():
            found[steps] = priced(request, family_of(steps), steps)
    if not found:
        raise PlanError(
            f"no schedule takes a tensor of shape {request.shape} from "
            f"{request.source} to {request.target} on mesh {request.source.mesh}: "
            "the cuts do not nest and too many devices take part; choose cuts that "
            "divide the dims"
        )
    return ranked_by_price(found.values())


def _detours(request: Request, below: float) -> Iterator[tuple[Step, ...]]:
    """Sequences over faster links, and by way of a permute."""
    ordered = ordered_problem(
        request.shape,
        request.source,
        request.target,
        split_primes=False,
        max_atoms=MAX_DETOUR_ATOMS,
    )
    steps = ordered and cheapest_ordered(ordered, request.prices, below, MAX_DETOURS)
    if steps is not None:
        yield steps
    source, target = request.source, request.target
    is_even = source.is_even(request.shape) and target.is_even(request.shape)
    if not is_even or source.view is not None or target.view is not None:
        return
    tile = source.view_tile_shape(request.shape)
    rest: dict[Layout, tuple[Step, ...] | None] = {}
    for begun, relay in permute_first(request, MAX_RELAYS):
        if request.prices.path(begun, tile).seconds >= below:
            continue
        if relay not in rest:
            problem = project(request.shape, relay, target)
            rest[relay] = problem and cheapest_path(
                problem, request.prices, COLLECTIVES
            )
        steps = rest[relay]
        if steps is not None:
            yield begun + steps


def _candidates(request: Request) -> Iterator[tuple[str, tuple[Step, ...]]]:
    shape, source, target = request.shape, request.source, request.target
    if math.prod(shape) == 0:
        tiles = (x.view_tile_shape(shape) for x in (source, target))
        yield "local", without_elements(*tiles)
        return
    problem = project(shape, source, target)
    if problem is None:
        yield from _without_digits(request)
        yield from _padded(request)
        return
    for steps in by_digits(problem, request.prices):
        yield family_of(steps), steps
    if problem.owed:
        yield from _reduced_first(request)
        yield from ((family_of(steps), steps) for steps in _by_relays(request))
    elif (
        source.view == target.view
        and source.partial == target.partial
        and not request.is_leg
    ):
        for step in few_launches(request):
            yield "exchange", (step,)
        for steps in _by_gathering_dims(request):
            yield family_of(steps), steps


def _by_gathering_dims(request: Request) -> Iterator[tuple[Step, ...]]:
    """Gather what the target does not begin with, then cut: few launches, more room."""
    source, target, shape = request.source, request.target, request.shape
    fronts = tuple(
        tuple(o for o, n in itertools.takewhile(_is_same, zip(old, new, strict=False)))
        for old, new in zip(source.dims, target.dims, strict=True)
    )
    whole = ((),) * source.rank
    tiles = (x.view_tile_shape(shape) for x in (source, target))
    limit = room_elements(request.prices.dtype, *tiles)
    for dims in dict.fromkeys((fronts, whole)):
        between = dataclasses.replace(source, dims=dims)
        if math.prod(between.view_tile_shape(shape)) > limit:
            continue
        steps: tuple[Step, ...] = ()
        for one, other in ((source, between), (between, target)):
            problem = project(shape, one, other)
            leg = problem and cheapest_path(problem, request.prices, COLLECTIVES)
            if leg is None:
                break
            steps += leg
        else:
            yield steps


def _is_same(pair: tuple[SubAxis, SubAxis]) -> bool:
    return pair[0] == pair[1]


def _padded(request: Request) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Where cuts do not divide: an even change between two local steps."""
    lone = with_lone_tiles(request)
    if lone is not None:
        masks, partial = lone
        for _, steps in _candidates(partial):
            yield family_of(steps), (*masks, *steps)
    found = padded(request)
    if found is not None:
        for _, steps in _candidates(found.request):
            steps = (*found.before, *steps, *found.after)
            yield family_of(steps), steps
    yield from ((family_of(steps), steps) for steps in _evened_out(request))
    if request.is_leg:
        return
    source, target, shape = request.source, request.target, request.shape
    tiles = (x.tile_shape(shape) for x in (source, target))
    limit = room_elements(request.prices.dtype, *tiles)
    for between in meeting_points(request):
        if math.prod(between.tile_shape(shape)) <= limit:
            leg = dataclasses.replace(request, is_leg=True)
            steps = _leg(leg, source, between) + _leg(leg, between, target)
            yield family_of(steps), steps


def _evened_out(request: Request) -> Iterator[tuple[Step, ...]]:
    """Neighbours even tiles out, then all is even; a permute or slices may go first."""
    is_uneven = False
    for even in retiled(request):
        is_uneven = True
        yield (*even.before, *_ranked(even.request)[0].steps, *even.after)
    if request.is_leg or not is_uneven:
        return
    source, target, shape = request.source, request.target, request.shape
    leg = dataclasses.replace(request, is_leg=True)
    wanted = [
        ways(new) if ways(new) % ways(old) == 0 else ways(old)
        for old, new in zip(source.dims, target.dims, strict=True)
    ]
    for begun in sliced(source, target, wanted):
        if begun not in (source, target):
            yield _leg(leg, source, begun) + _leg(leg, begun, target)
    tiles = source.tile_shape(shape)
    padded_shape = tuple(n * ways(a) for n, a in zip(tiles, source.dims, strict=True))
    of_tiles = dataclasses.replace(request, shape=padded_shape)
    for begun, relay in permute_first(of_tiles, MAX_EVENED):
        if relay.tile_shape(shape) == tiles:
            yield begun + _leg(leg, relay, target)


def _without_digits(request: Request) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Where cuts do not nest: reduce first, meet views half way, then move."""
    source, target = request.source, request.target
    owed = tuple(p for p in source.partial if p not in target.partial)
    if owed:
        yield from _reduced_first(request)
        yield from ((family_of(steps), steps) for steps in _by_relays(request))
        return
    if source.partial != target.partial:
        new = tuple(p for p in target.partial if p not in source.partial)
        steps = _leg(
            request, source, dataclasses.replace(target, partial=source.partial)
        )
        steps += tuple(Unreduce((axis,), r) for axis, r in new)
    elif source.view != target.view:
        steps = _by_gathering(request)
    else:
        yield from routes(request)
        if not request.is_leg and source.is_even(request.shape):
            for steps in _by_gathering_dims(request):
                yield family_of(steps), steps
        return
    yield family_of(steps), steps


def _reduced_first(request: Request) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Reduce, whole or scattered along any dim that allows it, then move."""
    source, target = request.source, request.target
    owed = tuple(p for p in source.partial if p not in target.partial)
    axes, reducer = tuple(axis for axis, _ in owed), owed[0][1]
    kept = tuple(p for p in source.partial if p not in owed)
    whole = dataclasses.replace(source, partial=kept)
    ways_to: list[tuple[Step, Layout]] = [(AllReduce(axes, reducer), whole)]
    tile = source.view_tile_shape(request.shape)
    orders = itertools.permutations(axes) if len(axes) <= MAX_ORDERED else (axes,)
    places = [d for d, n in enumerate(tile) if n % ways(axes) == 0]
    if source.is_even(request.shape):
        for d, order in itertools.product(places, orders):
            cut = (*source.dims[:d], source.dims[d] + order, *source.dims[d + 1 :])
            scattered = Layout(source.mesh, cut, kept, source.view)
            ways_to.append((ReduceScatter(d, order, reducer), scattered))
    for step, reduced in ways_to:
        steps = (step, *_leg(request, reduced, target))
        yield family_of(steps), steps


def _by_relays(request: Request) -> Iterator[tuple[Step, ...]]:
    """All devices reduce a share each, on the way or by folding parts."""
    if request.is_leg:
        return
    source, target = request.source, request.target
    leg = dataclasses.replace(request, is_leg=True)
    for relay in relays(request):
        last = _leg(leg, relay, target)
        if relay != target:
            yield _leg(leg, source, relay) + last
        parts = folded(request, relay)
        if parts is not None:
            steps = leg_steps(parts.request)
            yield (*parts.before, *steps, *parts.after, *last)


def _by_gathering(request: Request) -> tuple[Step, ...]:
    """From one view to another by way of the whole tensor."""
    source, target = request.source, request.target
    old, new = (
        dataclasses.replace(layout, dims=((),) * layout.rank)
        for layout in (source, target)
    )
    shape = new.view_shape(request.shape)
    seen = Shuffle(shape, tuple(range(len(shape))), shape)
    return (*_leg(request, source, old), seen, *_leg(request, new, target))


def _leg(request: Request, source: Layout, target: Layout) -> tuple[Step, ...]:
    """Steps of one leg of the way."""
    return leg_steps(dataclasses.replace(request, source=source, target=target))


@lru_cache(maxsize=1 << 14)
def leg_steps(request: Request) -> tuple[Step, ...]:
    """The cheapest steps for a change that is one of several on the way."""
    return _ranked(request)[0].steps


def has_levels(topology: Topology, mesh: Mesh) -> bool:
    """Whether some links are slower than others, so that a detour may be faster."""
    network = topology.network
    return not isinstance(network, Switched) or mesh.num_devices > network.island


def without_elements(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[Step, ...]:
    """From an empty tile to another: there is nothing to move."""
    return () if old == new else (Shuffle(old, tuple(range(len(old))), new),)
