"""Parts sent straight to whoever reduces them, as one more dim of the tensor.

A value partial over p devices is p parts of it. Laid along a dim of their own, cut over
the axes that are owed, they may go to any layout by any schedule; who holds all parts
of an element folds them:

    [b, - | sum a] of n x m   is   [a, b, -] of p x n x m,   to   [-, -, b a],   fold

Every device that folds a share of 1 / k of the elements receives p - 1 parts of its own
share, or p where it begins with none; the target then gathers what others folded. With
k the number of all devices that take part that is the bound: a *relay* cuts the target
further by the axes that it leaves unused, the owed ones among them. So no sum is made
twice, nor by some while others stand idle.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from shardwright.program.layout import Layout
from shardwright.program.mesh import SubAxis, ways
from shardwright.program.schedule import Fold, Shuffle
from shardwright.redistribution.ordered import primes, room_elements
from shardwright.redistribution.padded import Padded
from shardwright.redistribution.project import cut_points, is_chain, split_axis
from shardwright.redistribution.routes import Request

MAX_RELAYS = 12
"""Most relays that are tried."""

MAX_FACTORS = 4
"""Up to so many unused axes, their prime factors cut dims of their own."""


def relays(request: Request) -> list[Layout]:
    """The target cut further over all axes that it does not use; itself if it can't.

    None where either end has a view, does not divide, or is newly partial.
    """
    source, target, shape = request.source, request.target, request.shape
    if source.view is not None or target.view is not None:
        return []
    if not source.is_even(shape) or not target.is_even(shape):
        return []
    if set(target.partial) - set(source.partial):
        return []
    unused = _unused(target, source)
    tile = target.tile_shape(shape)
    for count in range(len(unused), -1, -1):
        some = itertools.chain.from_iterable(
            _cut_further(target, tile, atoms)
            for atoms in itertools.combinations(unused, count)
        )
        found = list(itertools.islice(some, MAX_RELAYS))
        if found:
            return found
    return []


def folded(request: Request, relay: Layout) -> Padded | None:
    """The parts' way to the relay, and the fold there; None for unlike reducers."""
    source, shape = request.source, request.shape
    owed = [(a, r) for a, r in source.partial if (a, r) not in relay.partial]
    reducers = {reducer for _, reducer in owed}
    if len(reducers) != 1 or "only" in reducers:
        return None
    axes = tuple(axis for axis, _ in owed)
    tile = source.tile_shape(shape)
    parts = ways(axes)
    tiles = (x.tile_shape(shape) for x in (source, request.target))
    limit = room_elements(request.prices.dtype, *tiles)
    if parts * math.prod(relay.tile_shape(shape)) > limit:
        return None
    before = Layout(source.mesh, (axes, *source.dims), relay.partial)
    after = Layout(source.mesh, ((), *relay.dims), relay.partial)
    side_by_side = dataclasses.replace(
        request, shape=(parts, *shape), source=before, target=after, is_leg=True
    )
    begun = Shuffle(tile, tuple(range(len(tile))), (1, *tile))
    return Padded(side_by_side, (begun,), (Fold(reducers.pop()),))


def _unused(layout: Layout, other: Layout) -> list[SubAxis]:
    """Parts of axes that the layout does not use, as both cut them."""
    cuts = {name: sorted(c) for name, c in cut_points((layout, other)).items()}
    found: list[SubAxis] = []
    for axis in layout.mesh.whole_axes():
        ends = cuts.get(axis.name, [1, axis.size])
        parts = split_axis(axis, ends) if is_chain(ends) else primes(axis)
        free = (p for p in parts if p.size > 1)
        found += [p for p in free if not any(p.overlaps(a) for a in layout.used_axes)]
    factors = [prime for axis in found for prime in primes(axis)]
    return factors if len(factors) <= MAX_FACTORS else found


def _cut_further(
    layout: Layout, tile: Sequence[int], atoms: Sequence[SubAxis]
) -> Iterator[Layout]:
    """The layout with every atom cutting some dim that it divides."""
    for places in itertools.product(range(len(tile)), repeat=len(atoms)):
        dims = list(layout.dims)
        for d, atom in zip(places, atoms, strict=True):
            dims[d] = (*dims[d], atom)
        added = (
            math.prod(a.size for p, a in zip(places, atoms, strict=True) if p == d)
            for d in range(len(tile))
        )
        if not any(n % w for n, w in zip(tile, added, strict=True)):
            yield dataclasses.replace(layout, dims=tuple(dims))
