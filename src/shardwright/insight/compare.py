"""The same program under our placements and under XLA's partitioners, counted alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from shardwright.capture import to_hlo
from shardwright.insight.counter import Traffic, count_traffic
from shardwright.insight.explain import bytes_str
from shardwright.jaxlib_bindings import (
    compile_module,
    compiled_text,
    module_bytes,
)
from shardwright.lowering import partitioned_text
from shardwright.mlir import (
    gspmd_bytes,
)
from shardwright.placement import Plan, place
from shardwright.program import Constraint, Program
from shardwright.rules import call_of, flops_of
from shardwright.topology import Topology


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One way to partition the program. `seconds` is modelled, None for peers."""

    name: str
    traffic: Traffic
    total_flops: float = 0.0
    seconds: float | None = None

    @property
    def flops_share(self) -> float:
        """The part of the program's matmul arithmetic that each device does."""
        return self.traffic.dot_flops / self.total_flops if self.total_flops else 0.0


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
    total = sum(
        flops_of(call_of(program, op))
        for op in program.ops
        if op.name in ("stablehlo.dot", "stablehlo.dot_general")
    )
    for placement, name in PLACEMENT_NAMES.items():
        plan = place(program, topology, placement)
        rows.append(Row(name, traffic_of(plan), total, plan.seconds))
    count = program.mesh.num_devices
    if devices is not None and len(devices) >= count:
        rows[2:2] = list(_peers(program, devices[:count], total))
    return rows


def traffic_of(plan: Plan) -> Traffic:
    """What our emitted module receives, by the counter that counts the peers."""
    return count_traffic(partitioned_text(plan), plan.program.mesh.num_devices)


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Header and rows of text: name, bytes, collectives, local matmuls, time."""
    header = (
        "partitioned by",
        "received a device",
        "collectives",
        "local matmul",
        "flops share",
    )
    body = [
        (
            row.name,
            bytes_str(row.traffic.bytes_received),
            ", ".join(f"{n} {k}" for k, n in row.traffic.collectives) or "none",
            "; ".join(dict.fromkeys(row.traffic.dots)) or "-",
            f"{row.flops_share:.3g}" if row.traffic.dots else "-",
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
            "flops_share": row.flops_share,
            "seconds": row.seconds,
        }
        for row in rows
    ]


def _peers(program: Program, devices: Sequence[Any], total: float) -> Iterator[Row]:
    for name, partitioner, module in (
        ("XLA today, GSPMD", "gspmd", gspmd_module(program)),
        ("XLA today, Shardy", "shardy", module_bytes(program.source.module)),
    ):
        try:
            executable = compile_module(module, devices, partitioner=partitioner)
        except jax.errors.JaxRuntimeError as error:
            reason = str(error).splitlines()[0]
            yield Row(f"{name}: does not compile ({reason})", Traffic(0, (), ()))
            continue
        traffic = count_traffic(compiled_text(executable), len(devices))
        yield Row(name, traffic, total)


def gspmd_module(program: Program) -> bytes:
    """The captured module as GSPMD reads it: shardings as HLO strings."""

    def text(constraint: Constraint | None, value: int) -> str | None:
        if constraint is None:
            return None
        return to_hlo(constraint.layout, program.values[value].shape)

    def side(
        constraints: Sequence[Constraint | None], values: Sequence[int]
    ) -> list[str | None]:
        return [text(c, v) for c, v in zip(constraints, values, strict=True)]

    return gspmd_bytes(
        program.source.module,
        side(program.input_constraints, program.inputs),
        side(program.output_constraints, program.outputs),
        {
            i: to_hlo(op.constraint.layout, program.values[op.results[0]].shape)
            for i, op in enumerate(program.ops)
            if op.is_constraint and op.constraint is not None
        },
    )
