"""All-reduce and reduce-scatter as StableHLO.

Back ends reduce on the way with a few functions on a few types. Where one is not among
them, or the sum is wanted in a wider type, chunks are exchanged and reduced on the
device that keeps them: as many bytes, since each device is sent every other's chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.jaxlib_bindings import integer_elements, ir, stablehlo, tensor_type
from shardwright.program import AllReduce, ReduceScatter, SubAxis, dtype_bits, ways
from shardwright.rules import Emitter, identity_text

Value = ir.Value

BITWISE = ("and", "or", "only")
"""Reducers of bits, whatever the bits mean."""

_FUNCTIONS = {
    "sum": stablehlo.add,
    "prod": stablehlo.multiply,
    "max": stablehlo.maximum,
    "min": stablehlo.minimum,
    "and": stablehlo.and_,
    "or": stablehlo.or_,
    "only": stablehlo.maximum,
}


def emit_reduction(
    emitter: Emitter,
    tile: Value,
    step: AllReduce | ReduceScatter,
    accumulate: str | None = None,
) -> Value:
    """The reduced tile, or the chunk of it that this device keeps."""
    dtype = tensor_type(tile.type).dtype
    wide = _wide(step.reducer, dtype, accumulate)
    is_plain = dtype == "i1" or step.reducer not in ("and", "or")
    if is_plain and wide == dtype:
        return _reduced_on_the_way(emitter, tile, step)
    if isinstance(step, ReduceScatter):
        return _reduced_at_home(emitter, tile, step, wide)
    shape, n = tensor_type(tile.type).shape, ways(step.axes)
    dim = next((d for d, size in enumerate(shape) if size % n == 0), None)
    if dim is None:
        return _reduced(
            emitter, _gathered(emitter, tile, step.axes), step.reducer, wide
        )
    part = ReduceScatter(dim, step.axes, step.reducer)
    chunk = _reduced_at_home(emitter, tile, part, wide)
    return _all_gather(emitter, chunk, dim, step.axes)


def emit_fold(
    emitter: Emitter, tile: Value, reducer: str, accumulate: str | None = None
) -> Value:
    """The tile reduced over its first dim."""
    dtype = tensor_type(tile.type).dtype
    return _reduced(emitter, tile, reducer, _wide(reducer, dtype, accumulate))


def _wide(reducer: str, dtype: str, accumulate: str | None) -> str:
    """The type to reduce in: a wider float for sums and products of narrow ones."""
    is_float = dtype.startswith(("f", "bf"))
    if accumulate is None or not is_float or reducer not in ("sum", "prod"):
        return dtype
    return accumulate if dtype_bits(accumulate) > dtype_bits(dtype) else dtype


def _reduced_on_the_way(
    emitter: Emitter, tile: Value, step: AllReduce | ReduceScatter
) -> Value:
    groups, handle = _groups(emitter, step.axes), emitter.channel()
    if isinstance(step, ReduceScatter):
        shape = list(tensor_type(tile.type).shape)
        shape[step.dim] //= ways(step.axes)
        op: ir.OpView = stablehlo.ReduceScatterOp(
            emitter.retype(tile, shape),
            tile,
            step.dim,
            groups,
            channel_handle=handle,
            use_global_device_ids=True,
        )
    else:
        op = stablehlo.AllReduceOp(
            [tile.type],
            [tile],
            groups,
            channel_handle=handle,
            use_global_device_ids=True,
        )
    scalar = emitter.retype(tile, ())
    here = ir.Location.unknown(emitter.context)
    block = op.regions[0].blocks.append(scalar, scalar, arg_locs=[here, here])
    function = _FUNCTIONS[step.reducer]
    if step.reducer == "only" and tensor_type(tile.type).dtype == "i1":
        function = stablehlo.or_
    with ir.InsertionPoint(block):
        stablehlo.return_([function(*block.arguments)])
    return op.operation.results[0]


def _reduced_at_home(
    emitter: Emitter, tile: Value, step: ReduceScatter, wide: str
) -> Value:
    """Chunk k of every member to member k, and the reduction of those there."""
    n = ways(step.axes)
    shape = list(tensor_type(tile.type).shape)
    chunks = [*shape[: step.dim], n, shape[step.dim] // n, *shape[step.dim + 1 :]]
    order = [step.dim, *(d for d in range(len(chunks)) if d != step.dim)]
    split = stablehlo.transpose(emitter.reshape(tile, chunks), order)
    op = stablehlo.AllToAllOp(
        [split],
        0,
        0,
        n,
        _groups(emitter, step.axes),
        channel_handle=emitter.channel(),
    )
    return _reduced(emitter, op.operation.results[0], step.reducer, wide)


def _gathered(emitter: Emitter, tile: Value, axes: Sequence[SubAxis]) -> Value:
    """Every member's tile, one after the other along a first dim."""
    shape = tensor_type(tile.type).shape
    return _all_gather(emitter, emitter.reshape(tile, (1, *shape)), 0, axes)


def _all_gather(
    emitter: Emitter, tile: Value, dim: int, axes: Sequence[SubAxis]
) -> Value:
    shape = list(tensor_type(tile.type).shape)
    shape[dim] *= ways(axes)
    op = stablehlo.AllGatherOp(
        [emitter.retype(tile, shape)],
        [tile],
        dim,
        _groups(emitter, axes),
        channel_handle=emitter.channel(),
        use_global_device_ids=True,
    )
    return op.operation.results[0]


def _reduced(emitter: Emitter, parts: Value, reducer: str, wide: str) -> Value:
    """The reduction over the first dim, in the wide type."""
    type_ = tensor_type(parts.type)
    if wide != type_.dtype:
        parts = stablehlo.convert(emitter.type(type_.shape, wide), parts)
    total = emitter.splat(identity_text(reducer, wide), (), wide)
    scalar = emitter.type((), wide)
    result = emitter.type(type_.shape[1:], wide)
    op = stablehlo.ReduceOp([result], [parts], [total], [0])
    here = ir.Location.unknown(emitter.context)
    block = op.regions[0].blocks.append(scalar, scalar, arg_locs=[here, here])
    with ir.InsertionPoint(block):
        stablehlo.return_([_FUNCTIONS[reducer](*block.arguments)])
    value = op.operation.results[0]
    if wide != type_.dtype:
        value = stablehlo.convert(emitter.type(type_.shape[1:], type_.dtype), value)
    return value


def _groups(emitter: Emitter, axes: Sequence[SubAxis]) -> ir.DenseElementsAttr:
    return integer_elements(emitter.groups(axes))
