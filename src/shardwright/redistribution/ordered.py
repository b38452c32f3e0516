"""The cheapest sequence where source and target share no digits.

Cuts of one dim into 2 and into 3, say. Tiles must then be whole ranges of indices, so
collectives act on the minor axes of a dim alone, as in the published planners: a
state is, per dim, the ordered atoms that cut it; the moves are slice, all-gather,
all-to-all of minor axes, and any permute between states of equal tiles. The cheapest
way is found over all states, of which there are few: such meshes have few axes.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis
from shardwright.program.schedule import (
    AllGather,
    AllToAll,
    Permute,
    Slice,
    Step,
    count_collectives,
)
from shardwright.program.types import dtype_bits
from shardwright.redistribution.matching import (
    Dims,
    arrangements,
    begun_alike,
    matches,
)
from shardwright.redistribution.project import cut_points, is_chain, split_axis
from shardwright.redistribution.remaining import Remaining
from shardwright.redistribution.sequences import Cost, Prices
from shardwright.topology import (
    Network,
    copy_seconds,
    member_distances,
    next_seconds,
    step_bytes,
)

MAX_ATOMS = 6
"""Most atoms that may move: states grow with their factorial."""

ROOM_BYTES = 16 << 20
"""A tensor on the way may be so large even where both tiles are smaller: a gather that
is cut again is one launch, which decides where bytes are few."""

ROOM_TILES = 2
"""Or this many times the larger tile, as much as an exchange of it may hold."""

FEW_ATOMS = 3
"""Up to so many, every arrangement of atoms is tried."""

MAX_PERMUTES = 300
"""Most permutes that a search prices."""

MAX_VISITED = 2000
"""Most states that a search looks at."""


def room_elements(dtype: str, *tiles: Sequence[int]) -> int:
    """Most elements of a tensor on the way, between tiles of these shapes."""
    largest = max(map(math.prod, tiles))
    return max(ROOM_TILES * largest, ROOM_BYTES * 8 // max(1, dtype_bits(dtype)))


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


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """Atoms by dim; whether a permute was done; whether a local copy is unpaid."""

    dims: Dims
    permuted: bool = False
    pending: bool = False


def cheapest_ordered(
    problem: Ordered,
    prices: Prices,
    below: float = math.inf,
    max_visited: int = MAX_VISITED,
) -> tuple[Step, ...] | None:
    """Steps of the cheapest path, None where none takes fewer than `below` seconds.

    One permute at most, which is enough (Rink et al. 2021). States are looked at in
    the order of what they take at least to the target (A*, Hart et al. 1968). The
    search gives up after so many.
    """
    tiles = (problem.tile(d) for d in (problem.source, problem.target))
    limit = room_elements(prices.dtype, *tiles)
    order = count()
    queue: list[tuple[Cost, int, Cost, tuple[Step, ...], _State]] = [
        (Cost(), next(order), Cost(), (), _State(problem.source))
    ]
    done: set[_State] = set()
    remaining = Remaining(problem.shape, problem.atoms, problem.target, prices)
    permutes = _Permutes(problem, prices.topology.network, remaining)
    while queue and len(done) < max_visited:
        _, _, cost, steps, state = heapq.heappop(queue)
        if state.dims == problem.target and not state.pending:
            return steps
        if state in done:
            continue
        done.add(state)
        left = below - cost.seconds
        for step, after in _moves(problem, state, permutes, left):
            if after in done or math.prod(problem.tile(after.dims)) > limit:
                continue
            total, after = _extended(problem, prices, cost, step, state, after)
            expected = total.seconds + remaining.seconds(after.dims)
            if expected < below:
                after_steps = steps if step is None else (*steps, step)
                rank = dataclasses.replace(total, seconds=expected)
                entry = (rank, next(order), total, after_steps, after)
                heapq.heappush(queue, entry)
    return None


def _extended(
    problem: Ordered,
    prices: Prices,
    cost: Cost,
    step: Step | None,
    state: _State,
    after: _State,
) -> tuple[Cost, _State]:
    """Price and state after one more step; None pays the copy at the end."""
    tile, dtype = problem.tile(state.dims), prices.dtype
    if step is None:
        seconds, pending = copy_seconds(prices.topology, tile, dtype), False
    else:
        seconds, pending = next_seconds(
            prices.topology, prices.mesh, step, tile, dtype, state.pending
        )
    moved = 0 if step is None else step_bytes(step, tile, dtype)
    total = Cost(
        cost.seconds + seconds,
        cost.bytes_received + moved,
        cost.collectives + (0 if step is None else count_collectives(step)),
    )
    return total, dataclasses.replace(after, pending=pending)


def _moves(
    problem: Ordered, state: _State, permutes: _Permutes, left: float
) -> Iterator[tuple[Step | None, _State]]:
    dims = state.dims
    if dims == problem.target:
        yield None, state
        return
    used = {a for axes in dims for a in axes}
    idle = [a for a in range(len(problem.atoms)) if a not in used]
    tile = problem.tile(dims)

    def then(changes: dict[int, tuple[int, ...]]) -> _State:
        return _State(_set(dims, changes), state.permuted)

    for d, axes in enumerate(dims):
        for atom in idle:
            if tile[d] % problem.atoms[atom].size == 0:
                yield Slice(d, problem.axes([atom])), then({d: (*axes, atom)})
        for k in range(len(axes)):
            kept, tail = axes[:k], axes[k:]
            yield AllGather(d, problem.axes(tail)), then({d: kept})
            n = math.prod(problem.atoms[a].size for a in tail)
            for e in range(len(dims)):
                if e != d and tile[e] % n == 0:
                    after = then({d: kept, e: (*dims[e], *tail)})
                    yield AllToAll(e, d, problem.axes(tail)), after
    if not state.permuted:
        for after, step in permutes.of(dims, left):
            yield step, _State(after, True)


def _set(dims: Dims, changes: dict[int, tuple[int, ...]]) -> Dims:
    return tuple(changes.get(d, axes) for d, axes in enumerate(dims))


class _Permutes:
    """The permutes of one search, made once each and not too many in all."""

    def __init__(
        self, problem: Ordered, network: Network, remaining: Remaining
    ) -> None:
        self._problem = problem
        self._network = network
        self._remaining = remaining
        self._found: dict[Dims, list[Dims]] = {}
        self._made: dict[tuple[Dims, Dims], Permute] = {}

    def of(self, dims: Dims, left: float) -> Iterator[tuple[Dims, Permute]]:
        """Arrangements to which a permute leads from here, if in so many seconds."""
        if dims not in self._found:
            few = itertools.islice(_permutes(self._problem, dims), MAX_PERMUTES)
            self._found[dims] = list(few)
        once = self._remaining.permute_seconds(dims)
        for after in self._found[dims]:
            if once + self._remaining.seconds(after) >= left:
                continue
            pair = dims, after
            if pair not in self._made:
                if len(self._made) == MAX_PERMUTES:
                    return
                self._made[pair] = _permute(self._problem, *pair, self._network)
            yield after, self._made[pair]


def _permutes(problem: Ordered, dims: Dims) -> Iterator[Dims]:
    """Arrangements with the same tiles; of many, those that begin as the target."""
    sizes = [problem.atoms[a].size for a in range(len(problem.atoms))]
    if len(sizes) <= FEW_ATOMS:
        ways = [math.prod(sizes[a] for a in axes) for axes in dims]
        yield from (
            after
            for after in arrangements(sizes, ways, frozenset(range(len(sizes))))
            if after != dims
        )
        return
    cuts = [math.prod(sizes[a] for a in axes) for axes in dims]
    fronts, left = begun_alike(sizes, cuts, problem.target)
    rest = frozenset(range(len(sizes))) - {a for front in fronts for a in front}
    for tails in arrangements(sizes, left, rest):
        after = tuple(f + t for f, t in zip(fronts, tails, strict=True))
        if after != dims:
            yield after


def _permute(
    problem: Ordered, old: Dims, new: Dims, network: Network | None = None
) -> Permute:
    """Each device is sent its new tile, by itself where it holds it, else from near."""
    changed = {a for o, n in zip(old, new, strict=True) if o != n for a in (*o, *n)}
    atoms = sorted(changed)
    axes = problem.axes(atoms)
    held, wanted = (_cells(axes, atoms, dims) for dims in (old, new))
    distances = network and member_distances(network, problem.mesh, axes)
    pairs = next(matches(held.tolist(), wanted.tolist(), distances))
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
