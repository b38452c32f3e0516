"""Layouts to go by: where a permute leaves the fewest or the shortest ways to go.

On machines whose links differ, and between meshes, it may pay to send tiles to a
relay first: an arrangement of the mesh's axes that cuts the dims in the same number of
ways and begins as the end does, so that what is left are gathers and all-to-alls over
few axes.
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Iterator, Sequence

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis, ways
from shardwright.program.schedule import Permute, Slice, Step
from shardwright.redistribution.exchange_boxes import corners
from shardwright.redistribution.matching import (
    Dims,
    arrangements,
    begun_alike,
    matches,
)
from shardwright.redistribution.ordered import primes
from shardwright.redistribution.routes import Request, moving_part
from shardwright.topology import member_distances

MAX_ARRANGEMENTS = 256
"""Most arrangements of axes that are looked at for one number of ways."""

MAX_ORDERS = 6
"""Most orders of the axes' prime factors that are tried."""

MAX_ATOMS = 10
"""Most prime factors of the axes that are arranged."""


def alike(mesh: Mesh, cuts: Sequence[int], end: Layout, count: int) -> list[Layout]:
    """Layouts that cut the dims in so many ways, those most like `end` first."""
    found: dict[Layout, tuple[int, int]] = {}
    for atoms in itertools.islice(_atom_orders(mesh), MAX_ORDERS):
        if len(atoms) > MAX_ATOMS:
            return []
        atoms.sort(key=lambda atom: -_use(atom, end))
        for layout, rank in _arranged(mesh, atoms, cuts, end):
            found.setdefault(layout, rank)
    return heapq.nsmallest(count, found, key=found.__getitem__)


def _atom_orders(mesh: Mesh) -> Iterator[list[SubAxis]]:
    """Prime factors of all axes; an axis of 6 is 2 x 3, and then 3 x 2."""
    choices: list[list[tuple[int, ...]]] = []
    for axis in mesh.whole_axes():
        sizes = tuple(prime.size for prime in primes(axis))
        choices.append(list(itertools.islice(_orders(sizes), MAX_ORDERS)))
    for orders in itertools.product(*choices):
        atoms: list[SubAxis] = []
        for axis, sizes in zip(mesh.whole_axes(), orders, strict=True):
            ends = itertools.accumulate(sizes, operator.mul, initial=1)
            atoms += [
                SubAxis(axis.name, n, pre) for n, pre in zip(sizes, ends, strict=False)
            ]
        yield atoms


