"""Direct exchange on digits: every device is sent what it misses, in fewest rounds.

Where source and target share digits, all devices of a group play the same part, and
the rounds are written down at once: a chain of atoms between two free ends of p values
needs p rounds, in round r of which a device receives the piece that is r further on.
In general see `exchange_boxes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shardwright.program.schedule import Exchange, Offsets, Round
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

MAX_TABLE = 1 << 16
"""Most (device, round) entries that an exchange may write down."""

Ints = NDArray[np.int64]


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
