"""Reductions whose work is dealt out so that all devices receive alike.

Where the devices that hold a part of an element are not those that want it, some have
more to receive than others: of `[b a | sum c] -> [a b c]` over 2 x 2 x 2 devices, those
with a = b hold a part of all they want and are sent one more, the others hold none and
are sent two. The first can reduce for the second, which then receive totals.

`shares` says how much of each block is reduced where. Units are cut to pieces that can
be dealt out so, what is left of a unit to single elements, and two exchanges follow:
parts to whoever reduces them, totals to whoever wants them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shardwright.program.schedule import Exchange, Fold, Round, Shuffle, Step
from shardwright.redistribution.grouping import tidy
from shardwright.redistribution.rounds import in_rounds
from shardwright.redistribution.shares import Block, Shares, Work, whole_shares

MAX_PIECES = 4096
"""Most pieces that are dealt out, each on its own."""

MAX_CUT = 64
"""Into how many pieces of one size a unit is cut at most."""

MAX_MORE = 4
"""Up to so many elements above the least load are tried for single elements."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Deal:
    """For each block, in the order of its pieces, who reduces them.

    Each unit is cut to `cut` pieces of `size` elements, the first at `start`.
    """

    cut: int
    size: int
    start: int
    reducers: tuple[tuple[int, ...], ...]


def dealt(work: Work, shares: Shares, room: int) -> tuple[Step, ...] | None:
    """Steps whose busiest device receives as the shares say, or nearly.

    None where a device would hold more than `room` elements of parts.
    """
    cut, counts = _cut(work, shares)
    size, rest = divmod(work.unit, cut)
    deals = [_Deal(cut, size, 0, _in_turn(counts))] if size else []
    if rest:
        most = math.ceil(shares.load * work.unit - 1e-6) - size * _busiest(work, counts)
        tries = (whole_shares(work, rest, most + more) for more in range(MAX_MORE))
        few = next((few for few in tries if few is not None), None)
        if few is None:
            few = _rounded(work, shares, rest)
        deals.append(_Deal(rest, 1, cut * size, _in_turn(few)))
    slots = np.zeros(work.members, int)
    for deal in deals:
        for reducers in deal.reducers:
            np.add.at(slots, list(reducers), deal.size)
    if work.parts * int(slots.max()) > room:
        return None
    return _steps(work, deals, int(slots.max()))