def _orders(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The distinct orders of these numbers, the given one first."""
    if not sizes:
        yield ()
    for first in dict.fromkeys(sizes):
        at = sizes.index(first)
        for rest in _orders(sizes[:at] + sizes[at + 1 :]):
            yield (first, *rest)


def _arranged(
    mesh: Mesh, atoms: Sequence[SubAxis], cuts: Sequence[int], end: Layout
) -> list[tuple[Layout, tuple[int, int]]]:
    """Arrangements of the atoms in so many cuts, and how far they are from `end`."""
    sizes = [atom.size for atom in atoms]
    wanted = [
        [i for axis in axes for i, atom in enumerate(atoms) if axis.contains(atom)]
        for axes in end.dims
    ]
    fronts, left = begun_alike(sizes, cuts, wanted)
    free = frozenset(range(len(atoms))) - {a for front in fronts for a in front}
    some = (
        tuple(front + tail for front, tail in zip(fronts, tails, strict=True))
        for tails in itertools.islice(arrangements(sizes, left, free), MAX_ARRANGEMENTS)
    )
    follows = {
        (i, j)
        for i, atom in enumerate(atoms)
        for j, other in enumerate(atoms)
        if atom.name == other.name and atom.end == other.pre
    }

    def rank(dims: Dims) -> tuple[int, int]:
        """Most like the end first, then of the fewest sub-axes."""
        pairs = (pair for dim in dims for pair in itertools.pairwise(dim))
        return -_likeness(dims, wanted), -sum(pair in follows for pair in pairs)

    return [(_layout(mesh, atoms, dims), rank(dims)) for dims in some]


def _layout(mesh: Mesh, atoms: Sequence[SubAxis], dims: Dims) -> Layout:
    return Layout(mesh, tuple(tuple(atoms[a] for a in dim) for dim in dims))


def _use(atom: SubAxis, layout: Layout) -> int:
    return sum(atom.overlaps(axis) for axis in layout.used_axes)


def _likeness(dims: Dims, wanted: Sequence[Sequence[int]]) -> int:
    """Atoms that cut one dim in both; those in the same place count twice."""
    score = 0
    for mine, theirs in zip(dims, wanted, strict=True):
        score += len(set(mine) & set(theirs))
        score += sum(a == b for a, b in zip(mine, theirs, strict=False))
    return score


def idle_axes(layout: Layout) -> tuple[SubAxis, ...]:
    """Whole axes of the mesh of which the layout uses no part."""
    return tuple(
        axis
        for axis in layout.mesh.whole_axes()
        if not any(axis.overlaps(used) for used in layout.used_axes)
    )


def cut_further(shape: tuple[int, ...], layout: Layout) -> Iterator[Layout]:
    """The layout with the axes it does not use cutting a dim that they divide."""
    idle = idle_axes(layout)
    if not idle or layout.view is not None or not layout.is_even(shape):
        return
    for d, n in enumerate(layout.tile_shape(shape)):
        if n % ways(idle) == 0:
            dims = (*layout.dims[:d], layout.dims[d] + idle, *layout.dims[d + 1 :])
            yield Layout(layout.mesh, dims, layout.partial)


def permute_first(
    request: Request, count: int
) -> Iterator[tuple[tuple[Step, ...], Layout]]:
    """Slices and one permute, and the relay that they lead to.

    Tiles are as the source's, or cut as far as source and target together. None for
    partial layouts, whose parts must stay where they are.
    """
    source, target, shape = request.source, request.target, request.shape
    if source.partial:
        return
    cuts = [ways(axes) for axes in source.dims]
    both = [math.lcm(a, ways(b)) for a, b in zip(cuts, target.dims, strict=True)]
    for wanted in (cuts, both) if both != cuts else (cuts,):
        if any(n % w for n, w in zip(shape, wanted, strict=True)):
            continue
        relays = alike(source.mesh, wanted, target, count)
        for begun in sliced(source, target, wanted):
            slices = _slices(source, begun)
            for relay in relays:
                if relay == begun:
                    continue
                for step in permutes_between(request, begun, relay):
                    yield (*slices, step), relay


def sliced(source: Layout, target: Layout, wanted: Sequence[int]) -> list[Layout]:
    """The source cut in the wanted ways by axes it does not use."""
    more = [w // ways(axes) for w, axes in zip(wanted, source.dims, strict=True)]
    if math.prod(more) == 1:
        return [source]
    mesh = source.mesh
    atoms = [
        atom
        for axis in mesh.whole_axes()
        for atom in primes(axis)
        if not any(atom.overlaps(used) for used in source.used_axes)
    ]
    sizes = [atom.size for atom in atoms]
    goal = [
        [i for axis in axes for i, atom in enumerate(atoms) if axis.contains(atom)]
        for axes in target.dims
    ]
    every = arrangements(sizes, more, frozenset(range(len(atoms))))
    some = itertools.islice(every, MAX_ARRANGEMENTS)
    best = heapq.nsmallest(2, some, key=lambda dims: -_likeness(dims, goal))
    cut = (_layout(mesh, atoms, dims).dims for dims in best)
    return [
        Layout(mesh, tuple(o + n for o, n in zip(source.dims, new, strict=True)))
        for new in cut
    ]


def _slices(source: Layout, finer: Layout) -> tuple[Step, ...]:
    """The slices between two layouts of which one begins as the other."""
    steps: list[Step] = []
    for d, (old, new) in enumerate(zip(source.dims, finer.dims, strict=True)):
        atoms = [atom for axis in new for atom in primes(axis)]
        cuts = ways(old)
        rest: list[SubAxis] = []
        for atom in atoms:
            if cuts > 1:
                cuts //= atom.size
            else:
                rest.append(atom)
        if rest:
            steps.append(Slice(d, tuple(rest)))
    return tuple(steps)


def permutes_between(
    request: Request, source: Layout, target: Layout
) -> Iterator[Permute]:
    """Permutes between layouts of one mesh with tiles of one shape."""
    shape = request.shape
    old, new, axes = moving_part(source, target)
    network = request.prices.topology.network
    distances = member_distances(network, source.mesh, axes)
    for pairs in matches(corners(old, shape), corners(new, shape), distances):
        yield Permute(axes, pairs)
