"""Ops that move elements about: where a result dim is an operand dim, it may be cut."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwright.jaxlib_bindings import ir, stablehlo, tensor_type
from shardwright.program import Rule
from shardwright.rules.elementwise import letters, moving_rows
from shardwright.rules.registry import Call, Local, Sample, define, free, make_rule


def _transpose_rule(call: Call) -> Rule:
    dims = letters(call.operands[0].rank)
    moved = [dims[d] for d in call.op.attr("permutation")]
    return make_rule(call, [dims], [moved], partial=moving_rows(call))


def _broadcast_rule(call: Call) -> Rule:
    """New dims, and dims stretched from one element, are the result's alone."""
    (old,), (new,) = call.operands, call.results
    dims = letters(new.rank)
    operand = [
        dims[target] if old.shape[d] == new.shape[target] else "1"
        for d, target in enumerate(call.op.attr("broadcast_dimensions"))
    ]
    return make_rule(call, [operand], [dims], partial=moving_rows(call))


# Reshape ----------------------------------------------------------------------


def _reshape_rule(call: Call) -> Rule:
    """Factors are what lies between the cut points that both shapes share.

    >>> # (6, 4) -> (24): "a b -> (a b)";  (6, 4) -> (4, 6): "(a r0) r1 -> (a r2) r3"
    """
    (old,), (new,) = call.operands, call.results
    operand, result, sizes, whole = reshape_factors(old.shape, new.shape)
    return make_rule(
        call,
        [_words(operand)],
        [_words(result)],
        sizes=sizes,
        whole=whole,
        partial=moving_rows(call),
    )


def _words(dims: Sequence[Sequence[str]]) -> list[str]:
    return [f"({' '.join(fs)})" if len(fs) > 1 else fs[0] if fs else "1" for fs in dims]


def reshape_factors(
    old: Sequence[int], new: Sequence[int]
) -> tuple[list[list[str]], list[list[str]], dict[str, int], list[str]]:
    """Factors of the operand's dims and of the result's, their sizes, the whole ones.

    Both index spaces are walked together, major to minor. Where the next dims of
    the two share a divisor, that is a common factor; else both are taken up to the
    next point where they are aligned again, and only what they share at the minor
    end of those dims is a common factor.
    """
    sides: tuple[list[list[str]], list[list[str]]] = (
        [[] for _ in old],
        [[] for _ in new],
    )
    sizes: dict[str, int] = {}
    whole: list[str] = []
    left = [[d, n] for d, n in enumerate(old) if n != 1]
    right = [[d, n] for d, n in enumerate(new) if n != 1]
    if math.prod(old) == 0:
        left = right = []
    while left and right:
        common = math.gcd(left[0][1], right[0][1])
        if common == 1:
            _take_unaligned(sides, (left, right), sizes, whole)
            continue
        name = f"f{len(sizes)}"
        sizes[name] = common
        for side, rest in zip(sides, (left, right), strict=True):
            side[rest[0][0]].append(name)
            rest[0][1] //= common
            if rest[0][1] == 1:
                rest.pop(0)
    if math.prod(old) == 0:
        for side, shape in zip(sides, (old, new), strict=True):
            for d, n in enumerate(shape):
                name = f"f{len(sizes)}"
                sizes[name] = n
                whole.append(name)
                side[d].append(name)
    return *sides, sizes, whole


def _take_unaligned(
    sides: tuple[list[list[str]], list[list[str]]],
    rests: tuple[list[list[int]], list[list[int]]],
    sizes: dict[str, int],
    whole: list[str],
) -> None:
    """Use up both sides until they are aligned; only minor divisors are shared."""
    groups = _until_aligned(rests)
    minor: list[tuple[str, int, int]] = []
    while all(groups):
        (left, n), (right, m) = groups[0][-1], groups[1][-1]
        common = math.gcd(n, m)
        if common == 1:
            break
        name = f"f{len(sizes)}"
        sizes[name] = common
        minor.append((name, left, right))
        for group in groups:
            group[-1][1] //= common
            if group[-1][1] == 1:
                group.pop()
    for side, group in zip(sides, groups, strict=True):
        for d, n in group:
            name = f"f{len(sizes)}"
            sizes[name] = n
            whole.append(name)
            side[d].append(name)
    for name, left, right in reversed(minor):
        sides[0][left].append(name)
        sides[1][right].append(name)


