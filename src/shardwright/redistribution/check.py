"""The exact check of a schedule: move index sets through its steps.

Every device's tile is filled with the global indices it holds and, where it is
partial, with the set of parts it has; the steps are run on those; what arrives must
be the target's indices, each with every part exactly once. Axes that no step and no
difference of layouts touches are left out, and runs of elements that every step moves
as one are shortened. An exchange of many elements is followed box by box.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import CheckSizeError, PlanError
from shardwright.program.layout import Box, Layout
from shardwright.program.mesh import Mesh, SubAxis, positions_by_group, ways
from shardwright.program.schedule import (
    Exchange,
    Fold,
    Resize,
    Schedule,
    Shuffle,
    Step,
)
from shardwright.redistribution.check_pieces import check_pieces, follows_units
from shardwright.redistribution.exchange_boxes import corners
from shardwright.redistribution.shrink import shrink
from shardwright.redistribution.simulate import Tiles, simulate

MAX_ELEMENTS = 1 << 27
"""Most elements, over all devices, that are followed one by one."""

MANY_ELEMENTS = 1 << 22
"""Above this, an exchange is followed box by box."""

_PADDING = -1


def check_schedule(schedule: Schedule) -> None:
    """Raise a PlanError unless the steps take source to target exactly.

    A schedule that is too large to follow element by element, after all that moves
    as one has been joined, is a CheckSizeError, a PlanError: nothing passes unseen.
    """
    if schedule.slabs is not None:  # all slabs are alike
        part = dataclasses.replace(schedule, shape=schedule.slabs.shape, slabs=None)
        check_schedule(part)
        return
    problem = _projected(schedule)
    count = problem.mesh.num_devices * math.prod(problem.source_tile)
    if count > MANY_ELEMENTS and _is_plain_exchange(problem):
        _check_boxes(problem)
        return
    if count > MANY_ELEMENTS and _is_dealt(problem):
        check_pieces(
            problem.source, problem.target, problem.shape, problem.steps, problem.owed
        )
        return
    if count > MAX_ELEMENTS:
        raise CheckSizeError(
            f"schedule {schedule.source} -> {schedule.target} of shape "
            f"{schedule.shape} is too large to check: {count} elements"
        )
    tiles = simulate(
        problem.mesh, problem.steps, problem.fill(), _join_parts, _no_parts
    )
    problem.compare(tiles)


@dataclasses.dataclass(frozen=True, slots=True)
class _Check:
    """A schedule on the axes that matter."""

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

    def box(self, layout: Layout, shape: tuple[int, ...], position: int) -> Box:
        """Global indices of a tile, at a position of the steps' mesh."""
        place = self._place(layout, position)
        if place is None:
            return tuple((0, 0) for _ in shape)
        return layout.tile_box(shape, place)

    def corner(
        self, layout: Layout, shape: tuple[int, ...], position: int
    ) -> tuple[int, ...]:
        """Where the stored tile begins, which may be past the tensor's end."""
        place = self._place(layout, position)
        return (0,) * len(shape) if place is None else corners(layout, shape)[place]

    def _place(self, layout: Layout, position: int) -> int | None:
        """Where the device at a position of the steps' mesh stands on the layout's."""
        if layout.mesh == self.mesh:
            return position
        device = self.mesh.device_id(position)
        if device not in self._devices(layout):
            return None
        return layout.mesh.position_of(device)

    def _devices(self, layout: Layout) -> Container[int]:
        ids = layout.mesh.device_ids
        return range(layout.mesh.num_devices) if ids is None else ids

    def _indices(
        self, layout: Layout, shape: tuple[int, ...], position: int
    ) -> NDArray[np.int64]:
        """Global row-major indices of a tile, told apart over kept partial axes."""
        result = np.zeros((), np.int64)
        inside = np.ones((), bool)
        tiles = layout.tile_shape(shape)
        place = self._place(layout, position)
        if place is None:  # this device has no part in the layout
            return np.full(tiles, _PADDING)
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
    has = (tiles["parts"] != 0).any(-1)  # a member without parts may hold anything
    first = np.argmax(has, axis=1)[:, None]
    result = np.take_along_axis(tiles, first, 1)[:, 0]
    same = ((tiles["index"] == result["index"][:, None]) | ~has).all(1)
    union = _or_disjoint(np.ascontiguousarray(tiles["parts"]))
    result["parts"] = np.where(same[..., None], union, np.uint64(0))
    return result


def _no_parts(reducer: str, tiles: Tiles) -> Tiles:
    result = tiles.copy()
    result["parts"] = 0
    return result


# Projection -----------------------------------------------------------------


