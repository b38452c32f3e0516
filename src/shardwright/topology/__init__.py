"""What machines can do, and what a step or an op costs on them."""

from shardwright.topology.cost import (
    copy_seconds,
    fastest_bandwidth,
    launch_seconds,
    next_seconds,
    op_seconds,
    permute_bandwidth,
    schedule_seconds,
    step_seconds,
)
from shardwright.topology.groups import axes_of_groups
from shardwright.topology.machine import Network, Switched, Topology, Torus
from shardwright.topology.presets import check_fits, for_platform, preset, presets
from shardwright.topology.scattered import member_distances
from shardwright.topology.volume import schedule_bytes, step_bytes

__all__ = [
    "Network",
    "Switched",
    "Topology",
    "Torus",
    "axes_of_groups",
    "check_fits",
    "copy_seconds",
    "fastest_bandwidth",
    "for_platform",
    "launch_seconds",
    "member_distances",
    "next_seconds",
    "op_seconds",
    "permute_bandwidth",
    "preset",
    "presets",
    "schedule_bytes",
    "schedule_seconds",
    "step_bytes",
    "step_seconds",
]
