"""Device groups given one by one, as axes of a mesh: what costs are stated for."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from shardwright.program import Mesh, SubAxis


def axes_of_groups(
    groups: NDArray[np.int64], num_devices: int
) -> tuple[Mesh, tuple[SubAxis, ...]] | None:
    """A mesh over row-major devices and the axes whose groups these are.

    `groups` lists devices by [group, member]; the order of members is not kept. None
    where no axes give them, such as groups of a shuffled device list.
    """
    digits = _digits(sorted(map(int, groups[0])))
    if digits is None:
        return None
    wanted = np.sort(groups - groups.min(axis=1, keepdims=True), axis=1)
    if (wanted != wanted[0]).any():
        return None
    cuts = {1, num_devices}
    for size, stride in digits:
        cuts |= {stride, stride * size}
    bounds = sorted(cuts)
    if any(b % a for a, b in itertools.pairwise(bounds)):
        return None
    spans = list(itertools.pairwise(bounds))[::-1]
    mesh = Mesh(tuple((f"s{low}", high // low) for low, high in spans))
    names = {f"s{stride}" for _, stride in digits}
    return mesh, tuple(axis for axis in mesh.whole_axes() if axis.name in names)


def _digits(members: list[int]) -> list[tuple[int, int]] | None:
    """(size, stride) factors, minor to major, of which the members are all sums."""
    line = [m - members[0] for m in members]
    digits: list[tuple[int, int]] = []
    while len(line) > 1:
        stride = line[1]
        run = next((k for k, m in enumerate(line) if m != k * stride), len(line))
        if len(line) % run:
            return None
        for start in range(0, len(line), run):
            if any(line[start + k] != line[start] + k * stride for k in range(run)):
                return None
        digits.append((run, stride))
        line = line[::run]
    return digits
