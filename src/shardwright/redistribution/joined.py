"""A layout on a mesh of its own: one axis for each dim that it cuts, one for replicas.

Partitioners that know tiles but no axes find schedules this way: 24 tiles are 3 x 8 as
well as 8 x 3, whatever axes they were cut by, and replicas may be told apart in any
order. Here they are in the order of their device numbers.
"""

from __future__ import annotations

import numpy as np

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, ways

REPLICAS = "replica"
"""The axis along which devices hold the same."""


def joined(layout: Layout) -> Layout:
    """The same layout on the joined mesh: every device has the tile it had."""
    mesh = layout.mesh
    positions = np.arange(mesh.num_devices)
    tile = np.zeros_like(positions)
    for axes in layout.dims:
        for axis in axes:
            coordinate = positions // mesh.stride(axis) % axis.size
            tile = tile * axis.size + coordinate
    ids = np.array([mesh.device_id(p) for p in positions.tolist()])
    order = np.lexsort((ids, tile))
    names = [f"dim{d}" if axes else "" for d, axes in enumerate(layout.dims)]
    cut = [(name, ways(a)) for name, a in zip(names, layout.dims, strict=True) if name]
    replicas = mesh.num_devices // ways(layout.used_axes)
    own = Mesh((*cut, (REPLICAS, replicas)), tuple(ids[order].tolist()))
    return Layout(own, tuple((own.axis(name),) if name else () for name in names))
