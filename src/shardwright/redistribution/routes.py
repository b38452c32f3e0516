"""Candidates where source and target share no digits: by boxes, or by ordered axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis, ways
from shardwright.program.schedule import Axes, Exchange, Step
from shardwright.redistribution.exchange_boxes import (
    MAX_JOINED,
    Ends,
    Worth,
    alike_exchanges,
    always,
    box_exchanges,
    boxes,
    corners,
    cut_exchange,
)
from shardwright.redistribution.ordered import (
    MAX_VISITED,
    cheapest_ordered,
    ordered_problem,
)
from shardwright.redistribution.project import split_axis
from shardwright.redistribution.sequences import Prices
from shardwright.topology import member_distances

MAX_MEMBERS = 1024
"""Most devices of one group between which boxes are matched one by one."""


MAX_FEW = 16
"""Most rounds of an exchange that competes with collectives on launches."""

MAX_LEG_VISITED = 500
"""Most states that a search looks at where the change is one of several."""

TIE = 1e-9
"""Seconds that differ by less than this share are equal."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One change of layout and the prices to plan it by.

    `is_leg` says that it is one of several on the way, for which less is tried.
    """

    shape: tuple[int, ...]
    source: Layout
    target: Layout
    prices: Prices
    is_leg: bool = False


def routes(request: Request) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Exchanges, and the cheapest sequence where every cut is even.

    The layouts have one view and the same partial axes.
    """
    tile = request.source.view_tile_shape(request.shape)
    below = math.inf
    for step in _exchanges(request):
        below = min(below, request.prices.path((step,), tile).seconds)
        yield "exchange", (step,)
    ordered = ordered_problem(request.shape, request.source, request.target)
    if ordered is not None:
        visited = MAX_LEG_VISITED if request.is_leg else MAX_VISITED
        steps = cheapest_ordered(ordered, request.prices, below * (1 + TIE), visited)
        if steps is not None:
            yield "sequence", steps


def few_launches(request: Request) -> Iterator[Exchange]:
    """Exchanges of few rounds, where a group is small enough to match boxes in."""
    found = _ends(request, MAX_JOINED)
    if found is not None:
        yield from box_exchanges(found[0], lambda rounds, _: rounds <= MAX_FEW)


def _exchanges(request: Request) -> Iterator[Exchange]:
    """Exchanges of the boxes of each group of the axes that move."""
    found = _ends(request, MAX_MEMBERS)
    if found is not None:
        yield from exchanges(*found)


def _ends(request: Request, max_members: int) -> tuple[Ends, tuple[int, ...]] | None:
    """What a group's members hold, and the shape of what the group holds."""
    shape = request.source.view_shape(request.shape)
    source, target, axes = moving_part(request.source, request.target)
    if ways(axes) > max_members:
        return None
    network = request.prices.topology.network
    moving = moving_dims(request.source, request.target)
    sizes = tuple(
        n if is_moving else -(-n // ways(axes))
        for n, axes, is_moving in zip(shape, request.source.dims, moving, strict=True)
    )
    ends = Ends(
        axes,
        boxes(source, sizes),
        boxes(target, sizes),
        corners(source, sizes),
        corners(target, sizes),
        source.tile_shape(sizes),
        target.tile_shape(sizes),
        member_distances(network, request.source.mesh, axes),
    )
    return ends, sizes


def exchanges(
    ends: Ends, sizes: tuple[int, ...], worth: Worth = always
) -> Iterator[Exchange]:
    """Exchanges of boxes as they come, in windows, and cut to one size."""
    yield from box_exchanges(ends, worth)
    tiles = ends.old_tile, ends.new_tile
    unit = tuple(math.gcd(*pair) for pair in zip(*tiles, strict=True))
    if any(n % u for n, u in zip(sizes, unit, strict=True)):
        yield from alike_exchanges(ends, worth)
        return
    units = math.prod(t // u for t, u in zip(tiles[1], unit, strict=True))
    if len(ends.old) * units <= MAX_MEMBERS:
        alike = cut_exchange(ends, unit, worth)
        if alike is not None:
            yield alike


def moving_dims(source: Layout, target: Layout) -> tuple[bool, ...]:
    """Of each dim whether it moves: it is cut anew, or by a part of an axis that does.

    The other dims are cut alike over axes of their own, which may be left out.
    """
    moving = [o != n for o, n in zip(source.dims, target.dims, strict=True)]
    names: set[str] = set()
    while True:
        for d, is_moving in enumerate(moving):
            if is_moving:
                names |= {a.name for a in (*source.dims[d], *target.dims[d])}
        found = [
            is_moving or any(axis.name in names for axis in source.dims[d])
            for d, is_moving in enumerate(moving)
        ]
        if found == moving:
            return tuple(moving)
        moving = found


def moving_part(source: Layout, target: Layout) -> tuple[Layout, Layout, Axes]:
    """Both layouts on a mesh of the axes that move alone, all other dims uncut.

    The axes, in the order of that mesh's, are parts of the layouts' own. Parts over
    which a value is partial are none of them, since devices along those differ.
    """
    moving = moving_dims(source, target)
    olds, news = (
        [
            axes if is_moving else ()
            for axes, is_moving in zip(layout.dims, moving, strict=True)
        ]
        for layout in (source, target)
    )
    names = {axis.name for axes in (*olds, *news) for axis in axes}
    partial = [axis for axis, _ in (*source.partial, *target.partial)]
    parts: list[SubAxis] = []
    for axis in source.mesh.whole_axes():
        ends = {end for p in partial if p.name == axis.name for end in (p.pre, p.end)}
        for part in split_axis(axis, sorted({axis.pre, axis.end, *ends})):
            if axis.name in names and not any(map(part.overlaps, partial)):
                parts.append(part)
    mesh = Mesh(tuple((str(part), part.size) for part in parts))

    def on_parts(axes: Axes) -> Axes:
        return tuple(
            SubAxis(str(part), axis.size, axis.pre // part.pre)
            for axis in axes
            for part in parts
            if axis.overlaps(part)
        )

    before, after = (Layout(mesh, tuple(map(on_parts, d))) for d in (olds, news))
    return before, after, tuple(parts)
