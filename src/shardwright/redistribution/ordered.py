"""The cheapest sequence where source and target share no digits.

Cuts of one dim into 2 and into 3, say. Tiles must then be whole ranges of indices, so
collectives act on the minor axes of a dim alone, as in the published planners: a
state is, per dim, the ordered atoms that cut it; the moves are slice, all-gather,
all-to-all of minor axes, and any permute between states of equal tiles. Dijkstra
over all states, of which there are few: such meshes have few axes.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis
from shardwright.program.schedule import AllGather, AllToAll, Permute, Slice, Step
from shardwright.redistribution.project import cut_points, is_chain, split_axis
from shardwright.redistribution.sequences import Cost, Prices

Dims = tuple[tuple[int, ...], ...]

MAX_ATOMS = 5
"""Most atoms that may move: states grow with their factorial."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ordered:
    """A change of even, unstrided layouts on prime atoms, agreed prefixes removed."""

    mesh: Mesh
    shape: tuple[int, ...]
    atoms: tuple[SubAxis, ...]
    source: Dims
    target: Dims

    def tile(self, dims: Dims) -> tuple[int, ...]:
        return tuple(
            n // math.prod(self.atoms[a].size for a in axes)
            for n, axes in zip(self.shape, dims, strict=True)
        )

    def axes(self, atoms: Sequence[int]) -> tuple[SubAxis, ...]:
        return tuple(self.atoms[a] for a in atoms)


def ordered_problem(
    shape: Sequence[int],
    source: Layout,
    target: Layout,
    *,
    split_primes: bool = True,
    max_atoms: int = MAX_ATOMS,
) -> Ordered | None:
    """The problem on prime atoms, or None where it cannot be put so.

    Without `split_primes` axes are split where the layouts split them alone, which
    leaves fewer states.
    """
    strided = source.view is not None or target.view is not None
    if strided or source.partial != target.partial:
        return None
    if not (source.is_even(shape) and target.is_even(shape)):
        return None
    cuts = {name: sorted(c) for name, c in cut_points((source, target)).items()}
    if not all(map(is_chain, cuts.values())):
        return None

    def split(axes: Sequence[SubAxis]) -> list[SubAxis]:
        atoms = (atom for axis in axes for atom in split_axis(axis, cuts[axis.name]))
        if not split_primes:
            return list(atoms)
        return [prime for atom in atoms for prime in primes(atom)]

    olds, news, sizes = [], [], list(shape)
    for d, (old, new) in enumerate(zip(source.dims, target.dims, strict=True)):
        olds.append(split(old))
        news.append(split(new))
        while olds[d] and news[d] and olds[d][0] == news[d][0]:
            sizes[d] //= olds[d].pop(0).size
            news[d].pop(0)
    atoms = tuple(
        dict.fromkeys(a for dims in (olds, news) for axes in dims for a in axes)
    )
    if len(atoms) > max_atoms:
        return None
    number = {atom: i for i, atom in enumerate(atoms)}
    before, after = (
        tuple(tuple(number[a] for a in axes) for axes in dims) for dims in (olds, news)
    )
    return Ordered(source.mesh, tuple(sizes), atoms, before, after)


def primes(axis: SubAxis) -> Iterator[SubAxis]:
    pre, rest, factor = axis.pre, axis.size, 2
    while rest > 1:
        while rest % factor:
            factor += 1
        yield SubAxis(axis.name, factor, pre)
        pre, rest = pre * factor, rest // factor


def cheapest_ordered(
    problem: Ordered, prices: Prices, below: float = math.inf
) -> tuple[Step, ...] | None:
    """Steps of the cheapest path, None where none takes fewer than `below` seconds."""
    source, target = (
        math.prod(problem.tile(d)) for d in (problem.source, problem.target)
    )
    limit = max(source, target)
    order = count()
    queue: list[tuple[Cost, int, tuple[Step, ...], Dims]] = [
        (Cost(), next(order), (), problem.source)
    ]
    done: set[Dims] = set()
    while queue:
        _, _, steps, dims = heapq.heappop(queue)
        if dims == problem.target:
            return steps
        if dims in done:
            continue
        done.add(dims)
        for step, after in _moves(problem, dims):
            if after in done or math.prod(problem.tile(after)) > limit:
                continue
            longer = (*steps, step)
            total = prices.path(longer, problem.tile(problem.source))
            if total.seconds < below:
                heapq.heappush(queue, (total, next(order), longer, after))
    return None


