"""One array's move in words: layouts, steps, bytes against the bound, rejects."""

from __future__ import annotations

from typing import Any

from shardwright.insight.explain import bytes_str, seconds_str, step_str
from shardwright.program import Schedule, TensorType
from shardwright.topology import Topology


def schedule_text(schedule: Schedule, topology: Topology) -> str:
    """The schedule step by step with its price, and what it was chosen over."""
    mesh = schedule.source.mesh
    whole = TensorType(schedule.shape, schedule.dtype)
    lines = [f"{whole} on mesh {mesh}, topology {topology.name}"]
    for word, layout in (("from", schedule.source), ("to", schedule.target)):
        tile = TensorType(layout.tile_shape(schedule.shape), schedule.dtype)
        lines.append(f"  {word:<4} {layout}  tile {tile}")
    lines.append(f"steps ({schedule.family})")
    lines += [f"  - {step_str(mesh, step)}" for step in schedule.steps] or ["  none"]
    lines.append(
        f"receives {bytes_str(schedule.bytes_received)} a device, lower bound "
        f"{bytes_str(schedule.lower_bound)}; {seconds_str(schedule.seconds)}; "
        f"peak {bytes_str(schedule.peak_bytes)}"
    )
    if schedule.alternatives:
        lines.append("rejected")
    for other in schedule.alternatives:
        lines.append(
            f"  {other.family}: {bytes_str(other.bytes_received)}, "
            f"{seconds_str(other.seconds)}"
        )
    return "\n".join(lines)


def schedule_dict(schedule: Schedule) -> dict[str, Any]:
    """The same facts as JSON-ready data."""
    mesh = schedule.source.mesh
    return {
        "shape": list(schedule.shape),
        "dtype": schedule.dtype,
        "mesh": dict(mesh.axes),
        "source": str(schedule.source),
        "target": str(schedule.target),
        "family": schedule.family,
        "steps": [step_str(mesh, step) for step in schedule.steps],
        "bytes_received": schedule.bytes_received,
        "lower_bound": schedule.lower_bound,
        "peak_bytes": schedule.peak_bytes,
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
