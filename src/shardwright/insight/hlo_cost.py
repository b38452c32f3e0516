"""What a partitioned HLO module moves, and how long it takes, by our own prices.

Each collective is priced as a step of a schedule on the axes that its device groups
are, or on a mesh that lists the devices group by group. Between two collectives, and
at the end, local work is one copy of the tensor at most, as in
`topology.schedule_seconds`.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from shardwright.insight.counter import collective_kind, device_bytes
from shardwright.insight.hlo_text import (
    Instruction,
    computations,
    device_groups,
    permute_pairs,
    type_bytes,
)
from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Mesh,
    Permute,
    ReduceScatter,
    Step,
    SubAxis,
)
from shardwright.topology import Topology, axes_of_groups, step_seconds

_VIEWS = ("bitcast", "reshape", "get-tuple-element", "tuple")


@dataclasses.dataclass(frozen=True, slots=True)
class HloCost:
    """Of the entry computation: bytes a device, launches, modelled seconds.

    `peak_bytes` is the largest tensor that an instruction gives.
    """

    bytes_received: int
    collectives: int
    peak_bytes: int
    seconds: float


def hlo_cost(hlo: str, num_devices: int, topology: Topology) -> HloCost:
    """Price a module of straight-line data movement, such as a reshard."""
    body = next(ops for is_entry, ops in computations(hlo) if is_entry)
    known = {op.name: op for op in body}
    received = np.zeros(num_devices)
    count, seconds, peak = 0, 0.0, 0.0
    for op in body:
        peak = max(peak, sum(map(type_bytes, op.types)))
        if collective_kind(op):
            received += device_bytes(op, num_devices)
            count += 1
            operands = [known[name] for name in op.operands if name in known]
            held = sum(type_bytes(t) for o in operands for t in o.types[:1])
            if any(_is_copied(o, known) for o in operands):
                seconds += 2 * held / topology.memory_bandwidth
            seconds += _seconds(op, held, num_devices, topology)
        elif op.is_root and _is_copied(op, known):
            size = sum(map(type_bytes, op.types))
            seconds += 2 * size / topology.memory_bandwidth
    return HloCost(math.ceil(received.max()), count, math.ceil(peak), seconds)


def _is_copied(op: Instruction, known: dict[str, Instruction]) -> bool:
    """Whether local work lies between a tensor and what was last received or given."""
    while op.opcode in _VIEWS:
        if not op.operands or op.operands[0] not in known:
            return False
        op = known[op.operands[0]]
    return op.opcode != "parameter" and collective_kind(op) is None


def _seconds(
    op: Instruction, held: float, num_devices: int, topology: Topology
) -> float:
    kind = collective_kind(op)
    tile = (math.ceil(held),)
    if kind == "collective-permute":
        mesh = Mesh((("devices", num_devices),))
        pairs = tuple(permute_pairs(op.attributes))
        step: Step = Permute(mesh.whole_axes(), pairs)
        return step_seconds(topology, mesh, step, tile, "ui8")
    groups = device_groups(op.attributes, num_devices)
    found = axes_of_groups(groups, num_devices)
    if found is None and groups.size == num_devices:
        sizes = (("groups", len(groups)), ("members", groups.shape[1]))
        mesh = Mesh(sizes, tuple(map(int, groups.ravel())))
        axes: tuple[SubAxis, ...] = (mesh.axis("members"),)
    elif found is None:  # some devices take no part: priced as neighbours
        mesh = Mesh((("members", groups.shape[1]),))
        axes = mesh.whole_axes()
    else:
        mesh, axes = found
    match kind:
        case "all-gather":
            step = AllGather(0, axes)
        case "all-reduce":
            step = AllReduce(axes, "sum")
        case "reduce-scatter":
            step = ReduceScatter(0, axes, "sum")
        case _:
            step = AllToAll(0, 0, axes)
    return step_seconds(topology, mesh, step, tile, "ui8")
