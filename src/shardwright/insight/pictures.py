"""Layouts as pictures: which devices hold which tile."""

from __future__ import annotations

import itertools
from collections import defaultdict

from shardwright.program import Layout

MAX_DEVICES = 64
"""Most devices that are drawn one by one."""


def layout_picture(layout: Layout, shape: tuple[int, ...]) -> str:
    """A grid of tiles with the devices that hold each; rows are dim 0, columns dim 1.

    Further dims that are cut become slices with a title each. Layouts over more than
    64 devices are not drawn; the text then says so.
    """
    mesh = layout.mesh
    if mesh.num_devices > MAX_DEVICES:
        return f"({mesh.num_devices} devices: not drawn)"
    tiles = layout.view_tile_shape(shape)
    holders: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for position in range(mesh.num_devices):
        index = tuple(mesh.index(position, axes) for axes in layout.dims)
        holders[index].append(mesh.device_id(position))
    counts = [1 + max(index[d] for index in holders) for d in range(layout.rank)]
    while len(counts) < 2:
        counts.insert(0, 1)
    front = len(counts) - layout.rank
    lines: list[str] = []
    for rest in itertools.product(*(range(n) for n in counts[2:])):
        if any(n > 1 for n in counts[2:]):
            words = (
                f"dim {d} from {i * tiles[d]}"
                for d, i in enumerate(rest, 2)
                if counts[d] > 1
            )
            lines.append(", ".join(words))
        rows = [
            [
                ",".join(map(str, sorted(holders[(i, j, *rest)[front:]])))
                for j in range(counts[1])
            ]
            for i in range(counts[0])
        ]
        lines += _grid(rows)
    return "\n".join(lines)


def _grid(rows: list[list[str]]) -> list[str]:
    width = max(len(cell) for row in rows for cell in row)
    rule = "+" + "+".join("-" * (width + 2) for _ in rows[0]) + "+"
    lines = [rule]
    for row in rows:
        lines.append("|" + "|".join(f" {cell:^{width}} " for cell in row) + "|")
        lines.append(rule)
    return lines
