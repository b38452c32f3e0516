"""Ops without operands: each device makes its own tile."""

from __future__ import annotations

from shardwright.jaxlib_bindings import ir, stablehlo
from shardwright.program import Rule
from shardwright.rules.elementwise import letters
from shardwright.rules.registry import Call, Local, Sample, define, free, make_rule


def _creation_rule(call: Call) -> Rule:
    return make_rule(call, [], [letters(call.results[0].rank)])


def _iota_local(local: Local) -> list[ir.Value]:
    """Numbers count on from where the tile starts; in i32, so that none is rounded."""
    dim = local.call.op.attr("iota_dimension")
    axes = local.axes_of(local.rule.results[0], dim)
    if not axes:
        return local.clone()
    emitter, (shape,) = local.emitter, local.result_shapes
    dtype = local.call.results[0].dtype
    counted = stablehlo.iota(emitter.type(shape, "i32"), dim)
    start = emitter.scaled_index(axes, shape[dim])
    starts = stablehlo.broadcast_in_dim(emitter.type(shape, "i32"), start, [])
    moved = stablehlo.add(counted, starts)
    if dtype == "i32":
        return [moved]
    return [stablehlo.convert(emitter.type(shape, dtype), moved)]


def _constant_local(local: Local) -> list[ir.Value]:
    """A splat takes any shape; of other constants the tile is cut out."""
    emitter, (shape,) = local.emitter, local.result_shapes
    value = local.call.op.attr("value")
    if isinstance(value, tuple) and value[:1] == ("splat",):
        value = local.source.attributes["value"]
        type_ = emitter.type(shape, local.call.results[0].dtype)
        return [
            stablehlo.constant(
                ir.DenseElementsAttr.get_splat(type_, value.get_splat_value())
            )
        ]
    whole = local.source.clone().results[0]
    if shape == local.call.results[0].shape:
        return [whole]
    dims = local.rule.results[0]
    starts = [
        emitter.scaled_index(local.axes_of(dims, d), n) for d, n in enumerate(shape)
    ]
    return [emitter.dynamic_slice(whole, starts, shape)]


define(
    "stablehlo.iota",
    rule=_creation_rule,
    localize=_iota_local,
    flops=free,
    samples=[
        Sample("-> 24x12xi32", "iota_dimension = 1 : i64"),
        Sample("-> 24x12xf32", "iota_dimension = 0 : i64"),
    ],
)
define(
    "stablehlo.constant",
    rule=_creation_rule,
    localize=_constant_local,
    flops=free,
    samples=[
        Sample("-> 24x12xf32", "value = dense<1.5> : tensor<24x12xf32>"),
        Sample(
            "-> 2x4xi32",
            "value = dense<[[1, 2, 3, 4], [5, 6, 7, 8]]> : tensor<2x4xi32>",
        ),
    ],
)
