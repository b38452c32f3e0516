"""Cuts that do not divide: neighbours first even out their tiles, then all is even.

Say a dim of n elements is cut k ways before and m ways after, in tiles of T = ceil(n/m)
elements in the end. The dim is padded to a size S that both k and m divide:

- m a multiple of k: S = m T, each device begins with m / k of the last tiles;
- k a multiple of m: each last tile is padded to k / m pieces of ceil(T m / k);
- else S is n rounded up to a multiple of both.

The source's tiles begin elsewhere by a few elements, so each device is sent those by
its neighbours; the change of layout is then an even one of the padded tensor, and what
is too much is cut off in the end. XLA's partitioner evens tiles out in the same way.
Or all in reverse: source tiles are padded, and the last ones evened out.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from shardwright.program.layout import Box, Layout
from shardwright.program.mesh import ways
from shardwright.program.schedule import Exchange, Offsets, Resize, Step
from shardwright.redistribution.exchange_boxes import (
    MAX_JOINED,
    Ends,
    box_exchanges,
)
from shardwright.redistribution.padded import Padded
from shardwright.redistribution.routes import Request
from shardwright.topology import member_distances

MAX_CHOSEN = 2
"""Up to so many uneven dims, each is evened out before as well as after."""

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Tiling:
    """A dim in tiles of one length: where each begins, where what it holds ends."""

    length: int
    starts: tuple[int, ...]
    stops: tuple[int, ...]


def retiled(request: Request) -> Iterator[Padded]:
    """The change as an even one, between steps that even the tiles out.

    Each uneven dim is evened out before or after. None where nothing is uneven, or a
    dim is cut over too many devices.
    """
    source, target, shape = request.source, request.target, request.shape
    if source.view is not None or target.view is not None:
        return
    uneven = [
        d
        for d, (n, *cuts) in enumerate(
            zip(shape, source.dims, target.dims, strict=True)
        )
        if cuts[0] != cuts[1] and any(n % ways(axes) for axes in cuts)
    ]
    ends = [ways(x.dims[d]) for d in uneven for x in (source, target)]
    if not uneven or max(ends) > MAX_JOINED:
        return
    choices = itertools.product((False, True), repeat=len(uneven))
    if len(uneven) > MAX_CHOSEN:
        choices = ((is_after,) * len(uneven) for is_after in (False, True))
    done: set[tuple[Shape, tuple[Step, ...]]] = set()
    for choice in choices:
        found = _retiled(request, dict(zip(uneven, choice, strict=True)))
        if (found.request.shape, found.before) not in done:
            done.add((found.request.shape, found.before))
            yield found


def _retiled(request: Request, is_after: dict[int, bool]) -> Padded:
    source, target, shape = request.source, request.target, request.shape
    sizes: list[int] = []
    before: list[tuple[int, _Tiling, _Tiling]] = []
    after: list[tuple[int, _Tiling, _Tiling]] = []
    for d, n in enumerate(shape):
        k, m = ways(source.dims[d]), ways(target.dims[d])
        if d not in is_after:
            sizes.append(-(-n // k) * k)
            continue
        if is_after[d]:
            size, last, first = _even(n, m, k)
        else:
            size, first, last = _even(n, k, m)
        sizes.append(size)
        before.append((d, _plain(n, k), first))
        after.append((d, last, _plain(n, m)))
    even = tuple(sizes)
    begin = _steps(request, source, before, source.tile_shape(shape))
    end = _steps(request, target, after, target.tile_shape(even))
    return Padded(dataclasses.replace(request, shape=even), begin, end)


def _plain(n: int, cuts: int) -> _Tiling:
    tile = -(-n // cuts)
    starts = tuple(tile * i for i in range(cuts))
    return _Tiling(tile, starts, tuple(min(n, s + tile) for s in starts))


def _even(n: int, k: int, m: int) -> tuple[int, _Tiling, _Tiling]:
    """The padded size, the tiles to begin it with and those that it ends with."""
    last = -(-n // m)
    if m % k == 0:
        length = last * (m // k)
        starts = tuple(length * i for i in range(k))
        stops = tuple(min(n, s + length) for s in starts)
        return last * m, _Tiling(length, starts, stops), _plain(n, m)
    if k % m == 0:
        pieces = k // m
        length = -(-last // pieces)
        starts = tuple(last * (i // pieces) + length * (i % pieces) for i in range(k))
        stops = tuple(
            min(n, last * (i // pieces + 1), s + length) for i, s in enumerate(starts)
        )
        ends = _plain(n, m)
        padded = dataclasses.replace(ends, length=length * pieces)
        return length * k, _Tiling(length, starts, stops), padded
    size = math.lcm(k, m) * -(-n // math.lcm(k, m))
    return size, _of_size(size // k, n, k), _of_size(size // m, n, m)


def _of_size(length: int, n: int, cuts: int) -> _Tiling:
    starts = tuple(length * i for i in range(cuts))
    return _Tiling(length, starts, tuple(min(n, s + length) for s in starts))


def _steps(
    request: Request,
    layout: Layout,
    changes: Sequence[tuple[int, _Tiling, _Tiling]],
    tile: Shape,
) -> tuple[Step, ...]:
    """One dim after the other: a local step where nothing has to move."""
    steps: list[Step] = []
    for d, old, new in changes:
        after = (*tile[:d], new.length, *tile[d + 1 :])
        if old.starts == new.starts:
            if tile != after:
                steps.append(Resize(after))
        else:
            steps.append(_exchange(request, layout, d, (old, new), tile))
        tile = after
    return tuple(steps)


def _exchange(
    request: Request,
    layout: Layout,
    d: int,
    tilings: tuple[_Tiling, _Tiling],
    tile: Shape,
) -> Exchange:
    """The cheapest of the exchanges that send what neighbours lack in one dim."""
    axes = layout.dims[d]
    old, new = tilings
    network = request.prices.topology.network
    ends = Ends(
        axes,
        _boxes(old, d, tile),
        _boxes(new, d, tile),
        _corners(old, d, tile),
        _corners(new, d, tile),
        tile,
        (*tile[:d], new.length, *tile[d + 1 :]),
        member_distances(network, layout.mesh, axes),
    )
    return min(box_exchanges(ends), key=lambda step: request.prices.path((step,), tile))


def _boxes(tiling: _Tiling, d: int, tile: Shape) -> tuple[Box, ...]:
    return tuple(
        tuple(
            (min(start, stop), stop) if i == d else (0, n) for i, n in enumerate(tile)
        )
        for start, stop in zip(tiling.starts, tiling.stops, strict=True)
    )


def _corners(tiling: _Tiling, d: int, tile: Shape) -> tuple[Offsets, ...]:
    return tuple(
        tuple(start if i == d else 0 for i in range(len(tile)))
        for start in tiling.starts
    )
