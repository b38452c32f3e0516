"""From a layout on one mesh to a layout on another mesh of the same devices.

The meshes may order the devices as they like, so boxes are compared device by device
and moved by a direct exchange over all of them.
"""

from __future__ import annotations

import math

from shardwright.errors import PlanError
from shardwright.program.layout import Box, Layout
from shardwright.program.mesh import Mesh
from shardwright.program.schedule import Exchange, Schedule
from shardwright.program.types import dtype_bits
from shardwright.redistribution.choose import chosen, priced, ranked_by_price
from shardwright.redistribution.exchange import direct_exchange
from shardwright.redistribution.routes import MAX_MEMBERS, Request
from shardwright.redistribution.sequences import Prices
from shardwright.topology import Topology

DEVICES = "device"
"""The one axis of the mesh that the steps speak of: the logical devices in order."""


def plan_across(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
) -> Schedule:
    """The cheapest exchange between layouts on two meshes of the same devices.

    The steps' mesh is one axis over all devices. A PlanError where the layouts are
    partial or strided, or more than 1024 devices take part.
    """
    count = source.mesh.num_devices
    if count != target.mesh.num_devices:
        raise PlanError(
            f"mesh {source.mesh} has {count} devices, mesh {target.mesh} "
            f"{target.mesh.num_devices}; both must be over the same devices"
        )
    if source.partial or target.partial or source.view or target.view:
        raise PlanError(
            f"cannot move {source} to {target} on another mesh: reduce it first"
        )
    if count > MAX_MEMBERS:
        raise PlanError(
            f"{count} devices are too many for a move between meshes whose axes do "
            f"not fit together (at most {MAX_MEMBERS}); go by a layout that both have"
        )
    mesh = Mesh(((DEVICES, count),))
    old, new = (_boxes(layout, shape) for layout in (source, target))
    tiles = source.tile_shape(shape), target.tile_shape(shape)
    unit = tuple(math.gcd(a, b) for a, b in zip(*tiles, strict=True))
    request = Request(shape, source, target, Prices(topology, mesh, dtype))
    found: dict[tuple[Exchange, ...], None] = {}
    for pieces in (None, unit):
        step = direct_exchange(mesh.whole_axes(), old, new, tiles[1], pieces)
        if step is not None:
            found[step,] = None
    if not found:
        raise PlanError(
            f"a move of shape {shape} from {source} to {target} takes too many pieces"
        )
    ranked = ranked_by_price(priced(request, "exchange", s) for s in found)
    elements = max(_missing(a, b) for a, b in zip(old, new, strict=True))
    bound = -(-elements * dtype_bits(dtype) // 8)
    return chosen(request, ranked, bound, steps_mesh=mesh)


def _boxes(layout: Layout, shape: tuple[int, ...]) -> list[Box]:
    """What each logical device holds."""
    mesh = layout.mesh
    found: list[Box] = [()] * mesh.num_devices
    for position in range(mesh.num_devices):
        found[mesh.device_id(position)] = layout.tile_box(shape, position)
    return found


def _missing(old: Box, new: Box) -> int:
    """Elements of the new box that the old one lacks."""
    wanted = math.prod(b - a for a, b in new)
    common = math.prod(
        max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in zip(old, new, strict=True)
    )
    return wanted - common
