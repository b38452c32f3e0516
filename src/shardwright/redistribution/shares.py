"""Who reduces how much of a partial value, so that the busiest device receives least.

Take one element of p parts that the devices W want. If device v reduces it, v receives
p parts, less one if it holds a part itself, and every other device of W receives the
total. If v does not want it and some w of W holds another part, w can add that one to
what v sends: v receives one less, w as much as before.

Under any prices for what devices receive, no way to make and hand out the total costs
less than the cheapest such v. Let f be the first device to know all p parts. What was
received for that is a tree of messages into f over one holder of each part, f, and
everyone in between. Let v receive in it at the lowest price. A tree of n devices has
n - 1 messages: one at f or more, and none below v's price. Each other device of W is
sent something after that. With n = p, one more if f or v holds no part or both the
same, that is what v with w = f costs, or more than what v alone does.

So the least load of the busiest device over all schedules is the optimum of a linear
program, whose dual are those prices:

    minimize L   where   sum of all received by d <= L   for each device d,
                         sum over v of x[e, v] = 1       for each element e.

Elements of one source tile and one target tile are alike, a *block*, so the program is
small. HiGHS solves it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis, ways
from shardwright.program.schedule import Axes
from shardwright.redistribution.project import cut_points, is_chain, split_axis
from shardwright.redistribution.routes import moving_dims

MAX_UNITS = 2048
"""Most units that the tensor of a group is cut to."""

MAX_VARIABLES = 20_000
"""Most pairs of a block and a device."""

MAX_NODES = 100
"""Most nodes that the search for whole pieces looks at."""

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """The units that one source tile and one target tile share.

    `places` are their row-major places in the two tiles, `holders` the members that
    hold each part, `wanters` those that want the total.
    """

    places: tuple[tuple[int, int], ...]
    holders: tuple[tuple[int, ...], ...]
    wanters: tuple[int, ...]

    def received(self, member: int) -> int:
        """Parts that the member receives of an element which it reduces alone."""
        return len(self.holders) - any(member in some for some in self.holders)

    def is_helped(self, member: int) -> bool:
        """Whether another, which wants the element, may add its own part at last."""
        if member in self.wanters:
            return False
        others = (some for some in self.holders if member not in some)
        return any(wanter in some for some in others for wanter in self.wanters)


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """A reduction within a group of devices, its tiles cut to units of one size."""

    axes: Axes
    members: int
    reducer: str
    old_tile: Shape
    new_tile: Shape
    unit_shape: Shape
    blocks: tuple[Block, ...]

    @property
    def unit(self) -> int:
        return math.prod(self.unit_shape)

    @property
    def parts(self) -> int:
        return len(self.blocks[0].holders)


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Units that the busiest member receives, and units of [block, member] reduced."""

    load: float
    reduced: NDArray[np.float64]


def work_of(shape: Shape, source: Layout, target: Layout) -> Work | None:
    """The work of a change of layout that reduces.

    None where layouts have views, do not divide or reduce in more than one way, where
    the target is newly partial, or where there are too many devices or units.
    """
    owed = [(a, r) for a, r in source.partial if (a, r) not in target.partial]
    reducers = {reducer for _, reducer in owed}
    if len(reducers) != 1 or "only" in reducers:
        return None
    is_plain = source.view is None and target.view is None
    is_even = source.is_even(shape) and target.is_even(shape)
    if not is_plain or not is_even or set(target.partial) - set(source.partial):
        return None
    cuts = {name: sorted(c) for name, c in cut_points((source, target)).items()}
    if not all(map(is_chain, cuts.values())):
        return None
    moving = moving_dims(source, target)
    still = {
        axis
        for axes, is_moving in zip(source.dims, moving, strict=True)
        for axis in axes
        if not is_moving
    }
    still |= {axis for axis, _ in target.partial}
    axes = tuple(
        atom
        for axis in source.mesh.whole_axes()
        for atom in split_axis(axis, cuts.get(axis.name, [1, axis.size]))
        if not any(atom.overlaps(other) for other in still)
    )
    mesh = Mesh(tuple((str(atom), atom.size) for atom in axes))

    def on_mesh(some: Sequence[SubAxis]) -> Axes:
        atoms = (a for axis in some for a in split_axis(axis, cuts[axis.name]))
        return tuple(mesh.axis(str(atom)) for atom in atoms)

    def moved(layout: Layout) -> Layout:
        dims = zip(layout.dims, moving, strict=True)
        return Layout(mesh, tuple(on_mesh(axes) if m else () for axes, m in dims))

    sizes = tuple(
        n if is_moving else n // ways(axes)
        for n, axes, is_moving in zip(shape, source.dims, moving, strict=True)
    )
    before, after = moved(source), moved(target)
    fewest = max(ways([a for d in x.dims for a in d]) for x in (before, after))
    if fewest * mesh.num_devices > MAX_VARIABLES:  # a block for each tile at least
        return None
    tiles = before.tile_shape(sizes), after.tile_shape(sizes)
    unit = tuple(map(math.gcd, *tiles))
    if math.prod(sizes) > MAX_UNITS * math.prod(unit):
        return None
    blocks = tuple(_blocks(before, after, on_mesh([a for a, _ in owed]), sizes, unit))
    if len(blocks) * mesh.num_devices > MAX_VARIABLES:
        return None
    return Work(axes, mesh.num_devices, reducers.pop(), *tiles, unit, blocks)


