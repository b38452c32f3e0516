"""How a tensor lies on the mesh: which sub-axes cut which dim, what is partial."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence

from shardwright.errors import LayoutError
from shardwright.program.mesh import Mesh, SubAxis, merge_neighbours, ways

Box = tuple[tuple[int, int], ...]
"""Half-open range [start, stop) of global indices in each dim."""

Piece = tuple[int, tuple[SubAxis, ...]]
"""A factor of a dim: its size, and the axes that cut it, major to minor."""

REDUCERS = ("sum", "prod", "max", "min", "and", "or", "only")
"""What a partial value is reduced by. With "only" one device of each group holds the
value, and the others zero bits."""

_SUB_AXIS = re.compile(r"(?P<name>[^\s:]+):\((?P<pre>\d+)\)(?P<size>\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """One tensor's place on a mesh.

    `dims[d]` are the sub-axes that cut dim d, major to minor; axes that appear
    nowhere replicate. `partial` are the sub-axes over which the true value is
    still to be reduced, all with one reducer. A dim that n ways do not divide
    is padded to tiles of ceil(size / n).

    `view` is for strided layouts, such as that of a reshape (4, 4) -> (16) with
    both dims cut: it is the shape the tensor is seen as, each dim a run of
    factors, and `dims` then speaks of the view's dims. Most layouts have none.
    """

    mesh: Mesh
    dims: tuple[tuple[SubAxis, ...], ...]
    partial: tuple[tuple[SubAxis, str], ...] = ()
    view: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        dims = tuple(merge_neighbours(axes) for axes in self.dims)
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "partial", _merge_partial(self.partial))
        if self.view is not None and len(self.view) != len(dims):
            raise LayoutError(
                f"view {self.view} has {len(self.view)} dims, layout {len(dims)}"
            )
        self._check_axes()

    def _check_axes(self) -> None:
        if len({reducer for _, reducer in self.partial}) > 1:
            raise LayoutError(
                f"layout {self} is partial with several reducers, which do not "
                "commute; reduce one of them first"
            )
        used = [axis for axes in self.dims for axis in axes]
        used += [axis for axis, _ in self.partial]
        for axis in used:
            if self.mesh.size(axis.name) % axis.end:
                raise LayoutError(
                    f"sub-axis {axis} does not divide axis {axis.name!r} of size "
                    f"{self.mesh.size(axis.name)}"
                )
        for i, axis in enumerate(used):
            for other in used[i + 1 :]:
                if axis.overlaps(other):
                    raise LayoutError(
                        f"axis {axis.name!r} is used twice in layout {self}; an axis "
                        "can cut one dim, or be partial, not both"
                    )

    @classmethod
    def replicated(cls, mesh: Mesh, rank: int) -> Layout:
        """Every device holds the whole tensor."""
        return cls(mesh, ((),) * rank)

    @classmethod
    def parse(cls, mesh: Mesh, text: str) -> Layout:
        """Read `a b, c` (one entry a dim, `-` or nothing for an uncut dim).

        Sub-axes are written `x:(1)2`. Partial axes follow a bar, as in `a | sum b c`
        and `a | sum b | max c`.

        >>> mesh = Mesh((("a", 2), ("b", 4)))
        >>> str(Layout.parse(mesh, "a b:(1)2, -"))
        '[a b:(1)2, -]'
        """
        body, _, tail = text.strip().strip("[]").partition("|")
        entries = body.split(",") if body.strip() else []
        dims = tuple(_parse_axes(mesh, entry) for entry in entries)
        partial: list[tuple[SubAxis, str]] = []
        for clause in filter(None, (c.strip() for c in re.split("[|,]", tail))):
            reducer, _, axes = clause.partition(" ")
            if reducer not in REDUCERS:
                raise LayoutError(
                    f"unknown reducer {reducer!r} in {text!r}; "
                    f"use one of {', '.join(REDUCERS)}"
                )
            partial += [(axis, reducer) for axis in _parse_axes(mesh, axes)]
        return cls(mesh, dims, tuple(partial))

    @classmethod
    def from_pieces(
        cls,
        mesh: Mesh,
        dims: Iterable[Sequence[Piece]],
        partial: tuple[tuple[SubAxis, str], ...] = (),
    ) -> Layout:
        """A layout from the factors of each dim, strided only where it must be.

        Neighbouring factors are joined where the result is one contiguous cut:
        the more major one fully cut, or the more minor one not cut at all.
        """
        pieces = [_join_pieces(dim) for dim in dims]
        cuts = tuple(axes for dim in pieces for _, axes in dim)
        view = tuple(size for dim in pieces for size, _ in dim)
        strided = any(len(dim) > 1 for dim in pieces)
        return cls(mesh, cuts, partial, view if strided else None)

    # Questions ------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of dims the layout speaks of (those of the view, if any)."""
        return len(self.dims)

    @property
    def used_axes(self) -> tuple[SubAxis, ...]:
        """Sub-axes that cut a dim or are partial."""
        cuts = tuple(axis for axes in self.dims for axis in axes)
        return cuts + tuple(axis for axis, _ in self.partial)

    @property
    def is_replicated(self) -> bool:
        return not self.used_axes

    def view_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that `dims` speaks of, for a tensor of this shape."""
        return tuple(shape) if self.view is None else self.view

    def pieces(self, shape: Sequence[int]) -> list[tuple[Piece, ...]]:
        """For each dim of the tensor its factors and their axes."""
        if self.view is None:
            self.check_rank(shape)
            return [((n, axes),) for n, axes in zip(shape, self.dims, strict=True)]
        result: list[tuple[Piece, ...]] = []
        factors = iter(zip(self.view, self.dims, strict=True))
        for n in shape:
            dim: list[Piece] = []
            while math.prod(size for size, _ in dim) < n or not dim:
                dim.append(next(factors))
            result.append(tuple(dim))
        return result

    def check_rank(self, shape: Sequence[int]) -> None:
        """Raise a LayoutError unless the layout fits tensors of this rank."""
        if self.view is None and len(shape) != self.rank:
            raise LayoutError(
                f"layout {self} has {self.rank} dims but the tensor has shape "
                f"{tuple(shape)}"
            )

    def tile_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the tile each device holds, padding included."""
        return tuple(
            math.prod(-(-size // ways(axes)) for size, axes in dim)
            for dim in self.pieces(shape)
        )

    def view_tile_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the tile as the view sees it."""
        return tuple(
            -(-size // ways(axes))
            for size, axes in zip(self.view_shape(shape), self.dims, strict=True)
        )

    def is_even(self, shape: Sequence[int]) -> bool:
        """Whether every cut divides its dim, so that no tile is padded."""
        sizes = self.view_shape(shape)
        self.check_rank(shape)
        return all(n % ways(a) == 0 for n, a in zip(sizes, self.dims, strict=True))

    def tile_box(self, shape: Sequence[int], position: int) -> Box:
        """Global indices, in the view's dims, held at a mesh position.

        A box in the padding is empty: start equals stop.
        """
        box: list[tuple[int, int]] = []
        for n, axes in zip(self.view_shape(shape), self.dims, strict=True):
            size = -(-n // ways(axes))
            start = min(n, self.mesh.index(position, axes) * size)
            box.append((start, min(n, start + size)))
        return tuple(box)

    def without_partial(self) -> Layout:
        """The same cuts with every partial axis reduced and replicated."""
        return Layout(self.mesh, self.dims, (), self.view)

    def __str__(self) -> str:
        axis_str = self.mesh.axis_str
        dims = [" ".join(map(axis_str, axes)) or "-" for axes in self.dims]
        text = ", ".join(dims)
        if self.view is not None:
            text += f" as {'x'.join(map(str, self.view))}"
        for axis, reducer in self.partial:
            text += f" | {reducer} {axis_str(axis)}"
        return f"[{text}]"


def _merge_partial(
    partial: tuple[tuple[SubAxis, str], ...],
) -> tuple[tuple[SubAxis, str], ...]:
    """Canonical order, neighbouring factors of one axis joined."""
    result: list[tuple[SubAxis, str]] = []
    for reducer in dict.fromkeys(reducer for _, reducer in partial):
        axes = [axis for axis, r in partial if r == reducer]
        axes.sort(key=lambda axis: (axis.name, axis.pre))
        result += [(axis, reducer) for axis in merge_neighbours(axes)]
    return tuple(result)


def _join_pieces(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    joined: list[Piece] = []
    for size, axes in pieces:
        if joined:
            major, major_axes = joined[-1]
            if ways(major_axes) == major or not axes:
                joined[-1] = (major * size, major_axes + tuple(axes))
                continue
        joined.append((size, tuple(axes)))
    return tuple(joined) or ((1, ()),)


def _parse_axes(mesh: Mesh, text: str) -> tuple[SubAxis, ...]:
    axes: list[SubAxis] = []
    for word in text.split():
        if word == "-":
            continue
        sub = _SUB_AXIS.fullmatch(word)
        if sub:
            mesh.size(sub["name"])
            axes.append(SubAxis(sub["name"], int(sub["size"]), int(sub["pre"])))
        else:
            axes.append(mesh.axis(word))
    return tuple(axes)
