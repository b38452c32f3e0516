"""Steps of a schedule as StableHLO collectives and local ops.

Before -> after, for `AllToAll(split_dim=1, concat_dim=0, axes=(b,))` on b=2:

    f32[2,8] -> f32[4,4]     stablehlo.all_to_all, replica_groups of b's members
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from shardwright.jaxlib_bindings import (
    integer_elements,
    ir,
    stablehlo,
    tensor_type,
)
from shardwright.lowering.exchange import emit_exchange
from shardwright.lowering.reduction import BITWISE, emit_fold, emit_reduction
from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Fold,
    Permute,
    ReduceScatter,
    Resize,
    Schedule,
    Shuffle,
    Slice,
    Step,
    SubAxis,
    Unreduce,
    dtype_bits,
    step_result_shape,
    ways,
)
from shardwright.rules import Emitter, identity_text, zero_text

Value = ir.Value


def emit_schedule(
    emitter: Emitter, tile: Value, schedule: Schedule, accumulate: str | None = None
) -> Value:
    """The tile in the target layout, of its tile shape, from one in the source's.

    Sums and products are made in the element type `accumulate`, if one is given.
    """
    value = emitter.reshape(tile, schedule.source.view_tile_shape(schedule.shape))
    dtype = tensor_type(value.type).dtype
    for step in schedule.steps:
        value = seen_as(emitter, value, dtype_in(step, dtype))
        value = emit_step(emitter, value, step, accumulate)
    value = seen_as(emitter, value, dtype)
    return emitter.reshape(value, schedule.target.tile_shape(schedule.shape))


def dtype_in(step: Step, dtype: str) -> str:
    """The element type in which a step sees its tile."""
    if not isinstance(step, AllReduce | ReduceScatter | Unreduce | Fold):
        return _moved_as(dtype)
    is_bitwise = step.reducer in BITWISE and dtype.startswith(("f", "bf"))
    return f"ui{dtype_bits(dtype)}" if is_bitwise else dtype


def _moved_as(dtype: str) -> str:
    """Integers of the same width for narrow floats, which are moved as bits.

    Back ends without arithmetic on them widen floats on the way, which doubles what
    is received and loses the payload of a NaN.
    """
    bits = dtype_bits(dtype)
    is_narrow = dtype.startswith(("f", "bf")) and bits < 32
    return f"ui{bits}" if is_narrow else dtype


def seen_as(emitter: Emitter, value: Value, dtype: str) -> Value:
    """The same bits as another element type of the same width."""
    type_ = tensor_type(value.type)
    if type_.dtype == dtype:
        return value
    return stablehlo.bitcast_convert(emitter.type(type_.shape, dtype), value)


def emit_step(
    emitter: Emitter, tile: Value, step: Step, accumulate: str | None = None
) -> Value:
    """One step on the tile as the layout's view sees it."""
    shape = step_result_shape(step, tensor_type(tile.type).shape)
    match step:
        case Slice():
            starts = [emitter.scalar(0)] * len(shape)
            starts[step.dim] = emitter.scaled_index(step.axes, shape[step.dim])
            return emitter.dynamic_slice(tile, starts, shape)
        case AllGather():
            return _one(
                stablehlo.AllGatherOp(
                    [emitter.retype(tile, shape)],
                    [tile],
                    step.dim,
                    _groups(emitter, step.axes),
                    channel_handle=emitter.channel(),
                    use_global_device_ids=True,
                )
            )
        case AllToAll():
            return _one(
                stablehlo.AllToAllOp(
                    [tile],
                    step.split_dim,
                    step.concat_dim,
                    ways(step.axes),
                    _groups(emitter, step.axes),
                    channel_handle=emitter.channel(),
                )
            )
        case AllReduce() | ReduceScatter():
            return emit_reduction(emitter, tile, step, accumulate)
        case Permute():
            return emit_permute(emitter, tile, step.axes, step.pairs)
        case Shuffle():
            split = emitter.reshape(tile, step.split)
            if list(step.perm) != sorted(step.perm):
                split = stablehlo.transpose(split, list(step.perm))
            return emitter.reshape(split, shape)
        case Resize():
            return _resize(emitter, tile, step.shape)
        case Unreduce():
            return _unreduce(emitter, tile, step)
        case Fold():
            return emit_fold(emitter, tile, step.reducer, accumulate)
        case Exchange():
            (value,) = emit_exchange(
                emitter,
                [tile],
                [step],
                lambda piece, r: emit_permute(emitter, piece, step.axes, r.pairs),
            )
            return value
        case _:
            assert_never(step)


def _one(op: ir.OpView) -> Value:
    return op.operation.results[0]


def _groups(emitter: Emitter, axes: Sequence[SubAxis]) -> ir.DenseElementsAttr:
    return integer_elements(emitter.groups(axes))


def emit_permute(
    emitter: Emitter,
    tile: Value,
    axes: Sequence[SubAxis],
    pairs: Sequence[tuple[int, int]],
) -> Value:
    """Every group's members exchange tiles by the same pairs."""
    groups = np.asarray(emitter.groups(axes))
    everyone = groups[:, np.asarray(pairs)].reshape(-1, 2)
    return stablehlo.collective_permute(
        tile, integer_elements(everyone), channel_handle=emitter.channel()
    )


def _resize(emitter: Emitter, tile: Value, shape: Sequence[int]) -> Value:
    type_ = tensor_type(tile.type)
    zero = emitter.splat(zero_text(type_.dtype), (), type_.dtype)
    high = [n - old for n, old in zip(shape, type_.shape, strict=True)]
    none = [0] * len(high)
    return stablehlo.pad(tile, zero, none, high, none)


def _is_first(emitter: Emitter, axes: Sequence[SubAxis]) -> Value:
    direction = stablehlo.ComparisonDirectionAttr.get("EQ")
    return stablehlo.compare(emitter.index(axes), emitter.scalar(0), direction)


def _unreduce(emitter: Emitter, tile: Value, step: Unreduce) -> Value:
    type_ = tensor_type(tile.type)
    text = identity_text(step.reducer, type_.dtype)
    others = emitter.splat(text, type_.shape, type_.dtype)
    return stablehlo.select(_is_first(emitter, step.axes), tile, others)
