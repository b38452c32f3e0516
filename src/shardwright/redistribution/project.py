"""Reduce a change of layout to what moves: digits of the tensor, atoms of the mesh.

A cut of a dim is a cut of its index into *digits*, as in mixed radix: `a b` on a
dim of 32 with a=2, b=4 reads its index as digits of 2, 4 and 4 values, and device
(a, b) holds the indices whose first digits are (a, b). Source and target are cut
until both speak of the same digits, and the mesh axes are cut along into *atoms*,
so that a layout says no more than which digit lies on which atom:

    [a b, c] -> [a, b c]        digit   2   2  n/4 | 2   2  n/4
                                source  a   b   -  | c   -   -
                                target  a   -   -  | b   c   -

A digit that lies on the same atom in both is projected away, and so is every atom
that neither uses: what is left does not depend on the number of devices. Strided
layouts (views) are digits like any other.

Not every change can be written so: cuts into 2 and into 3 of one dim share no
digits, nor do x:(1)2 and x:(1)3 of one axis; `project` then returns None, as it
does where a cut that changes does not divide its dim.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from shardwright.program.layout import Layout, Piece
from shardwright.program.mesh import Mesh, SubAxis, ways

FREE = -1
"""In place of an atom: the digit is not cut."""


@dataclasses.dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a dim: its values, its atom in source and target, or FREE.

    `home` and `target_home` are the dims of the source's and the target's view
    that the digit belongs to.
    """

    size: int
    source: int
    target: int
    home: int
    target_home: int


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """What is left of a change of layout after projection.

    `digits` are in row-major order. `owed` are the atoms to reduce on the way and
    `unreduced` those that the target is partial over and the source is not.
    """

    mesh: Mesh
    atoms: tuple[SubAxis, ...]
    digits: tuple[Digit, ...]
    owed: tuple[tuple[int, str], ...]
    unreduced: tuple[tuple[int, str], ...]
    source_rank: int
    target_rank: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(digit.size for digit in self.digits)

    def axes(self, atoms: Iterable[int]) -> tuple[SubAxis, ...]:
        """The sub-axes of these atoms, as the mesh names them."""
        return tuple(self.atoms[a] for a in atoms)


