"""One array's move in words: layouts, steps, bytes against the bound, rejects."""

from __future__ import annotations

from typing import Any

from shardwright.insight.explain import bytes_str, seconds_str, step_str
from shardwright.insight.pictures import layout_picture
from shardwright.program import Schedule, Step, TensorType, step_result_shape
from shardwright.topology import Topology, step_bytes, step_seconds

MAX_REJECTED = 6
"""Most alternatives that the text shows, the fastest ones."""


def schedule_text(schedule: Schedule, topology: Topology) -> str:
    """Both layouts as pictures, the steps with their prices, and what was rejected."""
    whole = TensorType(schedule.shape, schedule.dtype)
    lines = [f"{whole} on mesh {schedule.source.mesh}, topology {topology.name}"]
    for word, layout in (("from", schedule.source), ("to", schedule.target)):
        tile = TensorType(layout.tile_shape(schedule.shape), schedule.dtype)
        lines.append(f"{word} {layout}, tile {tile}; devices by tile:")
        picture = layout_picture(layout, schedule.shape)
        lines += [f"  {line}" for line in picture.splitlines()]
    lines.append(f"steps ({schedule.family})")
    lines += _steps(schedule, schedule.steps, topology) or ["  none"]
    lines.append(
        f"receives {bytes_str(schedule.bytes_received)} a device, lower bound "
        f"{bytes_str(schedule.lower_bound)}; {seconds_str(schedule.seconds)}, local "
        f"copies included; peak {bytes_str(schedule.peak_bytes)}, "
        f"{bytes_str(schedule.room_bytes)} beside the two tiles"
    )
    if schedule.slabs is not None:
        slab = TensorType(schedule.slabs.shape, schedule.dtype)
        lines.insert(
            -1, f"{schedule.slabs.count} times, for slabs that are each a {slab}"
        )
    if schedule.alternatives:
        lines.append("rejected")
    rejected = dict.fromkeys(  # some differ in pairs of devices alone
        "\n".join(
            [
                f"  {other.family}: {bytes_str(other.bytes_received)}, "
                f"{seconds_str(other.seconds)}",
                *(f"  {x}" for x in _steps(schedule, other.steps, topology)),
            ]
        )
        for other in schedule.alternatives
    )
    lines += list(rejected)[:MAX_REJECTED]
    more = len(rejected) - MAX_REJECTED
    if more > 0:
        lines.append(f"  and {more} more, none faster")
    return "\n".join(lines)


def _steps(
    schedule: Schedule, steps: tuple[Step, ...], topology: Topology
) -> list[str]:
    """A line a step: what it does, what it receives, how long the network takes."""
    mesh, dtype = schedule.mesh, schedule.dtype
    shape = schedule.slabs.shape if schedule.slabs else schedule.shape
    tile = schedule.source.view_tile_shape(shape)
    lines = []
    for step in steps:
        received = step_bytes(step, tile, dtype)
        seconds = step_seconds(topology, mesh, step, tile, dtype)
        price = f": {bytes_str(received)}, {seconds_str(seconds)}" if received else ""
        lines.append(f"  - {step_str(mesh, step)}{price}")
        tile = step_result_shape(step, tile)
    return lines


def schedule_dict(schedule: Schedule) -> dict[str, Any]:
    """The same facts as JSON-ready data."""
    mesh = schedule.mesh
    return {
        "shape": list(schedule.shape),
        "dtype": schedule.dtype,
        "mesh": dict(schedule.source.mesh.axes),
        "target_mesh": dict(schedule.target.mesh.axes),
        "source": str(schedule.source),
        "target": str(schedule.target),
        "family": schedule.family,
        "steps": [step_str(mesh, step) for step in schedule.steps],
        "bytes_received": schedule.bytes_received,
        "lower_bound": schedule.lower_bound,
        "peak_bytes": schedule.peak_bytes,
        "room_bytes": schedule.room_bytes,
        "slabs": schedule.slabs.count if schedule.slabs else 1,
        "seconds": schedule.seconds,
        "alternatives": [
            {
                "family": a.family,
                "bytes_received": a.bytes_received,
                "seconds": a.seconds,
            }
            for a in schedule.alternatives
        ],
    }
