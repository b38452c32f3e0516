"""Many tiles through schedules of the same steps, one collective for all of them.

Tiles are laid flat beside each other, chunks by member first, so that one collective
moves what each would have moved in its own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from shardwright.jaxlib_bindings import ir, stablehlo, tensor_type
from shardwright.lowering.exchange import emit_exchange
from shardwright.lowering.steps import dtype_in, emit_permute, emit_step, seen_as
from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Permute,
    ReduceScatter,
    Schedule,
    Step,
    count_collectives,
    ways,
)
from shardwright.rules import Emitter

Value = ir.Value


def kind_of(schedule: Schedule) -> Hashable:
    """Equal for schedules whose collectives can be merged, step by step."""
    steps = tuple(_kind(step) for step in schedule.steps if count_collectives(step))
    if schedule.slabs is not None:
        return object()
    return schedule.mesh, schedule.dtype, steps


def _kind(step: Step) -> Hashable:
    match step:
        case AllGather() | AllToAll():
            return type(step), step.axes
        case AllReduce() | ReduceScatter():
            return type(step), step.axes, step.reducer
        case Permute():
            return step
        case Exchange():
            pairs = tuple(r.pairs for r in step.rounds)
            return Exchange, step.axes, pairs, bool(step.joined)
        case _:
            return None


def emit_merged(
    emitter: Emitter,
    tiles: Sequence[Value],
    schedules: Sequence[Schedule],
    accumulate: str | None = None,
) -> list[Value]:
    """Every tile in its target layout; the schedules are of one kind."""
    dtype = schedules[0].dtype
    values = [
        emitter.reshape(tile, s.source.view_tile_shape(s.shape))
        for tile, s in zip(tiles, schedules, strict=True)
    ]
    waiting = [list(s.steps) for s in schedules]
    while any(waiting):
        for i, steps in enumerate(waiting):
            while steps and not count_collectives(steps[0]):
                step = steps.pop(0)
                values[i] = seen_as(emitter, values[i], dtype_in(step, dtype))
                values[i] = emit_step(emitter, values[i], step, accumulate)
        now = [steps.pop(0) for steps in waiting if steps]
        if now:
            as_type = dtype_in(now[0], dtype)
            values = [seen_as(emitter, value, as_type) for value in values]
            values = _together(emitter, values, now, accumulate)
    return [
        emitter.reshape(seen_as(emitter, value, dtype), s.target.tile_shape(s.shape))
        for value, s in zip(values, schedules, strict=True)
    ]


def _together(
    emitter: Emitter,
    values: list[Value],
    steps: Sequence[Step],
    accumulate: str | None,
) -> list[Value]:
    """One collective for the steps of all tiles."""
    first = steps[0]
    if isinstance(first, Exchange):
        exchanges = [step for step in steps if isinstance(step, Exchange)]
        return emit_exchange(
            emitter,
            values,
            exchanges,
            lambda piece, r: emit_permute(emitter, piece, first.axes, r.pairs),
        )
    fronts = [
        _chunks_first(emitter, value, step)
        for value, step in zip(values, steps, strict=True)
    ]
    widths = [tensor_type(front.type).shape[1] for front in fronts]
    flat = stablehlo.concatenate(fronts, 1)
    moved = emit_step(emitter, flat, _flat(first), accumulate)
    results: list[Value] = []
    start = 0
    rows = tensor_type(moved.type).shape[0]
    for value, step, width in zip(values, steps, widths, strict=True):
        part = stablehlo.slice(moved, [0, start], [rows, start + width], [1, 1])
        results.append(_placed(emitter, part, value, step))
        start += width
    return results


def _flat(step: Step) -> Step:
    """The same collective on rows of which each is one member's chunk."""
    match step:
        case AllGather():
            return AllGather(0, step.axes)
        case AllToAll():
            return AllToAll(0, 0, step.axes)
        case ReduceScatter():
            return ReduceScatter(0, step.axes, step.reducer)
        case _:
            return step


def _chunks_first(emitter: Emitter, value: Value, step: Step) -> Value:
    """The tile as rows: a row for each member that is sent a chunk, or one row."""
    shape = list(tensor_type(value.type).shape)
    match step:
        case AllToAll():
            dim, n = step.split_dim, ways(step.axes)
        case ReduceScatter():
            dim, n = step.dim, ways(step.axes)
        case _:
            return emitter.reshape(value, (1, math.prod(shape)))
    split = [*shape[:dim], n, shape[dim] // n, *shape[dim + 1 :]]
    order = [dim, *(d for d in range(len(split)) if d != dim)]
    front = stablehlo.transpose(emitter.reshape(value, split), order)
    return emitter.reshape(front, (n, math.prod(shape) // n))


def _placed(emitter: Emitter, part: Value, value: Value, step: Step) -> Value:
    """The received rows as the step's new tile."""
    shape = list(tensor_type(value.type).shape)
    match step:
        case AllGather():
            dim = step.dim
        case AllToAll():
            shape[step.split_dim] //= ways(step.axes)
            dim = step.concat_dim
        case ReduceScatter():
            shape[step.dim] //= ways(step.axes)
            return emitter.reshape(part, shape)
        case _:
            return emitter.reshape(part, shape)
    n = ways(step.axes)
    rows = emitter.reshape(part, [n, *shape])
    order = [*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1)]
    moved = stablehlo.transpose(rows, order)
    shape[dim] *= n
    return emitter.reshape(moved, shape)
