"""The exact check of a schedule: move index sets through its steps.

Every device's tile is filled with the global indices it holds and, where it is
partial, with the set of parts it has; the steps are run on those; what arrives must
be the target's indices, each with every part exactly once. Axes that no step and no
difference of layouts touches are left out, and so is the innermost run of elements
that every step moves as one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import PlanError
from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis, positions_by_group, ways
from shardwright.program.schedule import (
    Exchange,
    Schedule,
    Shuffle,
    Step,
    step_result_shape,
)
from shardwright.redistribution.simulate import Tiles, simulate

MAX_ELEMENTS = 1 << 27
"""Most elements, over all devices, that are followed one by one."""

_PADDING = -1


def check_schedule(schedule: Schedule) -> None:
    """Raise a PlanError unless the steps take source to target exactly.

    A schedule that is too large to follow element by element, after all that moves
    as one has been joined, is a PlanError as well: nothing passes unseen.
    """
    problem = _projected(schedule)
    count = problem.mesh.num_devices * math.prod(problem.source_tile)
    if count > MAX_ELEMENTS:
        raise PlanError(
            f"schedule {schedule.source} -> {schedule.target} of shape "
            f"{schedule.shape} is too large to check: {count} elements"
        )
    tiles = simulate(
        problem.mesh, problem.steps, problem.fill(), _join_parts, _no_parts
    )
    problem.compare(tiles)


@dataclasses.dataclass(frozen=True, slots=True)
class _Check:
    """A schedule on the axes that matter, runs of `run` elements counted as one."""

    mesh: Mesh
    source: Layout
    target: Layout
    shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    steps: tuple[Step, ...]
    kept: tuple[SubAxis, ...]
    owed: tuple[SubAxis, ...]
    unreduced: tuple[SubAxis, ...]

    @property
    def source_tile(self) -> tuple[int, ...]:
        return self.source.tile_shape(self.shape)

    def fill(self) -> Tiles:
        """Every device's tile of (index, parts) before the first step."""
        parts = ways(self.owed)
        words = -(-parts // 64)
        entry = np.dtype([("index", np.int64), ("parts", np.uint64, (words,))])
        tiles = np.zeros((self.mesh.num_devices, *self.source_tile), entry)
        for p in range(self.mesh.num_devices):
            tiles[p]["index"] = self._indices(self.source, self.shape, p)
            word, bit = divmod(self.mesh.index(p, self.owed), 64)
            tiles[p]["parts"][..., word] = np.uint64(1 << bit)
        return tiles

    def compare(self, tiles: Tiles) -> None:
        """Raise a PlanError at the first element that is not what it should be."""
        parts = ways(self.owed)
        whole = np.array(
            [(1 << min(64, parts - start)) - 1 for start in range(0, parts, 64)],
            np.uint64,
        )
        shape = self.target.tile_shape(self.target_shape)
        if tiles.shape[1:] != shape:
            raise PlanError(f"the last tile has shape {tiles.shape[1:]}, not {shape}")
        held = tiles["parts"]
        if self.unreduced:
            table = positions_by_group(self.mesh, self.unreduced)
            held = held.copy()
            held[table] = _or_disjoint(held[table])[:, None]
        for p in range(self.mesh.num_devices):
            expected = self._indices(self.target, self.target_shape, p)
            wrong = expected != tiles[p]["index"]
            wrong |= (held[p] != whole).any(-1)
            wrong &= expected != _PADDING
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                raise PlanError(
                    f"wrong schedule: device {p} of {self.mesh} holds element "
                    f"{tiles[p]['index'][at]} with parts {held[p][at].tolist()} at "
                    f"{at}; it should hold element {expected[at]} with all parts"
                )

    def _indices(
        self, layout: Layout, shape: tuple[int, ...], position: int
    ) -> NDArray[np.int64]:
        """Global row-major indices of a tile, told apart over kept partial axes."""
        result = np.zeros((), np.int64)
        inside = np.ones((), bool)
        tiles = layout.tile_shape(shape)
        place = position
        if layout.mesh != self.mesh:  # the steps' positions are logical devices
            place = layout.mesh.position_of(position)
        for d, (n, tile) in enumerate(zip(shape, tiles, strict=True)):
            start = layout.mesh.index(place, layout.dims[d]) * tile
            index = np.arange(start, start + tile)
            result = result[..., None] * n + index
            inside = inside[..., None] & (index < n)
        owner = self.mesh.index(position, self.kept)
        return np.where(inside, result * ways(self.kept) + owner, _PADDING)


def _or_disjoint(parts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Union over axis 1; parts that come twice leave a union that is not whole."""
    union = np.bitwise_or.reduce(parts, axis=1)
    bits = np.unpackbits(parts.view(np.uint8), axis=-1).sum((1, -1), dtype=np.int64)
    once = np.unpackbits(union.view(np.uint8), axis=-1).sum(-1, dtype=np.int64)
    return np.where((bits == once)[..., None], union, np.uint64(0))


def _join_parts(reducer: str, tiles: Tiles) -> Tiles:
    """Reduce: members must speak of one index and have parts of their own."""
    result = tiles[:, 0].copy()
    same = (tiles["index"] == tiles["index"][:, :1]).all(1)
    union = _or_disjoint(np.ascontiguousarray(tiles["parts"]))
    result["parts"] = np.where(same[..., None], union, np.uint64(0))
    return result


def _no_parts(reducer: str, tiles: Tiles) -> Tiles:
    result = tiles.copy()
    result["parts"] = 0
    return result


# Projection -----------------------------------------------------------------


def _projected(schedule: Schedule) -> _Check:
    """The schedule on the axes that matter, innermost runs joined."""
    source, target = schedule.source, schedule.target
    if schedule.steps_mesh is not None:
        shape, steps = schedule.shape, schedule.steps
        return _Check(schedule.mesh, source, target, shape, shape, steps, (), (), ())
    kept = tuple(a for a, r in source.partial if (a, r) in target.partial)
    owed = tuple(a for a, r in source.partial if (a, r) not in target.partial)
    new = tuple(a for a, r in target.partial if (a, r) not in source.partial)
    old_shape = source.view_shape(schedule.shape)
    new_shape = target.view_shape(schedule.shape)
    old_dims, new_dims = source.dims, target.dims
    if old_shape == new_shape:
        agreed = [o == n for o, n in zip(old_dims, new_dims, strict=True)]
        old_shape = new_shape = tuple(
            -(-n // ways(axes)) if same else n
            for n, axes, same in zip(old_shape, old_dims, agreed, strict=True)
        )
        old_dims, new_dims = (
            tuple(() if same else a for a, same in zip(dims, agreed, strict=True))
            for dims in (old_dims, new_dims)
        )
    axes = [a for dims in (old_dims, new_dims) for dim in dims for a in dim]
    axes += [*kept, *owed, *new, *(a for s in schedule.steps for a in _axes(s))]
    names = {axis.name for axis in axes}
    mesh = Mesh(tuple((name, n) for name, n in source.mesh.axes if name in names))
    before, after = Layout(mesh, old_dims), Layout(mesh, new_dims)
    run = _common_run(schedule.steps, before.tile_shape(old_shape))
    run = math.gcd(run, *old_shape[-1:], *new_shape[-1:])
    run = math.gcd(run, *after.tile_shape(new_shape)[-1:])
    return _Check(
        mesh,
        before,
        after,
        _shorter(old_shape, run),
        _shorter(new_shape, run),
        tuple(_shorter_step(step, run) for step in schedule.steps),
        kept,
        owed,
        new,
    )


def _axes(step: Step) -> tuple[SubAxis, ...]:
    return () if isinstance(step, Shuffle) else step.axes


def _common_run(steps: Sequence[Step], tile: tuple[int, ...]) -> int:
    """Length of the innermost runs that no step takes apart; 0 for a scalar."""
    return math.gcd(*_runs(steps, tile))


def _runs(steps: Sequence[Step], tile: tuple[int, ...]) -> Iterator[int]:
    yield from tile[-1:]
    for step in steps:
        match step:
            case Shuffle():
                last = len(step.split) - 1
                keeps = bool(step.split) and step.perm[-1] == last
                yield step.split[-1] if keeps else 1
            case Exchange():
                for r in step.rounds:
                    yield from r.shape[-1:]
                    yield from (o[-1] for o in (*r.read, *r.write) if o)
            case _:
                pass
        tile = step_result_shape(step, tile)
        yield from tile[-1:]


def _shorter(shape: tuple[int, ...], run: int) -> tuple[int, ...]:
    return shape if run < 2 else (*shape[:-1], shape[-1] // run)


def _shorter_step(step: Step, run: int) -> Step:
    match step:
        case Shuffle():
            split, shape = _shorter(step.split, run), _shorter(step.shape, run)
            return Shuffle(split, step.perm, shape)
        case Exchange():
            rounds = tuple(
                dataclasses.replace(
                    r,
                    shape=_shorter(r.shape, run),
                    read=tuple(_shorter(o, run) for o in r.read),
                    write=tuple(_shorter(o, run) for o in r.write),
                )
                for r in step.rounds
            )
            return Exchange(step.axes, _shorter(step.shape, run), rounds)
        case _:
            return step
