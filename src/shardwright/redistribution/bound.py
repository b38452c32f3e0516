"""The least that some device must receive, whatever the schedule.

Without partial values, device d must be sent its target tile less what it holds:
max over d of |T_d - S_d|. That much is needed and enough.

From a partial source, over p > 1 devices. No device holds a finished element, so a
device must receive at least one value for each element of its target tile: |T_d|.
And over all devices: take one element that q devices want. Each of its p parts lies
on devices of its own, so the first device to know all p has let at least p - 1
messages be received (the others must reach it), and each of the other q - 1 must
receive at least one more: p + q - 2 in all (for q = p the known 2p - 2 of gossip).
Where nobody who wants the element holds a part, one more: either the first to know
all does not want it, or it began with none. Of N elements N / M have such a device:
an axis that cuts one digit before and another after has it for those elements alone
whose two digits are equal. Summed over the elements and shared out evenly over D
devices,

    bound = max( max_d |T_d|,  (N (p - 1) - N / M + sum_d |T_d|) / D ).

For p devices this is (p-1)/p N for a reduce-scatter and 2 (p-1)/p N for an
all-reduce, which both reach. Where the work cannot be shared out evenly the least is
more, and `shares` finds it. D counts every device of the mesh that plays a part or
stands idle: replicas can share the work, and the bound says so. Elements are taken
to travel whole; a message carries one value.

Into a target that is newly partial over u devices, any of the u may hold an element:
they must together receive |T| less what they hold, one of them at least 1/u of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardwright.program.layout import Layout
from shardwright.program.mesh import SubAxis, ways
from shardwright.program.types import dtype_bits
from shardwright.redistribution.project import FREE, Problem, project

MAX_POSITIONS = 1 << 20
"""Most devices over which boxes are compared one by one."""


def lower_bound(
    shape: tuple[int, ...], dtype: str, source: Layout, target: Layout
) -> int:
    """Bytes that the device which receives most must receive, under any schedule."""
    if math.prod(shape) == 0:
        return 0
    problem = project(shape, source, target)
    if problem is None:
        elements = by_boxes(shape, source, target)
    else:
        elements = by_digits(problem, shape, source, target)
    return -(-elements * dtype_bits(dtype) // 8)


def by_digits(
    problem: Problem, shape: tuple[int, ...], source: Layout, target: Layout
) -> int:
    """Elements, where source and target share digits: no device is looked at.

    A digit on two different atoms leaves some device with nothing of its tile;
    a digit that becomes free leaves each device one value of it.
    """
    digits = problem.digits
    whole = math.prod(d.size for d in digits)
    tile = math.prod(d.size for d in digits if d.target == FREE)
    if problem.owed:
        parts = math.prod(problem.atoms[a].size for a, _ in problem.owed)
        return _of_partial(problem, source, target, parts, whole, tile)
    unreduced = math.prod(problem.atoms[a].size for a, _ in problem.unreduced)
    if any(d.source != FREE != d.target for d in digits):
        held = 0
    else:
        kept = [d.size for d in digits if d.source != FREE]
        held = tile // math.prod(kept)
    return max(0, -(-(tile - unreduced * held) // unreduced))


def _of_partial(
    problem: Problem,
    source: Layout,
    target: Layout,
    parts: int,
    whole: int,
    tile: int,
) -> int:
    unreduced = math.prod(problem.atoms[a].size for a, _ in problem.unreduced)
    devices = source.mesh.num_devices // _agreed_ways(problem, source, target)
    wanted = devices * tile // unreduced
    shared = -(
        -(whole * (parts - 1) - whole // _turned_ways(problem) + wanted) // devices
    )
    return max(-(-tile // unreduced), shared)


def _turned_ways(problem: Problem) -> int:
    """Of how many elements one has a device that holds a part of it and wants it.

    An atom that cuts one digit before and another after asks that the two be equal,
    unless others along the way ask so already.
    """
    wants = {d.target: i for i, d in enumerate(problem.digits) if d.target != FREE}
    equal = list(range(len(problem.digits)))  # the first digit that each must equal
    found = 1
    for i, digit in enumerate(problem.digits):
        j = wants.get(digit.source, i) if digit.source != FREE else i
        if equal[i] != equal[j]:
            found *= digit.size
            equal = [equal[i] if first == equal[j] else first for first in equal]
    return found


def _agreed_ways(problem: Problem, source: Layout, target: Layout) -> int:
    """Ways of the axes that source and target use alike."""
    moving = {a for d in problem.digits for a in (d.source,) if a != FREE}
    moving |= {a for a, _ in problem.owed}
    return ways(source.used_axes) // math.prod(problem.atoms[a].size for a in moving)


# Where there are no common digits ----------------------------------------------


def by_boxes(shape: tuple[int, ...], source: Layout, target: Layout) -> int:
    """Elements, by comparing the boxes of every device of the axes in use."""
    if source.partial != target.partial:
        return _of_partial_boxes(shape, source, target)
    if source.view != target.view:
        held = math.prod(source.tile_shape(shape))
        return max(0, _largest_tile(shape, target) - held)
    axes = _axes_in_use(source, target)
    if math.prod(n for _, n in axes) > MAX_POSITIONS:
        return 0
    wanted, held = _overlaps(shape, source, target, axes)
    return int((wanted - held).max())


def _overlaps(
    shape: tuple[int, ...],
    source: Layout,
    target: Layout,
    axes: Sequence[tuple[str, int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Elements that each device wants, and how many of those it holds; on the axes."""
    wanted = held = np.ones([n for _, n in axes], np.int64)
    for d, size in enumerate(source.view_shape(shape)):
        old = _ranges(source, d, size, axes)
        new = _ranges(target, d, size, axes)
        common = np.minimum(old[1], new[1]) - np.maximum(old[0], new[0])
        wanted = wanted * (new[1] - new[0])
        held = held * np.maximum(common, 0)
    return wanted, held