def _until_aligned(
    rests: tuple[list[list[int]], list[list[int]]],
) -> tuple[list[list[int]], list[list[int]]]:
    """Take dims off both sides until as many elements are taken from either."""
    groups: tuple[list[list[int]], list[list[int]]] = ([], [])
    done = [1, 1]
    while done[0] != done[1] or not groups[0]:
        s = 0 if done[0] <= done[1] else 1
        groups[s].append(rests[s].pop(0))
        done[s] *= groups[s][-1][1]
    return groups


# Parts of dims ----------------------------------------------------------------


def _partly_whole(
    call: Call, changed: Sequence[int], num_moved: int = 1, **fates: object
) -> Rule:
    """Dims that change get a whole factor on either side; the others are shared.

    The first `num_moved` operands have the result's dims, the others are scalars.
    """
    (new,) = call.results
    dims = letters(new.rank)
    whole: list[str] = []

    def named(prefix: str) -> list[str]:
        names = [f"{prefix}{f}" if d in changed else f for d, f in enumerate(dims)]
        whole.extend(names[d] for d in changed)
        return names

    operands = [named(f"t{i}_") for i in range(num_moved)]
    operands += [[] for _ in call.operands[num_moved:]]
    return make_rule(call, operands, [named("r_")], whole=whole, **fates)


def _slice_rule(call: Call) -> Rule:
    changed = [d for d in range(call.results[0].rank) if not _is_full(call, d)]
    return _partly_whole(call, changed, partial=moving_rows(call))


def _is_full(call: Call, d: int) -> bool:
    n = call.operands[0].shape[d]
    bounds = (call.op.attr(f"{what}")[d] for what in ("start_indices", "limit_indices"))
    return (*bounds, call.op.attr("strides")[d]) == (0, n, 1)


def _slice_local(local: Local) -> list[ir.Value]:
    """Limits of cut dims, which are taken in full, become those of the tile."""
    limits = list(local.call.op.attr("limit_indices"))
    for d, tile in enumerate(local.result_shapes[0]):
        if _is_full(local.call, d):
            limits[d] = tile
    (result,) = local.clone()
    result.owner.attributes["limit_indices"] = ir.DenseI64ArrayAttr.get(limits)
    return [result]


def _pad_rule(call: Call) -> Rule:
    op = call.op
    edges = ("edge_padding_low", "edge_padding_high", "interior_padding")
    changed = [
        d for d in range(call.results[0].rank) if any(op.attr(e)[d] for e in edges)
    ]
    rows = moving_rows(call, (0, 1))
    return _partly_whole(call, changed, partial=rows)


def _concatenate_rule(call: Call) -> Rule:
    every = tuple(range(len(call.operands)))
    rows = moving_rows(call, every)
    return _partly_whole(call, [call.op.attr("dimension")], len(every), partial=rows)


def _reverse_rule(call: Call) -> Rule:
    dims = letters(call.results[0].rank)
    whole = [dims[d] for d in call.op.attr("dimensions")]
    return make_rule(call, [dims], [dims], whole=whole, partial=moving_rows(call))


def _dynamic_slice_rule(call: Call) -> Rule:
    old, new = call.operands[0], call.results[0]
    changed = [d for d in range(new.rank) if old.shape[d] != new.shape[d]]
    return _partly_whole(call, changed, partial=moving_rows(call))


def _dynamic_slice_local(local: Local) -> list[ir.Value]:
    """Starts are clamped here: XLA may join slices, and sums starts as they are."""
    operand, *starts = local.operands
    sizes = local.result_shapes[0]
    clamped = _clamped(local, starts, sizes)
    return [local.emitter.dynamic_slice(operand, clamped, sizes)]


