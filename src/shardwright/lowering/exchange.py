"""A direct exchange as StableHLO: a permute a round, or one all-to-all for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwright.jaxlib_bindings import integer_elements, ir, stablehlo, tensor_type
from shardwright.program import Exchange, Round, ways
from shardwright.rules import Emitter, zero_text

Value = ir.Value
Permute = Callable[[Value, Round], Value]


def emit_exchange(
    emitter: Emitter, tile: Value, step: Exchange, permute: Permute
) -> Value:
    """The new tile. `permute` sends each member's box as a round says."""
    pieces = _one_by_one(emitter, tile, step, permute)
    if step.joined:
        pieces += _in_one(emitter, tile, step)
    target = _Target(emitter, step, tensor_type(tile.type).dtype)
    for r, piece in zip(step.all_rounds, pieces, strict=True):
        target.write(r, piece)
    return target.finished()


def _one_by_one(
    emitter: Emitter, tile: Value, step: Exchange, permute: Permute
) -> list[Value]:
    member = emitter.index(step.axes)
    pieces: list[Value] = []
    for r in step.rounds:
        piece = tile
        if r.shape != tensor_type(tile.type).shape:
            starts = _offsets(emitter, r.read, member)
            piece = emitter.dynamic_slice(tile, starts, r.shape)
        pieces.append(piece if r.is_local else permute(piece, r))
    return pieces


def _in_one(emitter: Emitter, tile: Value, step: Exchange) -> list[Value]:
    """Round k's box, in the slot of member m + k, through one all-to-all."""
    count, shape = ways(step.axes), step.joined[0].shape
    member = emitter.index(step.axes)
    slots: list[Value] = []
    for target in range(count):
        rows = [step.joined[(target - m) % count].read[m] for m in range(count)]
        piece = emitter.dynamic_slice(tile, _offsets(emitter, rows, member), shape)
        slots.append(emitter.reshape(piece, (1, *shape)))
    packed = stablehlo.concatenate(slots, 0)
    received = stablehlo.AllToAllOp(
        [packed],
        0,
        0,
        count,
        integer_elements(emitter.groups(step.axes)),
        channel_handle=emitter.channel(),
    ).operation.results[0]
    pieces: list[Value] = []
    for shift in range(count):
        sender = emitter.integers([(m - shift) % count for m in range(count)])
        starts = [emitter.lookup(sender, member)] + [emitter.scalar(0)] * len(shape)
        piece = emitter.dynamic_slice(received, starts, (1, *shape))
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
