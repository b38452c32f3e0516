"""A schedule in slabs as a loop: one slab's collectives, run again and again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from shardwright.jaxlib_bindings import ir, stablehlo, tensor_type
from shardwright.program import Schedule
from shardwright.rules import Emitter, zero_text

Value = ir.Value


def emit_in_slabs(
    emitter: Emitter,
    tile: Value,
    schedule: Schedule,
    emit: Callable[[Emitter, Value, Schedule], Value],
) -> Value:
    """The target's tile; `emit` takes one slab through a schedule without slabs.

    A slab's shape is that of a whole tensor, its tile is that shape's.
    """
    slabs = schedule.slabs
    assert slabs is not None
    part = dataclasses.replace(schedule, shape=slabs.shape, slabs=None)
    dtype = tensor_type(tile.type).dtype
    source = emitter.reshape(tile, slabs.source_view)
    target = emitter.splat(zero_text(dtype), slabs.target_view, dtype)
    one, count = emitter.scalar(1), emitter.scalar(slabs.count)
    index = emitter.scalar(0)
    loop = stablehlo.WhileOp([index.type, target.type], [index, target])
    here = ir.Location.unknown(emitter.context)
    blocks = [
        region.blocks.append(index.type, target.type, arg_locs=[here, here])
        for region in loop.regions
    ]
    with ir.InsertionPoint(blocks[0]):
        direction = stablehlo.ComparisonDirectionAttr.get("LT")
        more = stablehlo.compare(blocks[0].arguments[0], count, direction)
        stablehlo.return_([more])
    with ir.InsertionPoint(blocks[1]):
        inner = emitter.inner()
        k, made = blocks[1].arguments
        old = _sizes(slabs.source_view, slabs.source_dim)
        piece = inner.dynamic_slice(
            source, _starts(inner, k, len(old), slabs.source_dim), old
        )
        piece = inner.reshape(piece, schedule.source.tile_shape(slabs.shape))
        moved = emit(inner, piece, part)
        new = _sizes(slabs.target_view, slabs.target_dim)
        starts = _starts(inner, k, len(new), slabs.target_dim)
        made = stablehlo.dynamic_update_slice(made, inner.reshape(moved, new), starts)
        stablehlo.return_([stablehlo.add(k, one), made])
    target = loop.operation.results[1]
    return emitter.reshape(target, schedule.target.tile_shape(schedule.shape))


def _sizes(view: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*view[:dim], 1, *view[dim + 1 :])


def _starts(emitter: Emitter, index: Value, rank: int, dim: int) -> list[Value]:
    return [index if d == dim else emitter.scalar(0) for d in range(rank)]