def _of_partial_boxes(shape: tuple[int, ...], source: Layout, target: Layout) -> int:
    """The formula for partial values, its terms counted over the devices' boxes."""
    new = ways([axis for axis, r in target.partial if (axis, r) not in source.partial])
    owed = ways([axis for axis, r in source.partial if (axis, r) not in target.partial])
    least = -(-_largest_tile(shape, target) // new) if owed > 1 else 0
    mesh = source.mesh
    is_counted = owed > 1 and new == 1 and mesh.num_devices <= MAX_POSITIONS
    if source.view != target.view or not is_counted:
        return least
    kept = [axis for axis, r in source.partial if (axis, r) in target.partial]
    wanted, held = _overlaps(shape, source, target, mesh.axes)
    # Tiles of one layout are the same or apart, and so are what is common of two.
    place = np.zeros_like(held)
    for axes in (*source.dims, *target.dims, kept):
        for axis in axes:
            place = place * axis.size + _coordinates(axis, mesh.axes)
    _, first = np.unique(place, return_index=True)
    has_part = int(held.reshape(-1)[first].sum())
    elements = math.prod(shape) * ways(kept)
    received = elements * (owed - 1) - has_part + int(wanted.sum())
    return max(least, -(-received // mesh.num_devices))


def _largest_tile(shape: tuple[int, ...], layout: Layout) -> int:
    sizes = zip(layout.view_shape(shape), layout.view_tile_shape(shape), strict=True)
    return math.prod(min(n, tile) for n, tile in sizes)


def _axes_in_use(source: Layout, target: Layout) -> list[tuple[str, int]]:
    names = {axis.name for layout in (source, target) for axis in layout.used_axes}
    return [(name, n) for name, n in source.mesh.axes if name in names]


def _ranges(
    layout: Layout, d: int, size: int, axes: Sequence[tuple[str, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and stop of every device's tile in dim `d`, a grid over the axes."""
    index = np.zeros([1] * len(axes), np.int64)
    for axis in layout.dims[d]:
        index = index * axis.size + _coordinates(axis, axes)
    tile = -(-size // ways(layout.dims[d]))
    start = np.minimum(index * tile, size)
    return start, np.minimum(start + tile, size)


def _coordinates(axis: SubAxis, axes: Sequence[tuple[str, int]]) -> NDArray[np.int64]:
    position = [name for name, _ in axes].index(axis.name)
    n = axes[position][1]
    values = np.arange(n, dtype=np.int64) // (n // axis.end) % axis.size
    return values.reshape([n if i == position else 1 for i in range(len(axes))])
