"""Direct exchange: every device is sent what it misses, in as few rounds as can be.

Two ways lead to it. Where source and target share digits, all devices of a group
play the same part, and the rounds are written down at once: a chain of atoms between
two free ends of p values needs p rounds, in round r of which a device receives the
piece that is r further on (`exchange_moves`). In general (`direct_exchange`) each
missing piece is asked of a device that holds it, the askers of one tile being dealt
out over its holders in turn, and the edges of the sender-receiver graph are coloured.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shardwright.program.layout import Box
from shardwright.program.schedule import Axes, Exchange, Offsets, Round
from shardwright.redistribution.grouping import (
    Groups,
    place_run,
    shuffle,
    tile_shape,
    without,
)
from shardwright.redistribution.moves import (
    Move,
    State,
    rearrangement,
    senders,
    settle,
    slices,
)
from shardwright.redistribution.project import FREE, Problem
from shardwright.redistribution.rounds import colour_edges

MAX_TABLE = 1 << 16
"""Most (device, round) entries that an exchange may write down."""

Ints = NDArray[np.int64]


# On digits ------------------------------------------------------------------


def exchange_moves(problem: Problem, state: State) -> Iterator[Move]:
    """One exchange for a permute and the all-to-alls that would follow it."""
    plan = rearrangement(problem, state)
    steps, state = slices(problem, (), state, plan.fills)
    if not plan.wraps or plan.cut == state.cut:
        return
    goals = [plan.cut[i] for i, _ in plan.wraps]
    atoms, feeds = senders(problem, state.cut, plan.cut, goals)
    rounds = math.prod(problem.atoms[a].size for a in goals)
    if rounds * math.prod(problem.atoms[a].size for a in atoms) > MAX_TABLE:
        return
    concat, split = [i for i, _ in plan.wraps], [j for _, j in plan.wraps]
    groups = _pull_out(_with(problem, state.groups, concat), {*concat, *split})
    before, after = without(groups, concat), without(groups, split)
    steps += shuffle(problem.sizes, state.groups, before)
    step = _digit_exchange(problem, state, plan.wraps, goals, (atoms, feeds), groups)
    cut = list(plan.cut)
    for (i, j), atom in zip(plan.wraps, goals, strict=True):
        cut[i], cut[j] = FREE, atom
    yield settle(problem, (*steps, step), State(tuple(cut), state.owed, after))


def _with(problem: Problem, groups: Groups, digits: Sequence[int]) -> Groups:
    """The groups with each digit put where it belongs."""
    for digit in digits:
        spot = place_run(problem, groups, [digit])
        assert spot is not None, "every home has a group"
        g, p = spot
        home, old = groups[g]
        groups = (*groups[:g], (home, (*old[:p], digit, *old[p:])), *groups[g + 1 :])
    return groups


def _pull_out(groups: Groups, moving: set[int]) -> Groups:
    """Split groups so that in each the digits that move come first."""
    result: list[tuple[int, tuple[int, ...]]] = []
    for home, digits in groups:
        start = 0
        for p in range(1, len(digits)):
            if digits[p] in moving and digits[p - 1] not in moving:
                result.append((home, digits[start:p]))
                start = p
        result.append((home, digits[start:]))
    return tuple(result)


def _digit_exchange(
    problem: Problem,
    state: State,
    wraps: Sequence[tuple[int, int]],
    goals: Sequence[int],
    who: tuple[list[int], dict[int, int]],
    groups: Groups,
) -> Exchange:
    atoms, feeds = who
    sizes = [problem.atoms[a].size for a in atoms]
    at = dict(zip(atoms, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    ends = [state.cut[i] for i, _ in wraps]
    split = {j: atom for (_, j), atom in zip(wraps, goals, strict=True)}
    before = without(groups, [i for i, _ in wraps])
    after = without(groups, split)
    reads = _offsets(problem, before, {j: at[a] for j, a in split.items()})
    shape = tile_shape(problem.sizes, after)
    box = tile_shape(problem.sizes, without(before, split))
    rounds: list[Round] = []
    for shifts in product(*(range(problem.atoms[a].size) for a in goals)):
        values = {
            i: (at[a] + shift) % problem.atoms[a].size
            for (i, _), a, shift in zip(wraps, goals, shifts, strict=True)
        }
        sender = {a: at[feeds[a]] for a in atoms}
        for (i, _), end in zip(wraps, ends, strict=True):
            sender[end] = values[i]
        source = np.ravel_multi_index([sender[a] for a in atoms], sizes)
        read = np.empty_like(reads)
        read[source] = reads
        write = _offsets(problem, after, values)
        pairs = tuple(zip(source.tolist(), range(len(source)), strict=True))
        rounds.append(Round(box, pairs, _rows(read), _rows(write)))
    return Exchange(problem.axes(atoms), shape, tuple(rounds))


def _offsets(problem: Problem, groups: Groups, values: dict[int, Ints]) -> Ints:
    """Where pieces whose moving digits have these values lie, a row a device."""
    count = len(next(iter(values.values())))
    result = np.zeros((count, len(groups)), np.int64)
    for g, (_, digits) in enumerate(groups):
        scale = 1
        for d in reversed(digits):
            if d in values:
                result[:, g] += values[d] * scale
            scale *= problem.sizes[d]
    return result


def _rows(table: Ints) -> tuple[Offsets, ...]:
    return tuple(map(tuple, table.tolist()))


# On boxes -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    """Indices that one device sends another."""

    sender: int
    receiver: int
    box: Box

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.box)


def direct_exchange(
    axes: Axes,
    old: Sequence[Box],
    new: Sequence[Box],
    tile: tuple[int, ...],
    unit: tuple[int, ...] | None = None,
) -> Exchange | None:
    """The exchange that takes each device's `old` box to its `new` one.

    Boxes are in row-major order over `axes`; `tile` is the shape of the new tile,
    padding included. With `unit`, pieces are cut to boxes of that shape, so that
    all rounds are alike; without, a round serves pieces of one shape. None where
    the table would be too large.
    """
    pieces = _pieces(old, new)
    if unit is not None:
        pieces = [small for piece in pieces for small in _cut(piece, unit)]
    if len(pieces) * len(old) > MAX_TABLE * 16:
        return None
    by_shape: defaultdict[tuple[int, ...], list[_Piece]] = defaultdict(list)
    for piece in pieces:
        by_shape[piece.shape].append(piece)
    rounds: list[Round] = []
    for shape, alike in sorted(by_shape.items(), reverse=True):
        rounds += _local_rounds(shape, alike, old, new)
        moving = [p for p in alike if p.sender != p.receiver]
        colours = colour_edges([(p.sender, p.receiver) for p in moving])
        for colour in range(max(colours, default=-1) + 1):
            chosen = [p for p, c in zip(moving, colours, strict=True) if c == colour]
            rounds.append(_round(shape, chosen, old, new))
    return Exchange(axes, tile, tuple(rounds))


def _pieces(old: Sequence[Box], new: Sequence[Box]) -> list[_Piece]:
    """What each device needs, cut by who holds it; its own tile comes first."""
    holders: defaultdict[Box, list[int]] = defaultdict(list)
    for device, box in enumerate(old):
        holders[box].append(device)
    asked: defaultdict[Box, int] = defaultdict(int)
    result: list[_Piece] = []
    for device, box in enumerate(new):
        for cell, candidates in holders.items():
            common = _common(box, cell)
            if common is None:
                continue
            sender = device
            if old[device] != cell:
                sender = candidates[asked[cell] % len(candidates)]
                asked[cell] += 1
            result.append(_Piece(sender, device, common))
    return result


def _common(box: Box, other: Box) -> Box | None:
    common = tuple(
        (max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True)
    )
    return None if any(a >= b for a, b in common) else common


def _cut(piece: _Piece, unit: tuple[int, ...]) -> Iterator[_Piece]:
    if piece.sender == piece.receiver:
        yield piece
        return
    starts = (range(a, b, n) for (a, b), n in zip(piece.box, unit, strict=True))
    for corner in product(*starts):
        box = tuple((a, a + n) for a, n in zip(corner, unit, strict=True))
        yield _Piece(piece.sender, piece.receiver, box)


def _local_rounds(
    shape: tuple[int, ...],
    pieces: Sequence[_Piece],
    old: Sequence[Box],
    new: Sequence[Box],
) -> Iterator[Round]:
    """Rounds of local copies, each device once a round."""
    waiting = [p for p in pieces if p.sender == p.receiver]
    while waiting:
        chosen = list({p.sender: p for p in reversed(waiting)}.values())
        waiting = [p for p in waiting if p not in chosen]
        yield _round(shape, sorted(chosen, key=lambda p: p.sender), old, new)


def _round(
    shape: tuple[int, ...],
    pieces: Sequence[_Piece],
    old: Sequence[Box],
    new: Sequence[Box],
) -> Round:
    nothing: Offsets = (0,) * len(shape)
    read: list[Offsets] = [nothing] * len(old)
    write = list(read)
    for p in pieces:
        read[p.sender] = _offset(p.box, old[p.sender])
        write[p.receiver] = _offset(p.box, new[p.receiver])
    pairs = tuple((p.sender, p.receiver) for p in pieces)
    return Round(shape, pairs, tuple(read), tuple(write))


def _offset(box: Box, tile: Box) -> Offsets:
    return tuple(a - start for (a, _), (start, _) in zip(box, tile, strict=True))