def moving_pieces(
    shape: Sequence[int], source: Layout, target: Layout
) -> tuple[list[tuple[Piece, ...]], list[tuple[Piece, ...]]]:
    """Pieces of each dim in source and target; an agreed dim is its tile, uncut."""
    olds, news = source.pieces(shape), target.pieces(shape)
    for d, (old, new) in enumerate(zip(olds, news, strict=True)):
        if old == new:
            olds[d] = news[d] = tuple((-(-n // ways(axes)), ()) for n, axes in old)
    return olds, news


def is_even(pieces: Iterable[Iterable[Piece]]) -> bool:
    """Whether every cut divides its piece."""
    return all(n % ways(axes) == 0 for dim in pieces for n, axes in dim)


def project(shape: Sequence[int], source: Layout, target: Layout) -> Problem | None:
    """The digits and atoms that move, or None where there are no common ones."""
    olds, news = moving_pieces(shape, source, target)
    if not (is_even(olds) and is_even(news)):
        return None
    refinement = _refine(source, target, olds, news)
    if refinement is None:
        return None
    axis_cuts, dim_cuts = refinement
    old_atoms = dict(_assign(axis_cuts, olds))
    new_atoms = dict(_assign(axis_cuts, news))
    rows: list[tuple[int, SubAxis | None, SubAxis | None, int, int]] = []
    old_homes, new_homes = _homes(olds), _homes(news)
    for d, cuts in enumerate(dim_cuts):
        for start, stop in itertools.pairwise(cuts):
            old, new = old_atoms.get((d, start)), new_atoms.get((d, start))
            if old is not None and old == new:
                continue
            homes = (old_homes(d, start), new_homes(d, start))
            if rows and old is new is None and rows[-1][1:] == (None, None, *homes):
                rows[-1] = (rows[-1][0] * (stop // start), None, None, *homes)
            else:
                rows.append((stop // start, old, new, *homes))
    owed = _atoms_of(axis_cuts, source, target)
    unreduced = _atoms_of(axis_cuts, target, source)
    used = {atom for row in rows for atom in row[1:3] if atom is not None}
    used |= {atom for atom, _ in owed + unreduced}
    names = source.mesh.names
    atoms = tuple(sorted(used, key=lambda a: (names.index(a.name), a.pre)))
    number: dict[SubAxis | None, int] = {atom: i for i, atom in enumerate(atoms)}
    number[None] = FREE
    return Problem(
        source.mesh,
        atoms,
        tuple(
            Digit(n, number[old], number[new], *homes) for n, old, new, *homes in rows
        ),
        tuple((number[atom], reducer) for atom, reducer in owed),
        tuple((number[atom], reducer) for atom, reducer in unreduced),
        source.rank,
        target.rank,
    )


AxisCuts = dict[str, list[int]]


def cut_points(layouts: Iterable[Layout]) -> dict[str, set[int]]:
    """For each axis the ways at which some layout cuts it, with 1 and its size."""
    cuts: dict[str, set[int]] = {}
    for layout in layouts:
        for axis in layout.used_axes:
            ends = cuts.setdefault(axis.name, {1, layout.mesh.size(axis.name)})
            ends |= {axis.pre, axis.end}
    return cuts


def is_chain(cuts: Sequence[int]) -> bool:
    """Whether each of the ascending cut points divides the next."""
    return all(b % a == 0 for a, b in itertools.pairwise(cuts))


def split_axis(axis: SubAxis, cuts: Sequence[int]) -> Iterator[SubAxis]:
    """The factors of a sub-axis between an axis's cut points."""
    inner = [c for c in cuts if axis.pre <= c <= axis.end]
    for start, stop in itertools.pairwise(inner):
        yield SubAxis(axis.name, stop // start, start)


def _refine(
    source: Layout,
    target: Layout,
    olds: list[tuple[Piece, ...]],
    news: list[tuple[Piece, ...]],
) -> tuple[AxisCuts, list[list[int]]] | None:
    """Cut points of axes and dims, closed under each other; None if no chain."""
    axis_cuts = cut_points((source, target))
    dim_cuts: list[set[int]] = [{1} for _ in olds]
    ties: list[tuple[SubAxis, int, int]] = []
    for pieces in (olds, news):
        for d, dim in enumerate(pieces):
            start = 1
            for n, axes in dim:
                for axis in axes:
                    ties.append((axis, d, start))
                    start *= axis.size
                    dim_cuts[d].add(start)
                start *= n // ways(axes)
                dim_cuts[d].add(start)
    changed = True
    while changed:
        changed = False
        for axis, d, start in ties:
            on_axis = {c for c in axis_cuts[axis.name] if axis.pre <= c <= axis.end}
            stop = start * axis.size
            on_dim = {c for c in dim_cuts[d] if start <= c <= stop}
            if any(c % axis.pre for c in on_axis) or any(c % start for c in on_dim):
                return None
            common = {c // axis.pre for c in on_axis} | {c // start for c in on_dim}
            if len(common) > min(len(on_axis), len(on_dim)):
                changed = True
                axis_cuts[axis.name] |= {c * axis.pre for c in common}
                dim_cuts[d] |= {c * start for c in common}
    axes = {name: sorted(cuts) for name, cuts in axis_cuts.items()}
    dims = [sorted(cuts) for cuts in dim_cuts]
    chains = all(map(is_chain, axes.values())) and all(map(is_chain, dims))
    return (axes, dims) if chains else None


def _assign(
    axis_cuts: AxisCuts, pieces: Sequence[Iterable[Piece]]
) -> Iterator[tuple[tuple[int, int], SubAxis]]:
    """The atom of each cut digit, a digit being named by its dim and cut point."""
    for d, dim in enumerate(pieces):
        start = 1
        for n, axes in dim:
            for axis in axes:
                for atom in split_axis(axis, axis_cuts[axis.name]):
                    yield (d, start), atom
                    start *= atom.size
            start *= n // ways(axes)


class _homes:  # noqa: N801 - used as a function
    """Which dim of the view a digit of a dim belongs to."""

    def __init__(self, pieces: Sequence[Iterable[Piece]]) -> None:
        self._ends: list[list[tuple[int, int]]] = []
        view_dim = 0
        for dim in pieces:
            ends: list[tuple[int, int]] = []
            for n, _ in dim:
                ends.append(((ends[-1][0] if ends else 1) * n, view_dim))
                view_dim += 1
            self._ends.append(ends)

    def __call__(self, d: int, start: int) -> int:
        return next(view_dim for end, view_dim in self._ends[d] if start < end)


def _atoms_of(
    axis_cuts: AxisCuts, layout: Layout, other: Layout
) -> list[tuple[SubAxis, str]]:
    """Atoms that `layout` is partial over and `other` is not, with the reducer."""

    def split(layout: Layout) -> list[tuple[SubAxis, str]]:
        return [
            (atom, reducer)
            for axis, reducer in layout.partial
            for atom in split_axis(axis, axis_cuts[axis.name])
        ]

    theirs = split(other)
    return [entry for entry in split(layout) if entry not in theirs]


def tile_elements(problem: Problem) -> tuple[int, int]:
    """Elements of the projected tile in source and in target."""
    source = math.prod(d.size for d in problem.digits if d.source == FREE)
    target = math.prod(d.size for d in problem.digits if d.target == FREE)
    return source, target
