"""A direct exchange as StableHLO: a permute a round, or one all-to-all for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from shardwright.jaxlib_bindings import integer_elements, ir, stablehlo, tensor_type
from shardwright.program import Exchange, Round, SubAxis, ways
from shardwright.rules import Emitter, zero_text

Value = ir.Value
Axes = tuple[SubAxis, ...]
Permute = Callable[..., Value]


def emit_exchange(
    emitter: Emitter,
    tiles: Sequence[Value],
    steps: Sequence[Exchange],
    permute: Permute,
) -> list[Value]:
    """The new tiles, of exchanges with the same pairs in the same rounds.

    `permute` sends each member's box as a round says; boxes of all tiles go together.
    """
    pieces: list[list[Value]] = [[] for _ in tiles]
    for rounds in zip(*(step.rounds for step in steps), strict=True):
        boxes = [
            _box(emitter, tile, step, r)
            for tile, step, r in zip(tiles, steps, rounds, strict=True)
        ]
        if not rounds[0].is_local:
            boxes = _as_one(emitter, boxes, 0, partial(permute, r=rounds[0]))
        for found, box in zip(pieces, boxes, strict=True):
            found.append(box)
    if steps[0].joined:
        packed = [
            _packed(emitter, tile, step)
            for tile, step in zip(tiles, steps, strict=True)
        ]
        axes = steps[0].axes
        received = _as_one(
            emitter, packed, 1, lambda rows: _all_to_all(emitter, rows, axes)
        )
        for found, step, rows in zip(pieces, steps, received, strict=True):
            found += _unpacked(emitter, step, rows)
    results: list[Value] = []
    for tile, step, found in zip(tiles, steps, pieces, strict=True):
        target = _Target(emitter, step, tensor_type(tile.type).dtype)
        for r, piece in zip(step.all_rounds, found, strict=True):
            target.write(r, piece)
        results.append(target.finished())
    return results


def _as_one(
    emitter: Emitter,
    values: Sequence[Value],
    keep: int,
    move: Callable[[Value], Value],
) -> list[Value]:
    """All values through one collective; their first `keep` dims stay as they are."""
    if len(values) == 1:
        return [move(values[0])]
    shapes = [tensor_type(value.type).shape for value in values]
    flat = [
        emitter.reshape(value, (*shape[:keep], math.prod(shape[keep:])))
        for value, shape in zip(values, shapes, strict=True)
    ]
    moved = move(stablehlo.concatenate(flat, keep))
    parts: list[Value] = []
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape[keep:])
        low, high = [0] * keep + [start], [*shape[:keep], stop]
        part = stablehlo.slice(moved, low, high, [1] * (keep + 1))
        parts.append(emitter.reshape(part, shape))
        start = stop
    return parts


def _box(emitter: Emitter, tile: Value, step: Exchange, r: Round) -> Value:
    if r.shape == tensor_type(tile.type).shape:
        return tile
    starts = _offsets(emitter, r.read, emitter.index(step.axes))
    return emitter.dynamic_slice(tile, starts, r.shape)


def _packed(emitter: Emitter, tile: Value, step: Exchange) -> Value:
    """Round k's box in the row of member m + k."""
    count, shape = ways(step.axes), step.joined[0].shape
    member = emitter.index(step.axes)
    rows: list[Value] = []
    for target in range(count):
        reads = [step.joined[(target - m) % count].read[m] for m in range(count)]
        piece = emitter.dynamic_slice(tile, _offsets(emitter, reads, member), shape)
        rows.append(emitter.reshape(piece, (1, *shape)))
    return stablehlo.concatenate(rows, 0)


def _all_to_all(emitter: Emitter, rows: Value, axes: Axes) -> Value:
    op = stablehlo.AllToAllOp(
        [rows],
        0,
        0,
        ways(axes),
        integer_elements(emitter.groups(axes)),
        channel_handle=emitter.channel(),
    )
    return op.operation.results[0]


def _unpacked(emitter: Emitter, step: Exchange, rows: Value) -> list[Value]:
    count, shape = ways(step.axes), step.joined[0].shape
    member = emitter.index(step.axes)
    pieces: list[Value] = []
    for shift in range(count):
        sender = emitter.integers([(m - shift) % count for m in range(count)])
        starts = [emitter.lookup(sender, member)] + [emitter.scalar(0)] * len(shape)
        piece = emitter.dynamic_slice(rows, starts, (1, *shape))
        pieces.append(emitter.reshape(piece, shape))
    return pieces


class _Target:
    """The new tile while it is written, with room around it for what is dropped."""

    def __init__(self, emitter: Emitter, step: Exchange, dtype: str) -> None:
        self._emitter = emitter
        self._shape = step.shape
        self._member = emitter.index(step.axes)
        self._low = [0] * len(step.shape)
        high = list(step.shape)
        for r in step.all_rounds:
            for _, t in r.pairs:
                for d, start in enumerate(r.write[t]):
                    self._low[d] = max(self._low[d], -start)
                    high[d] = max(high[d], start + r.shape[d])
        self._room = [a + b for a, b in zip(self._low, high, strict=True)]
        self._value = emitter.splat(zero_text(dtype), self._room, dtype)

    def write(self, r: Round, piece: Value) -> None:
        is_for_all = len(r.pairs) == len(r.write)
        if is_for_all and list(r.shape) == self._room:
            self._value = piece
            return
        nowhere = tuple(-n for n in self._low)
        targets = {t for _, t in r.pairs}
        rows = [
            tuple(w + low for w, low in zip(row, self._low, strict=True))
            for row in (
                row if t in targets else nowhere for t, row in enumerate(r.write)
            )
        ]
        starts = _offsets(self._emitter, rows, self._member)
        if not is_for_all:
            kept = self._emitter.dynamic_slice(self._value, starts, r.shape)
            piece = stablehlo.select(self._receives(targets, len(rows)), piece, kept)
        self._value = stablehlo.dynamic_update_slice(self._value, piece, starts)

    def finished(self) -> Value:
        if list(self._shape) == self._room:
            return self._value
        stops = [a + n for a, n in zip(self._low, self._shape, strict=True)]
        return stablehlo.slice(self._value, self._low, stops, [1] * len(stops))

    def _receives(self, targets: set[int], count: int) -> Value:
        """Whether this device is the target of a pair."""
        emitter = self._emitter
        table = emitter.integers([int(m in targets) for m in range(count)])
        flag = emitter.lookup(table, self._member)
        direction = stablehlo.ComparisonDirectionAttr.get("NE")
        return stablehlo.compare(flag, emitter.scalar(0), direction)


def _offsets(
    emitter: Emitter, rows: Sequence[Sequence[int]], member: Value
) -> list[Value]:
    """This device's offset in each dim: a constant where all members have one."""
    found: list[Value] = []
    for column in zip(*rows, strict=True):
        if len(set(column)) == 1:
            found.append(emitter.scalar(column[0]))
        else:
            found.append(emitter.lookup(emitter.integers(column), member))
    return found
