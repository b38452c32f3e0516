"""Candidates where source and target share no digits: by boxes, or by ordered axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis, ways
from shardwright.program.schedule import Axes, Exchange, Step
from shardwright.redistribution.exchange import direct_exchange
from shardwright.redistribution.ordered import cheapest_ordered, ordered_problem
from shardwright.redistribution.sequences import Prices

MAX_MEMBERS = 1024
"""Most devices of one group between which boxes are matched one by one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One change of layout and the prices to plan it by."""

    shape: tuple[int, ...]
    source: Layout
    target: Layout
    prices: Prices


def routes(request: Request) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Exchanges, and the cheapest sequence where every cut is even.

    The layouts have one view and the same partial axes.
    """
    ordered = ordered_problem(request.shape, request.source, request.target)
    if ordered is not None:
        steps = cheapest_ordered(ordered, request.prices)
        if steps is not None:
            yield "sequence", steps
    for step in _exchanges(request):
        yield "exchange", (step,)


def _exchanges(request: Request) -> Iterator[Exchange]:
    """Pieces as they come, and pieces cut to one size so that rounds are alike."""
    shape = request.source.view_shape(request.shape)
    source, target, axes = moving_part(shape, request.source, request.target)
    members = ways(axes)
    if members > MAX_MEMBERS:
        return
    sizes = tuple(
        -(-n // ways(old)) if old == new else n
        for n, old, new in zip(
            shape, request.source.dims, request.target.dims, strict=True
        )
    )
    old = [source.tile_box(sizes, p) for p in range(members)]
    new = [target.tile_box(sizes, p) for p in range(members)]
    tile = target.tile_shape(sizes)
    unit = tuple(
        math.gcd(*pair) for pair in zip(source.tile_shape(sizes), tile, strict=True)
    )
    whole = direct_exchange(axes, old, new, tile)
    if whole is not None:
        yield whole
    if any(n % u for n, u in zip(sizes, unit, strict=True)):
        return
    pieces = members * math.prod(t // u for t, u in zip(tile, unit, strict=True))
    if pieces <= MAX_MEMBERS:
        alike = direct_exchange(axes, old, new, tile, unit)
        if alike is not None and alike != whole:
            yield alike


def moving_part(
    shape: tuple[int, ...], source: Layout, target: Layout
) -> tuple[Layout, Layout, Axes]:
    """Both layouts on a mesh of the axes that move alone, agreed dims uncut."""
    names: set[str] = set()
    olds: list[tuple[SubAxis, ...]] = []
    news: list[tuple[SubAxis, ...]] = []
    for old, new in zip(source.dims, target.dims, strict=True):
        if old == new:
            old = new = ()
        names |= {axis.name for axis in (*old, *new)}
        olds.append(old)
        news.append(new)
    mesh = Mesh(tuple((name, n) for name, n in source.mesh.axes if name in names))
    return (
        Layout(mesh, tuple(olds)),
        Layout(mesh, tuple(news)),
        mesh.whole_axes(),
    )
