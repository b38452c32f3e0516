"""Contractions: the matmul in all its spellings. Contracted factors are summed."""

from __future__ import annotations

import math

from shardwright.program import PartialRow, Rule
from shardwright.rules.registry import Call, Sample, define, make_rule

_LINEAR = (PartialRow("sum", (0,), "sum"), PartialRow("sum", (1,), "sum"))


def _dot_general_rule(call: Call) -> Rule:
    """Result dims: batch, then the left's own, then the right's own."""
    numbers = dict(call.op.attr("dot_dimension_numbers"))
    left: dict[int, str] = {}
    right: dict[int, str] = {}
    batch, contracted = [], []
    for i, (a, b) in enumerate(
        zip(
            numbers["lhs_batching_dimensions"],
            numbers["rhs_batching_dimensions"],
            strict=True,
        )
    ):
        left[a] = right[b] = f"b{i}"
        batch.append(f"b{i}")
    for i, (a, b) in enumerate(
        zip(
            numbers["lhs_contracting_dimensions"],
            numbers["rhs_contracting_dimensions"],
            strict=True,
        )
    ):
        left[a] = right[b] = f"k{i}"
        contracted.append(f"k{i}")
    lhs, rhs = call.operands
    mine = [left.get(d, f"m{d}") for d in range(lhs.rank)]
    theirs = [right.get(d, f"n{d}") for d in range(rhs.rank)]
    own = [f for d, f in enumerate(mine) if d not in left]
    own += [f for d, f in enumerate(theirs) if d not in right]
    return make_rule(
        call,
        [mine, theirs],
        [batch + own],
        reduced=dict.fromkeys(contracted, "sum"),
        partial=_LINEAR,
    )


def _dot_rule(call: Call) -> Rule:
    """HLO's plain dot: matrix or vector by matrix or vector."""
    lhs, rhs = call.operands
    left = ["m", "k"][2 - lhs.rank :]
    right = ["k", "n"][: rhs.rank]
    own = [f for f in (*left, *right) if f != "k"]
    return make_rule(call, [left, right], [own], reduced={"k": "sum"}, partial=_LINEAR)


def _flops(call: Call) -> float:
    """A multiplication and an addition for each point of the index space."""
    rule = (
        _dot_rule(call) if call.op.name == "stablehlo.dot" else _dot_general_rule(call)
    )
    return 2.0 * math.prod(n for _, n in rule.sizes)


def _numbers(batch: str, contracted: tuple[str, str]) -> str:
    return (
        "dot_dimension_numbers = #stablehlo.dot<"
        + (
            f"lhs_batching_dimensions = {batch}, rhs_batching_dimensions = {batch}, "
            if batch
            else ""
        )
        + f"lhs_contracting_dimensions = {contracted[0]}, "
        f"rhs_contracting_dimensions = {contracted[1]}>"
    )


define(
    "stablehlo.dot_general",
    rule=_dot_general_rule,
    flops=_flops,
    samples=[
        Sample("24x12xf32, 12x16xf32 -> 24x16xf32", _numbers("", ("[1]", "[0]"))),
        Sample(
            "4x24x12xf32, 4x6x12xf32 -> 4x24x6xf32", _numbers("[0]", ("[2]", "[2]"))
        ),
        Sample("8x4x12xi32, 12x4xi32 -> 8xi32", _numbers("", ("[1, 2]", "[1, 0]"))),
    ],
)
define(
    "stablehlo.dot",
    rule=_dot_rule,
    flops=_flops,
    samples=[
        Sample("24x12xf32, 12x16xf32 -> 24x16xf32"),
        Sample("24x12xf32, 12xf32 -> 24xf32"),
        Sample("16xf32, 16xf32 -> f32"),
    ],
)
