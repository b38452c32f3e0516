"""Ops that hand values on as they are: constraints, copies, barriers."""

from __future__ import annotations

from shardwright.jaxlib_bindings import ir
from shardwright.program import Rule
from shardwright.rules.elementwise import elementwise_rule, letters, moving_rows
from shardwright.rules.registry import Call, Local, Sample, define, free, make_rule


def _identity_rule(call: Call) -> Rule:
    return elementwise_rule(call, moving_rows(call))


def _identity_local(local: Local) -> list[ir.Value]:
    return list(local.operands)


def _barrier_rule(call: Call) -> Rule:
    """Each value has factors of its own; they do not meet."""
    dims = [[f"v{i}{f}" for f in letters(t.rank)] for i, t in enumerate(call.operands)]
    return make_rule(call, dims, dims, independent=True)


for _name in (
    "sdy.sharding_constraint",
    "sdy.reshard",
    "mhlo.copy",
    "stablehlo.custom_call@Sharding",
):
    define(
        _name,
        rule=_identity_rule,
        localize=_identity_local,
        flops=free,
        samples=[],
    )

define(
    "stablehlo.optimization_barrier",
    rule=_barrier_rule,
    flops=free,
    samples=[Sample("24x12xf32, 8xi32 -> 24x12xf32, 8xi32")],
)
