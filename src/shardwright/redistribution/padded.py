"""Cuts that do not divide, taken through steps that must: pad, move, cut off.

A dim of n elements cut a ways lies in tiles of t = ceil(n / a) elements, which is how
the even dim of a t elements lies. Where source and target agree on that even size, or
one of them does not cut the dim at all, the change of layout is an even one of the
padded tensor: the whole dim is padded before, or cut off after. Dims that both cut
into tiles that do not fit together are first gathered, or gathered last.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from shardwright.program.layout import Layout
from shardwright.program.mesh import ways
from shardwright.program.schedule import Resize, Step, Unreduce
from shardwright.redistribution.routes import Request

MAX_BETWEEN = 32
"""Most layouts between that are tried."""


@dataclasses.dataclass(frozen=True, slots=True)
class Padded:
    """An even request, and the local steps before and after it."""

    request: Request
    before: tuple[Step, ...]
    after: tuple[Step, ...]


def padded(request: Request) -> Padded | None:
    """The same change of a tensor that all cuts divide, or None where none fits."""
    source, target = request.source, request.target
    if source.view is not None or target.view is not None:
        return None
    sizes: list[int] = []
    for n, old, new in zip(request.shape, source.dims, target.dims, strict=True):
        size = _even_size(n, ways(old), ways(new))
        if size is None:
            return None
        sizes.append(size)
    shape = tuple(sizes)
    if shape == request.shape:
        return None
    return Padded(
        dataclasses.replace(request, shape=shape),
        _resize(source.tile_shape(request.shape), source.tile_shape(shape)),
        _resize(target.tile_shape(shape), target.tile_shape(request.shape)),
    )


def with_lone_tiles(request: Request) -> tuple[tuple[Step, ...], Request] | None:
    """Dims of one element that the source cuts, as parts of which one alone counts.

    One device of each group holds the element, the others padding: masked to zero bits,
    that is a partial value, which is reduced to any layout as others are.
    """
    source, target = request.source, request.target
    is_complex = request.prices.dtype.startswith("complex")
    if source.view is not None or target.view is not None or is_complex:
        return None
    dims = tuple(
        () if n == 1 and old != new else old
        for n, old, new in zip(request.shape, source.dims, target.dims, strict=True)
    )
    lone = tuple(
        axis
        for old, kept in zip(source.dims, dims, strict=True)
        if old != kept
        for axis in old
    )
    if not lone or source.partial or target.partial:
        return None
    if any(axis.overlaps(other) for axis in lone for axes in dims for other in axes):
        return None
    partial = tuple((axis, "only") for axis in lone)
    masked = Layout(source.mesh, dims, partial)
    return (Unreduce(lone, "only"),), dataclasses.replace(request, source=masked)


def _even_size(n: int, old: int, new: int) -> int | None:
    olds, news = (-(-n // cuts) * cuts for cuts in (old, new))
    if old == 1 or olds == news:
        return news
    return olds if new == 1 else None


def _resize(tile: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Step, ...]:
    return () if tile == shape else (Resize(shape),)


def meeting_points(request: Request) -> Iterator[Layout]:
    """Layouts between that take some dims from the source and some from the target.

    So the dims that fit together move by collectives, and the others on their own.
    """
    source, target = request.source, request.target
    found: list[Layout] = []
    options = [
        tuple(dict.fromkeys((old, new, ())))
        for old, new in zip(source.dims, target.dims, strict=True)
    ]
    for dims in itertools.islice(itertools.product(*options), MAX_BETWEEN):
        used = [axis for axes in dims for axis in axes]
        used += [axis for axis, _ in source.partial]
        if any(a.overlaps(b) for a, b in itertools.combinations(used, 2)):
            continue
        found.append(dataclasses.replace(source, dims=dims))
    yield from (x for x in found if x.dims not in (source.dims, target.dims))
