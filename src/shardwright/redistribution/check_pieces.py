"""The exact check of schedules that deal pieces of units out, however large the tiles.

A *unit* is the block that divides both tiles, its elements in row-major order. Between
a shuffle that lays units one after the other and one that puts them back, each step
moves runs of them, so every tile is followed as a list of runs instead of element by
element.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from shardwright.errors import PlanError
from shardwright.program.layout import Layout
from shardwright.program.mesh import SubAxis, positions_by_group, ways
from shardwright.program.schedule import Exchange, Fold, Shuffle, Step


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """Elements from `start` up to `stop` of a tile: those of the tensor from `element`.

    Elements are numbered unit by unit. `parts` are the bits of the parts that are in.
    """

    start: int
    stop: int
    element: int
    parts: int

    def within(self, start: int, stop: int, to: int) -> _Run | None:
        """What of the run lies between, moved so that `start` comes to be at `to`."""
        first, last = max(self.start, start), min(self.stop, stop)
        if first >= last:
            return None
        shift = to - start
        element = self.element + first - self.start
        return _Run(first + shift, last + shift, element, self.parts)


Runs = list[_Run]


def follows_units(
    steps: Sequence[Step], old_tile: Sequence[int], new_tile: Sequence[int]
) -> bool:
    """Whether the steps are exchanges and folds of units that lie one after another."""
    begun, middle, ended = _parted(steps)
    unit = [math.gcd(*pair) for pair in zip(old_tile, new_tile, strict=True)]
    return (
        all(isinstance(s, Exchange | Fold) or _is_reshape(s) for s in middle)
        and all(_is_flat(s) for s in middle if isinstance(s, Exchange))
        and _order(begun) == _order(_to_units(old_tile, unit))
        and _order(ended) == _order(_from_units(new_tile, unit))
    )


def check_pieces(
    source: Layout,
    target: Layout,
    shape: tuple[int, ...],
    steps: Sequence[Step],
    owed: Sequence[SubAxis],
) -> None:
    """Raise a PlanError unless each device ends with its elements, all parts in."""
    mesh, whole = source.mesh, (1 << ways(owed)) - 1
    old_tile, new_tile = source.tile_shape(shape), target.tile_shape(shape)
    unit = tuple(math.gcd(*pair) for pair in zip(old_tile, new_tile, strict=True))
    tiles = [
        list(_units(source, shape, unit, p, 1 << mesh.index(p, owed)))
        for p in range(mesh.num_devices)
    ]
    begun, middle, _ = _parted(steps)
    tile_shape = begun.shape if begun else old_tile
    for step in middle:
        if isinstance(step, Exchange):
            groups = positions_by_group(mesh, step.axes).tolist()
            tiles = _exchanged(step, groups, tiles, tile_shape)
            tile_shape = step.shape
        elif isinstance(step, Fold):
            tile_shape = tile_shape[1:]
            tiles = [_folded(runs, math.prod(tile_shape)) for runs in tiles]
        elif isinstance(step, Shuffle):
            tile_shape = step.shape
    for p, runs in enumerate(tiles):
        wanted = _joined(_units(target, shape, unit, p, whole))
        if _joined(runs) != wanted:
            raise PlanError(
                f"wrong schedule: device {p} of {mesh} holds {_joined(runs)}; it "
                f"should hold {wanted}"
            )


def _parted(
    steps: Sequence[Step],
) -> tuple[Shuffle | None, Sequence[Step], Shuffle | None]:
    """A shuffle at the beginning, if any, what follows, and a shuffle at the end."""
    first = steps[0] if steps else None
    begun = first if isinstance(first, Shuffle) else None
    rest = steps[1:] if begun else steps
    last = rest[-1] if rest else None
    ended = last if isinstance(last, Shuffle) else None
    return begun, rest[:-1] if ended else rest, ended


def _to_units(tile: Sequence[int], unit: Sequence[int]) -> Shuffle:
    counts = [n // u for n, u in zip(tile, unit, strict=True)]
    split = tuple(itertools.chain.from_iterable(zip(counts, unit, strict=True)))
    apart = (*range(0, len(split), 2), *range(1, len(split), 2))
    return Shuffle(split, apart, (math.prod(tile),))


def _from_units(tile: Sequence[int], unit: Sequence[int]) -> Shuffle:
    counts = [n // u for n, u in zip(tile, unit, strict=True)]
    rank = len(unit)
    together = tuple(i + half for i in range(rank) for half in (0, rank))
    return Shuffle((*counts, *unit), together, tuple(tile))


def _order(step: Shuffle | None) -> list[tuple[int, int]]:
    """What the shuffle does to row-major order: (stride, size), neighbours joined."""
    if step is None:
        return []
    found: list[tuple[int, int]] = []
    strides = [math.prod(step.split[i + 1 :]) for i in range(len(step.split))]
    for p in step.perm:
        stride, size = strides[p], step.split[p]
        if size == 1:
            continue
        if found and found[-1][0] == stride * size:
            size *= found.pop()[1]
        found.append((stride, size))
    return found if len(found) > 1 else []


def _is_reshape(step: Step) -> bool:
    return isinstance(step, Shuffle) and not _order(step)


def _is_flat(step: Exchange) -> bool:
    """Whether each box is one run of its tile."""
    rounds = step.all_rounds
    return not step.joined and all(math.prod(r.shape[:-1]) == 1 for r in rounds)


def _units(
    layout: Layout, shape: Sequence[int], unit: Sequence[int], p: int, parts: int
) -> Iterator[_Run]:
    """The units that a position's tile holds, in order."""
    size = math.prod(unit)
    counts = [n // u for n, u in zip(shape, unit, strict=True)]
    held = [
        range(layout.mesh.index(p, axes) * n, (layout.mesh.index(p, axes) + 1) * n)
        for axes, n in zip(
            layout.dims,
            (n // ways(a) for n, a in zip(counts, layout.dims, strict=True)),
            strict=True,
        )
    ]
    for place, at in enumerate(itertools.product(*held)):
        number = 0
        for i, n in zip(at, counts, strict=True):
            number = number * n + i
        yield _Run(place * size, (place + 1) * size, number * size, parts)


def _exchanged(
    step: Exchange,
    groups: Iterable[Sequence[int]],
    tiles: Sequence[Runs],
    tile_shape: Sequence[int],
) -> list[Runs]:
    made: list[Runs] = [[] for _ in tiles]
    for group in groups:
        for r in step.all_rounds:
            for s, t in r.pairs:
                start = _place(r.read[s], tile_shape)
                stop, to = start + r.shape[-1], _place(r.write[t], step.shape)
                some = (run.within(start, stop, to) for run in tiles[group[s]])
                made[group[t]] += [run for run in some if run is not None]
    return made


def _place(at: Sequence[int], shape: Sequence[int]) -> int:
    """The row-major place of an element."""
    place = 0
    for i, n in zip(at, shape, strict=True):
        place = place * n + i
    return place


def _folded(runs: Sequence[_Run], length: int) -> Runs:
    """Rows of this length laid over each other; what does not fit has no parts."""
    ends = {e % length for run in runs for e in (run.start, run.stop)}
    made: Runs = []
    for start, stop in itertools.pairwise(sorted({0, length} | ends)):
        over: Runs = []
        for run in runs:
            row = run.start // length * length
            found = run.within(row + start, row + stop, start)
            over += [found] if found else []
        if not over:
            continue
        parts, is_one = 0, True
        for run in over:
            is_one &= run.element == over[0].element and not parts & run.parts
            parts |= run.parts
        made.append(_Run(start, stop, over[0].element, parts if is_one else 0))
    return made


def _joined(runs: Iterable[_Run]) -> Runs:
    """Runs in order, those that go on joined."""
    found: Runs = []
    for run in sorted(runs, key=lambda run: run.start):
        last = found[-1] if found else None
        goes_on = (
            last is not None
            and last.stop == run.start
            and last.element + last.stop - last.start == run.element
            and last.parts == run.parts
        )
        if last is not None and goes_on:
            found[-1] = dataclasses.replace(last, stop=run.stop)
        else:
            found.append(run)
    return found