def _cut(work: Work, shares: Shares) -> tuple[int, NDArray[np.int64]]:
    """Into how many pieces units are cut, and how many [block, member] has of them.

    All loads are whole numbers of pieces: the least load is one only in pieces of a
    multiple of its denominator.
    """
    units = sum(len(block.places) for block in work.blocks)
    most = max(1, min(MAX_CUT, MAX_PIECES // units, work.unit))
    fewest = Fraction(shares.load).limit_denominator(MAX_CUT).denominator
    for cut in range(fewest, most + 1, fewest):
        counts = whole_shares(work, cut, round(shares.load * cut))
        if counts is not None:
            return cut, counts
    rounded = {cut: _rounded(work, shares, cut) for cut in range(1, most + 1)}
    best = min(rounded, key=lambda cut: _busiest(work, rounded[cut]) / cut)
    return best, rounded[best]


def _rounded(work: Work, shares: Shares, cut: int) -> NDArray[np.int64]:
    """The shares in whole pieces, those most in arrears rounded up."""
    exact = shares.reduced * cut
    counts = np.floor(exact + 1e-6).astype(np.int64)
    for b, block in enumerate(work.blocks):
        missing = len(block.places) * cut - int(counts[b].sum())
        order = np.argsort(counts[b] - exact[b], kind="stable")
        counts[b, order[:missing]] += 1
    return counts


def _busiest(work: Work, counts: NDArray[np.int64]) -> int:
    """Pieces that the busiest member receives."""
    loads = np.zeros(work.members, np.int64)
    for block, count in zip(work.blocks, counts, strict=True):
        wanters = list(block.wanters)
        loads[wanters] += count.sum() - count[wanters]
        loads += count * [block.received(m) for m in range(work.members)]
    return int(loads.max())


def _in_turn(counts: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    members = np.arange(counts.shape[1])
    return tuple(tuple(np.repeat(members, count).tolist()) for count in counts)


# Steps ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    """Elements at a place of the sender's tile and of the receiver's."""

    sender: int
    receiver: int
    size: int
    read: tuple[int, int]
    write: tuple[int, int]

    def moved(self, by: int) -> _Piece:
        """The piece so many elements on."""
        read, write = ((row, at + by) for row, at in (self.read, self.write))
        return _Piece(self.sender, self.receiver, self.size, read, write)


def _steps(work: Work, deals: Sequence[_Deal], slots: int) -> tuple[Step, ...]:
    rank, unit = len(work.unit_shape), work.unit_shape
    old, new = (
        tuple(t // u for t, u in zip(tile, unit, strict=True))
        for tile in (work.old_tile, work.new_tile)
    )
    apart = tuple(itertools.chain(range(0, 2 * rank, 2), range(1, 2 * rank, 2)))
    together = tuple(i + half for i in range(rank) for half in (0, rank))
    split = tuple(itertools.chain.from_iterable(zip(old, unit, strict=True)))
    parts, totals = _pieces(work, deals)
    steps = (
        Shuffle(split, apart, (1, math.prod(work.old_tile))),
        _exchange(work, (work.parts, slots), parts),
        Fold(work.reducer),
        Shuffle((slots,), (0,), (1, slots)),
        _exchange(work, (1, math.prod(work.new_tile)), totals),
        Shuffle((*new, *unit), together, work.new_tile),
    )
    return tidy(work.old_tile, steps)


Pieces = list[_Piece]


def _pieces(work: Work, deals: Sequence[_Deal]) -> tuple[list[Pieces], list[Pieces]]:
    """Parts to whoever reduces them, and totals to whoever wants them, by deal."""
    sent, slots = [0] * work.members, [0] * work.members
    parts: list[Pieces] = []
    totals: list[Pieces] = []
    for deal in deals:
        parts.append([])
        totals.append([])
        for block, reducers in zip(work.blocks, deal.reducers, strict=True):
            places = _places(block, work.unit, deal)
            for (old, new), member in zip(places, reducers, strict=True):
                slot = slots[member]
                slots[member] += deal.size
                for part, holders in enumerate(block.holders):
                    sender = member
                    if member not in holders:
                        sender = min(holders, key=sent.__getitem__)
                        sent[sender] += deal.size
                    to = (part, slot)
                    parts[-1].append(_Piece(sender, member, deal.size, (0, old), to))
                totals[-1] += [
                    _Piece(member, wanter, deal.size, (0, slot), (0, new))
                    for wanter in block.wanters
                ]
    return parts, totals


def _places(block: Block, unit: int, deal: _Deal) -> Iterator[tuple[int, int]]:
    """Where the pieces of a block's units lie in the two tiles."""
    for old, new in block.places:
        for i in range(deal.cut):
            at = deal.start + i * deal.size
            yield old * unit + at, new * unit + at


def _exchange(work: Work, shape: tuple[int, int], groups: Sequence[Pieces]) -> Exchange:
    """Pieces of a group in boxes of one shape: as many side by side as go together."""
    rounds: list[Round] = []
    for pieces in groups:
        runs = list(_runs(pieces))
        size = math.gcd(*(length for _, length in runs))
        boxes = [p.moved(at) for p, length in runs for at in range(0, length, size)]
        for chosen in in_rounds(boxes):
            read, write = [(0, 0)] * work.members, [(0, 0)] * work.members
            for piece in chosen:
                read[piece.sender], write[piece.receiver] = piece.read, piece.write
            pairs = tuple((p.sender, p.receiver) for p in chosen)
            rounds.append(Round((1, size), pairs, tuple(read), tuple(write)))
    return Exchange(work.axes, shape, tuple(rounds))


def _runs(pieces: Pieces) -> Iterator[tuple[_Piece, int]]:
    """The first piece, and how many elements lie side by side at both ends."""
    order = sorted(pieces, key=lambda p: (p.sender, p.receiver, p.write))
    first, length = order[0], 0
    for piece in order:
        if piece != first.moved(length):
            yield first, length
            first, length = piece, 0
        length += piece.size
    yield first, length
