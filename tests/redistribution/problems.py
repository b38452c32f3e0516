"""Random changes of layout: even and uneven, partial and strided."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from shardwright.program import Layout, Mesh, SubAxis, ways
from shardwright.topology import Switched, Topology

BYTES = Topology(
    "bytes",
    None,
    (("f32", 1e30),),
    1e30,
    1e12,
    Switched(1 << 20, 1e9, 1e9, 0.0),
    "nothing but received bytes takes time",
)

GRIDS = ((2, 2, 2), (2, 4), (8,), (2, 3), (1, 1), (2, 2, 3), (4, 2))

LARGER = ((4, 4), (2, 8), (4, 2, 2), (6, 4))
"""Of axes that can be split more than once, for plans on paper."""


@st.composite
def meshes(draw: st.DrawFn, grids: tuple[tuple[int, ...], ...] = GRIDS) -> Mesh:
    sizes = draw(st.sampled_from(grids))
    return Mesh(tuple(zip("abc", sizes, strict=False)))


@st.composite
def layouts(draw: st.DrawFn, mesh: Mesh, rank: int, reducer: str | None) -> Layout:
    """Each axis, or its halves, cuts a dim, is partial, or is not used."""
    axes: list[SubAxis] = []
    for axis in mesh.whole_axes():
        if axis.size > 2 and axis.size % 2 == 0 and draw(st.booleans()):
            axes += [SubAxis(axis.name, 2), SubAxis(axis.name, axis.size // 2, 2)]
        else:
            axes.append(axis)
    dims: list[list[SubAxis]] = [[] for _ in range(rank)]
    partial: list[tuple[SubAxis, str]] = []
    for axis in draw(st.permutations(axes)):
        place = draw(st.integers(-1 if reducer is None else -2, rank - 1))
        if place >= 0:
            dims[place].append(axis)
        elif place == -2 and reducer is not None:
            partial.append((axis, reducer))
    return Layout(mesh, tuple(map(tuple, dims)), tuple(partial))


Change = tuple[tuple[int, ...], Layout, Layout]


@st.composite
def even_changes(draw: st.DrawFn, reducer: str | None = None) -> Change:
    """A shape that all cuts divide; the source may be partial."""
    mesh = draw(meshes())
    rank = draw(st.integers(1, 4))
    source = draw(layouts(mesh, rank, reducer))
    target = draw(layouts(mesh, rank, None))
    shape = tuple(
        math.lcm(ways(a), ways(b)) * draw(st.integers(1, 2))
        for a, b in zip(source.dims, target.dims, strict=True)
    )
    return shape, source, target


@st.composite
def uneven_changes(
    draw: st.DrawFn,
    reducer: str | None = None,
    grids: tuple[tuple[int, ...], ...] = GRIDS,
) -> Change:
    """Shapes that the cuts need not divide, dims of one element among them."""
    mesh = draw(meshes(grids))
    rank = draw(st.integers(1, 3))
    source = draw(layouts(mesh, rank, reducer))
    target = draw(layouts(mesh, rank, None))
    shape = tuple(draw(st.sampled_from((1, 3, 5, 7, 8, 10))) for _ in range(rank))
    return shape, source, target
