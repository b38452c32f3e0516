"""How a tile's dims hold the free digits, and the local reshapes between such ways.

A *group* is one dim of the tile in hand: the digits it runs over, major to minor,
and its home, the dim of the source's view it came from. A collective acts on the
major end of a dim; so before it, the dim is split in front of the digit it acts on,
which is a reshape and costs nothing, and only where digits lie out of order is a
transpose needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shardwright.program.schedule import Resize, Shuffle, Step, step_result_shape
from shardwright.redistribution.project import FREE, Problem

Group = tuple[int, tuple[int, ...]]
Groups = tuple[Group, ...]
Spot = tuple[int, int]
"""A group, and a place in it."""

FRONT = -1
"""Home of a group that a transpose has put in front of all others."""


def source_groups(problem: Problem) -> Groups:
    """The source tile: one group for each dim of its view."""
    homes = [(i, d.home) for i, d in enumerate(problem.digits) if d.source == FREE]
    return _by_home(homes, problem.source_rank)


def target_groups(problem: Problem) -> Groups:
    """The target tile: one group for each dim of its view."""
    homes = [
        (i, d.target_home) for i, d in enumerate(problem.digits) if d.target == FREE
    ]
    return _by_home(homes, problem.target_rank)


def _by_home(homes: Sequence[tuple[int, int]], rank: int) -> Groups:
    return tuple(
        (home, tuple(digit for digit, where in homes if where == home))
        for home in range(rank)
    )


def tile_shape(sizes: Sequence[int], groups: Groups) -> tuple[int, ...]:
    """Shape of the tile that the groups describe."""
    return tuple(math.prod(sizes[d] for d in digits) for _, digits in groups)


def find_run(groups: Groups, run: Sequence[int]) -> Spot | None:
    """Where the digits lie side by side in this order, if they do."""
    for g, (_, digits) in enumerate(groups):
        if run[0] in digits:
            p = digits.index(run[0])
            return (g, p) if digits[p : p + len(run)] == tuple(run) else None
    return None


def place_run(problem: Problem, groups: Groups, run: Sequence[int]) -> Spot | None:
    """Where digits that become free belong, if they belong side by side."""
    homes = {problem.digits[d].home for d in run}
    if len(homes) > 1 or list(run) != sorted(run):
        return None
    between = set(range(run[0], run[-1])) - set(run)
    spot: Spot | None = None
    for g, (home, digits) in enumerate(groups):
        if not between.isdisjoint(digits):
            return None
        if home not in homes or (
            spot is not None and spot[1] < len(groups[spot[0]][1])
        ):
            continue
        spot = (g, sum(d < run[0] for d in digits))
    return spot


def split_at(groups: Groups, spot: Spot) -> tuple[Groups, int]:
    """Split the group in front of the spot; also the group that then starts there."""
    g, p = spot
    if p == 0:
        return groups, g
    home, digits = groups[g]
    halves = ((home, digits[:p]), (home, digits[p:]))
    return groups[:g] + halves + groups[g + 1 :], g + 1


def without(groups: Groups, digits: Iterable[int]) -> Groups:
    """The groups less some digits; an emptied group stays, a dim of one element."""
    gone = set(digits)
    return tuple((h, tuple(d for d in ds if d not in gone)) for h, ds in groups)


def put(groups: Groups, g: int, digits: Sequence[int]) -> Groups:
    """The groups with digits put in front of group `g`."""
    home, old = groups[g]
    return (*groups[:g], (home, tuple(digits) + old), *groups[g + 1 :])


def shuffle(sizes: Sequence[int], old: Groups, new: Groups) -> tuple[Step, ...]:
    """The local step from one grouping of the same digits to another, if needed."""
    before = [d for _, digits in old for d in digits]
    after = [d for _, digits in new for d in digits]
    shape = tile_shape(sizes, new)
    if before == after:
        if tile_shape(sizes, old) == shape:
            return ()
        return (Shuffle(shape, tuple(range(len(shape))), shape),)
    runs: list[list[int]] = []
    for digit in before:
        if runs and _follows(after, runs[-1][-1], digit):
            runs[-1].append(digit)
        else:
            runs.append([digit])
    order = sorted(range(len(runs)), key=lambda r: after.index(runs[r][0]))
    split = tuple(math.prod(sizes[d] for d in run) for run in runs)
    return (Shuffle(split, tuple(order), shape),)


def _follows(order: Sequence[int], digit: int, other: int) -> bool:
    i = order.index(digit) + 1
    return i < len(order) and order[i] == other


def moves_data(step: Shuffle) -> bool:
    """Whether a shuffle is more than a reshape."""
    moved = [p for p in step.perm if step.split[p] > 1]
    return moved != sorted(moved)


def tidy(tile: tuple[int, ...], steps: Iterable[Step]) -> tuple[Step, ...]:
    """Drop reshapes that another overwrites, and local steps that change nothing."""
    result: list[Step] = []
    shapes = [tile]
    for step in steps:
        last = result[-1] if result else None
        if isinstance(step, Shuffle) and isinstance(last, Shuffle):
            if not moves_data(last):
                result.pop()
                shapes.pop()
            elif not moves_data(step):
                result[-1] = Shuffle(last.split, last.perm, step.shape)
                shapes[-1] = step.shape
                continue
        result.append(step)
        shapes.append(step_result_shape(step, shapes[-1]))
        is_idle = isinstance(step, Shuffle) and not moves_data(step)
        if (is_idle or isinstance(step, Resize)) and shapes[-1] == shapes[-2]:
            result.pop()
            shapes.pop()
    return tuple(result)