def _moves(problem: Ordered, dims: Dims) -> Iterator[tuple[Step, Dims]]:
    used = {a for axes in dims for a in axes}
    idle = [a for a in range(len(problem.atoms)) if a not in used]
    tile = problem.tile(dims)
    for d, axes in enumerate(dims):
        for atom in idle:
            if tile[d] % problem.atoms[atom].size == 0:
                yield Slice(d, problem.axes([atom])), _set(dims, {d: (*axes, atom)})
        for k in range(len(axes)):
            kept, tail = axes[:k], axes[k:]
            yield AllGather(d, problem.axes(tail)), _set(dims, {d: kept})
            yield from _all_to_alls(problem, dims, d, kept, tail)
    yield from _permutes(problem, dims)


def _set(dims: Dims, changes: dict[int, tuple[int, ...]]) -> Dims:
    return tuple(changes.get(d, axes) for d, axes in enumerate(dims))


def _all_to_alls(
    problem: Ordered, dims: Dims, d: int, kept: tuple[int, ...], tail: tuple[int, ...]
) -> Iterator[tuple[Step, Dims]]:
    tile = problem.tile(dims)
    n = math.prod(problem.atoms[a].size for a in tail)
    for e in range(len(dims)):
        if e != d and tile[e] % n == 0:
            after = _set(dims, {d: kept, e: (*dims[e], *tail)})
            yield AllToAll(e, d, problem.axes(tail)), after


def _permutes(problem: Ordered, dims: Dims) -> Iterator[tuple[Step, Dims]]:
    sizes = [problem.atoms[a].size for a in range(len(problem.atoms))]
    ways = [math.prod(sizes[a] for a in axes) for axes in dims]
    for after in arrangements(sizes, ways, frozenset(range(len(sizes)))):
        if after != dims:
            yield _permute(problem, dims, after), after


def arrangements(
    sizes: Sequence[int], ways: Sequence[int], atoms: frozenset[int]
) -> Iterator[Dims]:
    """All ordered choices of atoms that cut the dims in so many ways."""
    if not ways:
        yield ()
        return
    for first in _orders(sizes, ways[0], atoms):
        for rest in arrangements(sizes, ways[1:], atoms - set(first)):
            yield (first, *rest)


def _orders(
    sizes: Sequence[int], ways: int, atoms: frozenset[int]
) -> Iterator[tuple[int, ...]]:
    if ways == 1:
        yield ()
        return
    for atom in sorted(atoms):
        if ways % sizes[atom] == 0:
            for rest in _orders(sizes, ways // sizes[atom], atoms - {atom}):
                yield (atom, *rest)


def _permute(problem: Ordered, old: Dims, new: Dims) -> Permute:
    """Each device is sent its new tile, by itself where it holds it."""
    changed = {a for o, n in zip(old, new, strict=True) if o != n for a in (*o, *n)}
    atoms = sorted(changed)
    axes = problem.axes(atoms)
    held, wanted = (_cells(axes, atoms, dims) for dims in (old, new))
    pairs = match(held.tolist(), wanted.tolist())
    assert pairs is not None, "equal ways leave as many holders as askers"
    return Permute(axes, pairs)


def _cells(
    axes: Sequence[SubAxis], atoms: Sequence[int], dims: Dims
) -> NDArray[np.int64]:
    """A number for the tile of every member, alike for devices with one tile."""
    sizes = [axis.size for axis in axes]
    at = dict(zip(atoms, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    cell = np.zeros(math.prod(sizes), np.int64)
    for dim in dims:
        for atom in dim:
            if atom in at:
                cell = cell * sizes[atoms.index(atom)] + at[atom]
    return cell


def match(
    held: Sequence[Hashable], wanted: Sequence[Hashable]
) -> tuple[tuple[int, int], ...] | None:
    """Pair senders with receivers of equal tiles, themselves where they can.

    None where a tile is wanted by more members than have one to spare.
    """
    spare: dict[Hashable, list[int]] = {}
    for member, (old, new) in enumerate(zip(held, wanted, strict=True)):
        if old != new:
            spare.setdefault(old, []).append(member)
    pairs: list[tuple[int, int]] = []
    for member, cell in enumerate(wanted):
        if held[member] == cell:
            pairs.append((member, member))
        elif spare.get(cell):
            pairs.append((spare[cell].pop(0), member))
        else:
            return None
    return tuple(pairs)
