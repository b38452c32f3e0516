"""A schedule made small for its check: what is moved as one becomes two elements.

Every dim of a tile is a list of *runs*, major to minor. A step splits runs where it
acts: the chunks it hands out or puts together stay as they are, since devices differ
in them; all other runs are the same on every device and go through every step whole,
so each is shortened to two elements, which is enough to notice where two of them
change places.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from shardwright.program.mesh import ways
from shardwright.program.schedule import (
    AllGather,
    AllToAll,
    Exchange,
    Fold,
    ReduceScatter,
    Resize,
    Round,
    Shuffle,
    Slice,
    Step,
)


class MisfitError(Exception):
    """A step acts on a part of a run that does not divide it."""


class _Run:
    """A factor of a dim's index; when split, its parts stand for it everywhere."""

    def __init__(self, size: int, *, kept: bool = False) -> None:
        self.size = size
        self.kept = kept
        self.parts: tuple[_Run, _Run] | None = None

    def split(self, major: int) -> None:
        if self.size % major:
            raise MisfitError
        first, second = _Run(major), _Run(self.size // major)
        first.kept = second.kept = self.kept
        self.parts = (first, second)

    def new_size(self) -> int:
        if self.parts is not None:
            return self.parts[0].new_size() * self.parts[1].new_size()
        return self.size if self.kept else min(self.size, 2)


Runs = list[_Run]


def _whole(runs: Sequence[_Run]) -> Runs:
    """The runs with split ones replaced by their parts."""
    result: Runs = []
    for run in runs:
        result += [run] if run.parts is None else _whole(run.parts)
    return result


def _size(runs: Sequence[_Run]) -> int:
    return math.prod(run.size for run in runs)


def _new_size(runs: Sequence[_Run]) -> int:
    return math.prod(run.new_size() for run in runs)


def _cut(runs: Sequence[_Run], major: int) -> tuple[Runs, Runs]:
    """Runs whose product is `major`, and the rest."""
    front: Runs = []
    rest = _whole(runs)
    while major > 1:
        if not rest:
            raise MisfitError
        run = rest.pop(0)
        if run.size > 1 and major % run.size:
            if run.size % major:
                run = _joined(run, rest, major // math.gcd(major, run.size))
            run.split(major)
            assert run.parts is not None
            run, tail = run.parts
            rest.insert(0, tail)
        major //= run.size
        front.append(run)
    return front, rest


def _joined(run: _Run, rest: Runs, more: int) -> _Run:
    """One run of this one and `more` ways of the next, for cuts that cross both."""
    if not rest:
        raise MisfitError
    following = rest.pop(0)
    if following.size != more:
        following.split(more)
        assert following.parts is not None
        following, tail = following.parts
        rest.insert(0, tail)
    _keep((run, following))
    return _Run(run.size * more, kept=True)


def _keep(runs: Sequence[_Run]) -> None:
    for run in _whole(runs):
        run.kept = True


@dataclasses.dataclass(frozen=True, slots=True)
class Small:
    """Steps on shortened tiles, and the shape of the first and of the last tile."""

    steps: tuple[Step, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


def shrink(
    steps: Sequence[Step],
    tile: Sequence[int],
    kept: Sequence[bool],
) -> Small | None:
    """The same steps on shorter runs; None where a step does not divide them.

    `kept` says of which dims of the first tile every element matters, as where tiles
    are padded.
    """
    dims: list[Runs] = [[_Run(n, kept=k)] for n, k in zip(tile, kept, strict=True)]
    first = dims
    makers: list[Any] = []
    try:
        for step in steps:
            dims, maker = _follow(step, list(dims))
            makers.append(maker)
    except MisfitError:
        return None
    return Small(
        tuple(maker() for maker in makers),
        tuple(map(_new_size, first)),
        tuple(map(_new_size, dims)),
    )


def _follow(step: Step, dims: list[Runs]) -> tuple[list[Runs], Any]:
    """Dims after the step, and what gives the shortened step once all is known."""
    match step:
        case Slice() | ReduceScatter():
            chunks, dims[step.dim] = _cut(dims[step.dim], ways(step.axes))
            _keep(chunks)
        case AllGather():
            joined = _Run(ways(step.axes), kept=True)
            dims[step.dim] = [joined, *dims[step.dim]]
        case AllToAll():
            chunks, dims[step.split_dim] = _cut(dims[step.split_dim], ways(step.axes))
            _keep(chunks)
            joined = _Run(ways(step.axes), kept=True)
            dims[step.concat_dim] = [joined, *dims[step.concat_dim]]
        case Fold():
            _keep(dims[0])
            dims = dims[1:]
        case Shuffle():
            return _shuffled(step, dims)
        case Resize():
            return _resized(step, dims)
        case Exchange():
            return _exchanged(step, dims)
        case _:
            pass
    return dims, lambda: step


def _shuffled(step: Shuffle, dims: list[Runs]) -> tuple[list[Runs], Any]:
    split = _regrouped([run for runs in dims for run in runs], step.split)
    moved = [run for p in step.perm for run in split[p]]
    after = _regrouped(moved, step.shape)

    def make() -> Step:
        new_split, new_shape = map(_new_size, split), map(_new_size, after)
        return Shuffle(tuple(new_split), step.perm, tuple(new_shape))

    return after, make


def _regrouped(runs: Sequence[_Run], shape: Sequence[int]) -> list[Runs]:
    """The runs, in order, as dims of these sizes."""
    rest: Runs = list(runs)
    dims: list[Runs] = []
    for n in shape:
        dim, rest = _cut(rest, n)
        dims.append(dim)
    if _size(rest) != 1:
        raise MisfitError
    return dims


def _resized(step: Resize, dims: list[Runs]) -> tuple[list[Runs], Any]:
    after: list[Runs] = []
    for runs, n in zip(dims, step.shape, strict=True):
        if _size(runs) == n:
            after.append(runs)
        else:
            _keep(runs)
            after.append([_Run(n, kept=True)])
    return after, lambda: Resize(tuple(map(_new_size, after)))


def _exchanged(step: Exchange, dims: list[Runs]) -> tuple[list[Runs], Any]:
    units: list[Runs] = []
    lengths: list[int] = []
    after: list[Runs] = []
    for d, runs in enumerate(dims):
        places = (o[d] for r in step.all_rounds for o in (*r.read, *r.write))
        sizes = (r.shape[d] for r in step.all_rounds)
        unit = math.gcd(_size(runs), step.shape[d], *sizes, *places)
        front, inner = _cut(runs, _size(runs) // unit) if unit else (runs, [])
        _keep(front)
        units.append(inner)
        lengths.append(max(1, unit))
        count = step.shape[d] // max(1, unit)
        after.append([_Run(count, kept=True), *inner])

    def scaled(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            v // n * _new_size(unit)
            for v, n, unit in zip(values, lengths, units, strict=True)
        )

    def make() -> Step:
        rounds, joined = (
            tuple(
                Round(
                    scaled(r.shape),
                    r.pairs,
                    tuple(map(scaled, r.read)),
                    tuple(map(scaled, r.write)),
                )
                for r in some
            )
            for some in (step.rounds, step.joined)
        )
        shape = tuple(map(_new_size, after))
        return Exchange(step.axes, shape, rounds, joined)

    return after, make