def _projected(schedule: Schedule) -> _Check:
    """The schedule on the axes that matter, shrunk."""
    source, target = schedule.source, schedule.target
    if schedule.steps_mesh is not None:
        shape, steps = schedule.shape, schedule.steps
        across = _Check(schedule.mesh, source, target, shape, shape, steps, (), (), ())
        return _shrunk(across) or across
    kept = tuple(a for a, r in source.partial if (a, r) in target.partial)
    owed = tuple(a for a, r in source.partial if (a, r) not in target.partial)
    new = tuple(a for a, r in target.partial if (a, r) not in source.partial)
    old_shape = source.view_shape(schedule.shape)
    new_shape = target.view_shape(schedule.shape)
    old_dims, new_dims = source.dims, target.dims
    if old_shape == new_shape:
        touched = {axis.name for step in schedule.steps for axis in _axes(step)}
        agreed = [
            old == new and touched.isdisjoint(axis.name for axis in old)
            for old, new in zip(old_dims, new_dims, strict=True)
        ]
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
    whole = _Check(
        mesh, before, after, old_shape, new_shape, schedule.steps, kept, owed, new
    )
    return _shrunk(whole) or whole


def _axes(step: Step) -> tuple[SubAxis, ...]:
    return () if isinstance(step, Shuffle | Resize | Fold) else step.axes


def _shrunk(check: _Check) -> _Check | None:
    """The same check with runs that move as one shortened, where that can be."""
    uneven = [n % ways(a) for n, a in zip(check.shape, check.source.dims, strict=True)]
    late = [
        n % ways(a) for n, a in zip(check.target_shape, check.target.dims, strict=True)
    ]
    if any(late) and check.shape != check.target_shape:
        return None
    kept = [bool(n) for n in uneven]
    if check.shape == check.target_shape:
        kept = [bool(a or b) for a, b in zip(uneven, late, strict=True)]
    small = shrink(check.steps, check.source_tile, kept)
    if small is None:
        return None
    shape, target_shape = list(check.shape), list(check.target_shape)
    for sizes, layout, tile in (
        (shape, check.source, small.first),
        (target_shape, check.target, small.last),
    ):
        if len(tile) != len(sizes):
            return None
        for d, axes in enumerate(layout.dims):
            if not (d < len(kept) and kept[d]):
                sizes[d] = tile[d] * ways(axes)
    same_shape = check.shape == check.target_shape
    if math.prod(shape) != math.prod(target_shape):
        return None
    if same_shape and shape != target_shape:
        return None
    return dataclasses.replace(
        check,
        shape=tuple(shape),
        target_shape=tuple(target_shape),
        steps=small.steps,
    )


# Boxes ------------------------------------------------------------------------


def _is_plain_exchange(check: _Check) -> bool:
    is_exchange = len(check.steps) == 1 and isinstance(check.steps[0], Exchange)
    return is_exchange and not (check.kept or check.owed or check.unreduced)


def _is_dealt(check: _Check) -> bool:
    """Whether the steps reduce by exchanges of runs of units alone."""
    if check.kept or check.unreduced or check.shape != check.target_shape:
        return False
    tiles = check.source_tile, check.target.tile_shape(check.shape)
    return bool(check.owed) and follows_units(check.steps, *tiles)


def _check_boxes(check: _Check) -> None:
    """Every box comes from where its indices lie, and boxes tile the target's."""
    (step,) = check.steps
    assert isinstance(step, Exchange)
    table = positions_by_group(check.mesh, step.axes)
    got: dict[int, list[Box]] = {p: [] for p in range(check.mesh.num_devices)}
    for group in table.tolist():
        for r in step.all_rounds:
            for s, t in r.pairs:
                old = check.corner(check.source, check.shape, group[s])
                new = check.corner(check.target, check.target_shape, group[t])
                sent, written = (
                    tuple(
                        (start + o, start + o + n)
                        for start, o, n in zip(at, offsets, r.shape, strict=True)
                    )
                    for at, offsets in ((old, r.read[s]), (new, r.write[t]))
                )
                held = tuple(
                    (a, a + n) for a, n in zip(old, check.source_tile, strict=True)
                )
                is_there = check.box(check.source, check.shape, group[s])
                if sent != written or not _inside(sent, held):
                    raise PlanError(
                        f"wrong schedule: device {group[t]} of {check.mesh} is sent "
                        f"{sent} by device {group[s]}, which holds {held}, and writes "
                        f"it at {written}"
                    )
                if math.prod(b - a for a, b in is_there):
                    got[group[t]].append(written)
    for position, boxes in got.items():
        new = check.box(check.target, check.target_shape, position)
        if not _covered(new, boxes):
            raise PlanError(
                f"wrong schedule: device {position} of {check.mesh} should hold {new} "
                f"and is sent {boxes}"
            )


def _covered(box: Box, boxes: list[Box]) -> bool:
    """Whether the boxes together hold the box: cells between all their ends."""
    ends = [
        sorted({a, b, *(e for other in boxes for e in other[d] if a < e < b)})
        for d, (a, b) in enumerate(box)
    ]
    held = np.zeros([len(e) - 1 for e in ends], bool)
    for other in boxes:
        window = (
            slice(np.searchsorted(e, a), np.searchsorted(e, b))
            for e, (a, b) in zip(ends, other, strict=True)
        )
        held[tuple(window)] = True
    return bool(held.all())


def _inside(box: Box, other: Box) -> bool:
    return all(c <= a and b <= d for (a, b), (c, d) in zip(box, other, strict=True))
