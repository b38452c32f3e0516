"""Reductions: reduced factors leave a partial result, which counts the start once."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from shardwright.jaxlib_bindings import ir, stablehlo
from shardwright.program import PartialRow, Rule, SubAxis, TensorType, dtype_bits
from shardwright.rules.elementwise import letters
from shardwright.rules.emitter import Emitter
from shardwright.rules.registry import Call, Local, Sample, define, elements, make_rule


def _reduce_rule(call: Call) -> Rule:
    """One operand by a known reducer may be cut anywhere; else where it is kept."""
    count = len(call.operands) // 2
    dims = letters(call.operands[0].rank)
    gone = [dims[d] for d in call.op.attr("dimensions")]
    kept = [f for f in dims if f not in gone]
    reducer = call.op.attr("reducer")
    known = reducer if count == 1 else None
    return make_rule(
        call,
        [dims] * count + [[]] * count,
        [kept] * count,
        reduced=dict.fromkeys(gone, known) if known else None,
        whole=() if known else gone,
        partial=[PartialRow(known, (0,), known)] if known else (),
    )


def _reduce_local(local: Local) -> list[ir.Value]:
    """Where parts are joined later, all but the first part start at the identity."""
    axes = [a for f, _ in local.rule.reduced for a in local.strategy.axes(f)]
    axes += [a for _, rows in local.strategy.partial for a in rows]
    if not axes:
        return local.clone()
    reducer = local.call.op.attr("reducer")
    operand, start = local.operands
    start = start_once(local.emitter, start, local.call.operands[1], reducer, axes)
    return local.clone([operand, start])


def start_once(
    emitter: Emitter,
    start: ir.Value,
    type_: TensorType,
    reducer: str,
    axes: list[SubAxis],
) -> ir.Value:
    """`start` on the first member along `axes`, the reducer's identity on others."""
    identity = emitter.splat(identity_text(reducer, type_.dtype), (), type_.dtype)
    if _is_constant(start, identity):
        return start
    first = stablehlo.compare(
        emitter.index(axes),
        emitter.scalar(0),
        stablehlo.ComparisonDirectionAttr.get("EQ"),
    )
    return stablehlo.select(first, start, identity)


def _is_constant(value: ir.Value, constant: ir.Value) -> bool:
    owner = value.owner
    return (
        not isinstance(owner, ir.Block)
        and owner.operation.name == "stablehlo.constant"
        and str(owner.operation) == str(constant.owner.operation)
    )


def identity_text(reducer: str, dtype: str) -> str:
    """The value that changes nothing, as MLIR writes it in a constant."""
    match reducer:
        case "sum":
            return _number("0", dtype)
        case "prod":
            return _number("1", dtype)
        case "or" | "only":
            return zero_text(dtype)
        case "and" if dtype == "i1":
            return "true"
        case "and":
            return str(2 ** dtype_bits(dtype) - 1) if dtype.startswith("ui") else "-1"
    is_max = reducer == "max"
    if dtype.startswith(("f", "bf")):
        return _infinity(dtype, negative=is_max)
    bits = dtype_bits(dtype)
    if dtype == "i1":
        return "false" if is_max else "true"
    if dtype.startswith("ui"):
        return "0" if is_max else str(2**bits - 1)
    return str(-(2 ** (bits - 1)) if is_max else 2 ** (bits - 1) - 1)


def zero_text(dtype: str) -> str:
    """Zero, or false, as MLIR writes it in a constant."""
    return "false" if dtype == "i1" else _number("0", dtype)


def _number(digit: str, dtype: str) -> str:
    if dtype.startswith("complex"):
        return f"({digit}.0, 0.0)"
    if dtype == "i1":
        return "true" if digit == "1" else "false"
    return f"{digit}.0" if dtype.startswith(("f", "bf")) else digit


def _infinity(dtype: str, *, negative: bool) -> str:
    """MLIR writes infinities as the bits; types without one have a largest number."""
    name = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
    known = name.get(dtype, "float" + dtype[1:].lower())
    kind = np.dtype(getattr(ml_dtypes, known, known))
    info = ml_dtypes.finfo(kind)
    with np.errstate(all="ignore"):
        value = np.array(-np.inf if negative else np.inf, kind)
        if not np.isinf(value.astype(np.float64)):
            value = np.array(info.min if negative else info.max, kind)
    return "0x" + value[None].view(f"u{kind.itemsize}")[0].tobytes()[::-1].hex().upper()


def _region(op: str, dtype: str) -> str:
    scalar = f"tensor<{dtype}>"
    return (
        f"^bb0(%a: {scalar}, %b: {scalar}): "
        f'%r = "stablehlo.{op}"(%a, %b) : ({scalar}, {scalar}) -> {scalar} '
        f'"stablehlo.return"(%r) : ({scalar}) -> ()'
    )


_ARG_MAX = (
    "^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>): "
    '%gt = "stablehlo.compare"(%a, %b) {comparison_direction = '
    "#stablehlo<comparison_direction GT>} : (tensor<f32>, tensor<f32>) -> tensor<i1> "
    '%x = "stablehlo.select"(%gt, %a, %b) : (tensor<i1>, tensor<f32>, tensor<f32>) -> '
    "tensor<f32> "
    '%k = "stablehlo.select"(%gt, %i, %j) : (tensor<i1>, tensor<i32>, tensor<i32>) -> '
    "tensor<i32> "
    '"stablehlo.return"(%x, %k) : (tensor<f32>, tensor<i32>) -> ()'
)

define(
    "stablehlo.reduce",
    rule=_reduce_rule,
    localize=_reduce_local,
    flops=lambda call: elements(call.operands),
    samples=[
        *(
            Sample(
                "24x12x4xf32, f32 -> 24x4xf32",
                "dimensions = array<i64: 1>",
                _region(name, "f32"),
            )
            for name in ("add", "maximum", "minimum", "multiply")
        ),
        *(
            Sample(
                "24x12xi1, i1 -> 12xi1",
                "dimensions = array<i64: 0>",
                _region(name, "i1"),
                low=0,
                high=2,
            )
            for name in ("and", "or")
        ),
        Sample(
            "24x12xi32, i32 -> i32",
            "dimensions = array<i64: 0, 1>",
            _region("add", "i32"),
        ),
        Sample(
            "24x12xf32, 24x12xi32, f32, i32 -> 24xf32, 24xi32",
            "dimensions = array<i64: 1>",
            _ARG_MAX,
        ),
    ],
)