def _blocks(
    before: Layout, after: Layout, owed: Axes, sizes: Shape, unit: Shape
) -> Iterator[Block]:
    mesh, parts = before.mesh, ways(owed)
    holders: dict[Shape, list[list[int]]] = {}
    wanters: defaultdict[Shape, list[int]] = defaultdict(list)
    for p in range(mesh.num_devices):
        old = tuple(mesh.index(p, axes) for axes in before.dims)
        new = tuple(mesh.index(p, axes) for axes in after.dims)
        held = holders.setdefault(old, [[] for _ in range(parts)])
        held[mesh.index(p, owed)].append(p)
        wanters[new].append(p)
    old_counts, new_counts = (
        tuple(n // u for n, u in zip(layout.tile_shape(sizes), unit, strict=True))
        for layout in (before, after)
    )
    places: defaultdict[tuple[Shape, Shape], list[tuple[int, int]]] = defaultdict(list)
    counts = (n // u for n, u in zip(sizes, unit, strict=True))
    for at in itertools.product(*map(range, counts)):
        old, i = _tile_and_place(at, old_counts)
        new, j = _tile_and_place(at, new_counts)
        places[old, new].append((i, j))
    for (old, new), some in places.items():
        yield Block(tuple(some), tuple(map(tuple, holders[old])), tuple(wanters[new]))


def _tile_and_place(at: Shape, counts: Shape) -> tuple[Shape, int]:
    """The tile that a unit lies in, and its row-major place there."""
    place = 0
    for i, n in zip(at, counts, strict=True):
        place = place * n + i % n
    return tuple(i // n for i, n in zip(at, counts, strict=True)), place


def cheapest_shares(work: Work) -> Shares | None:
    """The optimum where each element is reduced by one device.

    Among equals, with the fewest messages. None where the solver finds none.
    """
    return _optimum(_program(work))


def least_load(work: Work, shares: Shares) -> float:
    """Units that the busiest member receives at least, whoever helps whom.

    0 where the solver does not tell.
    """
    helped = [[b.is_helped(m) for m in range(work.members)] for b in work.blocks]
    if not np.any(helped):
        return shares.load
    program = _program(work)
    fewer = program.received - np.array(helped)
    found = _optimum(dataclasses.replace(program, received=fewer))
    return 0.0 if found is None else found.load


def _optimum(program: _Program) -> Shares | None:
    least = 1e-6 / max(1.0, float(program.received.sum()))
    price = np.append(least * program.received.ravel(), 1.0)
    found = milp(price, constraints=program.constraints(1))
    if found.x is None:
        return None
    return Shares(float(found.x[-1]), found.x[:-1].reshape(program.received.shape))


def whole_shares(work: Work, pieces: int, most: int) -> NDArray[np.int64] | None:
    """Whole pieces of [block, member], each unit cut to so many, under a load.

    No member receives more than `most` pieces. None where none are found.
    """
    program = _program(work)
    shape = program.received.shape
    limits: Any = np.append(np.full(program.received.size, np.inf), most)
    found = milp(
        np.append(program.received.ravel(), 0.0),
        integrality=np.append(np.ones(program.received.size), 0),
        bounds=Bounds(0, limits),
        constraints=program.constraints(pieces),
        options={"node_limit": MAX_NODES, "mip_rel_gap": 0.5},
    )
    if found.x is None:
        return None
    return np.rint(found.x[:-1]).astype(np.int64).reshape(shape)


@dataclasses.dataclass(frozen=True, slots=True)
class _Program:
    """What [block, member] receives of a unit reduced there, beyond its total.

    The variables are the units of [block, member], and the load.
    """

    received: NDArray[np.float64]
    wanted: NDArray[np.float64]
    counts: NDArray[np.float64]

    def constraints(self, pieces: int) -> list[LinearConstraint]:
        """No load above the last variable; all pieces of each block are reduced."""
        blocks, members = self.received.shape
        b_of, m_of = (index.ravel() for index in np.indices(self.received.shape))
        last = self.received.size
        variables = np.arange(last)
        loads = coo_array(
            (
                np.concatenate([self.received.ravel(), -np.ones(members)]),
                (
                    np.concatenate([m_of, np.arange(members)]),
                    np.concatenate([variables, np.full(members, last)]),
                ),
            ),
            shape=(members, last + 1),
        )
        whole = coo_array((np.ones(last), (b_of, variables)), shape=(blocks, last + 1))
        most: Any = -self.wanted * pieces
        counts: Any = self.counts * pieces
        return [
            LinearConstraint(loads.tocsr(), -np.inf, most),
            LinearConstraint(whole.tocsr(), counts, counts),
        ]


def _program(work: Work) -> _Program:
    blocks, members = work.blocks, work.members
    received = np.zeros((len(blocks), members))
    wanted = np.zeros(members)
    for b, block in enumerate(blocks):
        received[b] = [block.received(m) for m in range(members)]
        received[b, list(block.wanters)] -= 1  # the total, which is counted below
        wanted[list(block.wanters)] += len(block.places)
    counts = np.array([len(block.places) for block in blocks], float)
    return _Program(received, wanted, counts)
