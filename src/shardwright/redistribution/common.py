"""One mesh for layouts that were given on two, where their axes fit together.

Devices are the positions of the source's mesh. Along each axis of the target's mesh
the device number is a sum of digits, each of a size and a stride, if its device order
is the source's with axes transposed; all strides together, sorted, are the boundaries
of axes that serve both layouts.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis

Span = tuple[int, int]
"""(stride, stride x size) of a factor of the device number."""


def on_common_mesh(source: Layout, target: Layout) -> tuple[Layout, Layout] | None:
    """Both layouts on one mesh over the same devices, or None where none serves.

    The target's device ids number the source's positions.
    """
    old, new = _spans(source), _spans(target)
    if old is None or new is None:
        return None
    count = source.mesh.num_devices
    cuts = {1, count}
    for spans in (*old.values(), *new.values()):
        cuts |= {bound for span in spans for bound in span}
    bounds = sorted(cuts)
    if any(b % a for a, b in itertools.pairwise(bounds)):
        return None
    pairs = list(itertools.pairwise(bounds))[::-1]
    mesh = Mesh(tuple((f"d{low}", high // low) for low, high in pairs))
    return _renamed(source, mesh, old), _renamed(target, mesh, new)


def _spans(layout: Layout) -> dict[SubAxis, list[Span]] | None:
    """Each axis in use as factors of the device number, major to minor."""
    mesh = layout.mesh
    if mesh.device_ids is None:
        return {
            axis: [(mesh.stride(axis), mesh.stride(axis) * axis.size)]
            for axis in layout.used_axes
        }
    ids = np.array(mesh.device_ids)
    cuts: dict[str, set[int]] = {name: {1, size} for name, size in mesh.axes}
    for axis in layout.used_axes:
        cuts[axis.name] |= {axis.pre, axis.end}
    pieces = [
        SubAxis(name, high // low, low)
        for name, bounds in cuts.items()
        for low, high in itertools.pairwise(sorted(bounds))
    ]
    grid = ids.reshape([piece.size for piece in pieces])
    total = np.full(grid.shape, grid.ravel()[0])
    found: dict[SubAxis, list[Span]] = {}
    for d, piece in enumerate(pieces):
        index = [0] * grid.ndim
        line = np.array(
            [grid[(*index[:d], k, *index[d + 1 :])] for k in range(piece.size)]
        )
        digits = _digits((line - line[0]).tolist())
        if digits is None:
            return None
        found[piece] = digits
        shape = [-1 if i == d else 1 for i in range(grid.ndim)]
        total += (line - line[0]).reshape(shape)
    if grid.ravel()[0] != 0 or (total != grid).any():
        return None
    return {axis: found[axis] for axis in layout.used_axes}


def _digits(line: list[int]) -> list[Span] | None:
    """Factors, major to minor, whose sums in row-major order are this line."""
    spans: list[Span] = []
    while len(line) > 1:
        stride = line[1]
        run = next((k for k, v in enumerate(line) if v != k * stride), len(line))
        while len(line) % run:
            run -= 1
        if run < 2 or stride < 1:
            return None
        if any(
            line[s + k] != line[s] + k * stride
            for s in range(0, len(line), run)
            for k in range(run)
        ):
            return None
        spans.append((stride, stride * run))
        line = line[::run]
    return spans[::-1]


def _renamed(layout: Layout, mesh: Mesh, spans: dict[SubAxis, list[Span]]) -> Layout:
    """The layout with its axes named as the common mesh does."""

    def axes(axis: SubAxis) -> tuple[SubAxis, ...]:
        return tuple(
            new
            for low, high in spans[axis]
            for new in mesh.whole_axes()
            if low <= mesh.stride(new) < high
        )

    dims = tuple(tuple(n for a in dim for n in axes(a)) for dim in layout.dims)
    partial = tuple((n, r) for a, r in layout.partial for n in axes(a))
    return dataclasses.replace(layout, mesh=mesh, dims=dims, partial=partial)
