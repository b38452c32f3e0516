"""The same program under our placements and under XLA's partitioners, counted alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from shardwright.insight.counter import Traffic, count_traffic
from shardwright.insight.explain import bytes_str
from shardwright.jaxlib_bindings import (
    compile_module,
    compiled_text,
    module_bytes,
    partition_hlo_bytes,
)
from shardwright.lowering import partitioned_text
from shardwright.placement import Plan, place
from shardwright.program import Program
from shardwright.topology import Topology


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One way to partition the program. `seconds` is modelled, None for peers."""

    name: str
    traffic: Traffic
    seconds: float | None = None


PLACEMENT_NAMES = {
    "replicate": "gather the operands (placement=replicate)",
    "shardy": "Shardy's propagation (placement=shardy)",
    "optimal": "Shardwright",
}


def compare(
    program: Program, topology: Topology, devices: Sequence[Any] | None = None
) -> list[Row]:
    """Our three placements, then XLA with GSPMD and with Shardy if `devices` allow.

    Every row is counted from HLO: ours as emitted, the peers' as compiled. A peer
    that fails gives no row of figures but its error as its name.
    """
    rows: list[Row] = []
    for placement, name in PLACEMENT_NAMES.items():
        plan = place(program, topology, placement)
        rows.append(Row(name, traffic_of(plan), plan.seconds))
    count = program.mesh.num_devices
    if devices is not None and len(devices) >= count:
        rows[2:2] = list(_peers(program, devices[:count]))
    return rows


def traffic_of(plan: Plan) -> Traffic:
    """What our emitted module receives, by the counter that counts the peers."""
    return count_traffic(partitioned_text(plan), plan.program.mesh.num_devices)


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Header and rows of text: name, bytes, collectives, local matmuls, time."""
    header = ("partitioned by", "received a device", "collectives", "local matmul")
    body = [
        (
            row.name,
            bytes_str(row.traffic.bytes_received),
            ", ".join(f"{n} {k}" for k, n in row.traffic.collectives) or "none",
            "; ".join(dict.fromkeys(row.traffic.dots)) or "-",
        )
        for row in rows
    ]
    return [header, *body]


def to_dict(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as JSON-ready data."""
    return [
        {
            "name": row.name,
            "bytes_received": row.traffic.bytes_received,
            "collectives": dict(row.traffic.collectives),
            "dots": list(row.traffic.dots),
            "seconds": row.seconds,
        }
        for row in rows
    ]


def _peers(program: Program, devices: Sequence[Any]) -> Iterator[Row]:
    module = program.source.module
    for name, partitioner, text in (
        ("XLA today, GSPMD", "gspmd", partition_hlo_bytes(module)),
        ("XLA today, Shardy", "shardy", module_bytes(module)),
    ):
        executable = compile_module(text, devices, partitioner=partitioner)
        traffic = count_traffic(compiled_text(executable), len(devices))
        yield Row(name, traffic)