def _clamped(
    local: Local, starts: Sequence[ir.Value], sizes: Sequence[int]
) -> list[ir.Value]:
    """Starts within the operand, 0 where the whole dim is taken."""
    found: list[ir.Value] = []
    for n, size, start in zip(_tile(local.operands[0]), sizes, starts, strict=True):
        dtype = tensor_type(start.type).dtype
        zero = local.emitter.splat("0", (), dtype)
        if n == size:
            found.append(zero)
        else:
            last = local.emitter.splat(str(n - size), (), dtype)
            found.append(stablehlo.clamp(zero, start, last))
    return found


def _tile(value: ir.Value) -> tuple[int, ...]:
    return tensor_type(value.type).shape


def _dynamic_update_slice_rule(call: Call) -> Rule:
    """Dims that the update covers are shared; the others stay whole."""
    operand, update, *starts = call.operands
    dims = letters(operand.rank)
    part = [
        f if n == m else f"u_{f}"
        for f, n, m in zip(dims, operand.shape, update.shape, strict=True)
    ]
    changed = [f for f, p in zip(dims, part, strict=True) if f != p]
    rows = moving_rows(call, (0, 1))
    return make_rule(
        call,
        [dims, part, *([] for _ in starts)],
        [dims],
        whole=[*changed, *(f"u_{f}" for f in changed)],
        partial=rows,
    )


def _dynamic_update_slice_local(local: Local) -> list[ir.Value]:
    operand, update, *starts = local.operands
    clamped = _clamped(local, starts, _tile(update))
    return [stablehlo.dynamic_update_slice(operand, update, clamped)]


define(
    "stablehlo.transpose",
    rule=_transpose_rule,
    samples=[Sample("24x12x4xf32 -> 4x24x12xf32", "permutation = array<i64: 2, 0, 1>")],
)
define(
    "stablehlo.broadcast_in_dim",
    rule=_broadcast_rule,
    flops=free,
    samples=[
        Sample("12xf32 -> 24x12xf32", "broadcast_dimensions = array<i64: 1>"),
        Sample("24x1xf32 -> 24x12x4xf32", "broadcast_dimensions = array<i64: 0, 1>"),
        Sample("f32 -> 24x12xf32", "broadcast_dimensions = array<i64>"),
    ],
)
define(
    "stablehlo.reshape",
    rule=_reshape_rule,
    flops=free,
    samples=[
        Sample("8x4xf32 -> 32xf32"),
        Sample("16x1x12xf32 -> 4x4x6x2xf32"),
        Sample("6x4xf32 -> 4x6xf32"),
        Sample("8x6xf32 -> 12x4xf32"),
        Sample("24xf32 -> 2x3x4xf32"),
    ],
)
define(
    "stablehlo.slice",
    rule=_slice_rule,
    localize=_slice_local,
    samples=[
        Sample(
            "24x12xf32 -> 24x5xf32",
            "start_indices = array<i64: 0, 2>, limit_indices = array<i64: 24, 12>, "
            "strides = array<i64: 1, 2>",
        )
    ],
)
define(
    "stablehlo.pad",
    rule=_pad_rule,
    samples=[
        Sample(
            "24x12xf32, f32 -> 24x16xf32",
            "edge_padding_low = array<i64: 0, 1>, "
            "edge_padding_high = array<i64: 0, 3>, "
            "interior_padding = array<i64: 0, 0>",
        )
    ],
)
define(
    "stablehlo.concatenate",
    rule=_concatenate_rule,
    samples=[
        Sample("24x4xf32, 24x6xf32, 24x2xf32 -> 24x12xf32", "dimension = 1 : i64")
    ],
)
define(
    "stablehlo.reverse",
    rule=_reverse_rule,
    samples=[Sample("24x12x4xf32 -> 24x12x4xf32", "dimensions = array<i64: 1>")],
)
define(
    "stablehlo.dynamic_slice",
    rule=_dynamic_slice_rule,
    localize=_dynamic_slice_local,
    samples=[
        Sample(
            "24x12xi32, i32, i32 -> 24x5xi32",
            "slice_sizes = array<i64: 24, 5>",
            low=-9,
            high=30,
        )
    ],
)
define(
    "stablehlo.dynamic_update_slice",
    rule=_dynamic_update_slice_rule,
    localize=_dynamic_update_slice_local,
    samples=[Sample("24x12xi32, 24x5xi32, i32, i32 -> 24x12xi32", low=-9, high=30)],
)
