"""Reductions whose work is dealt out so that all devices receive alike.

Where the devices that hold a part of an element are not those that want it, some have
more to receive than others: of `[b a | sum c] -> [a b c]` over 2 x 2 x 2 devices, those
with a = b hold a part of all they want and are sent one more, the others hold none and
are sent two. The first can reduce for the second, which then receive totals.

`shares` says how much of each block is reduced where. Units are cut to pieces, as many
as come close to that, and two exchanges follow: parts to whoever reduces them, totals
to whoever wants them. So the bound is reached, up to the size of a piece.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from shardwright.program.schedule import Exchange, Fold, Resize, Round, Shuffle, Step
from shardwright.redistribution.grouping import tidy
from shardwright.redistribution.rounds import in_rounds
from shardwright.redistribution.shares import Block, Shares, Work

MAX_PIECES = 4096
"""Most pieces that are dealt out, each on its own."""

CUTS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 20, 24)
"""Into how many pieces a unit may be cut."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Deal:
    """For each block, in the order of its pieces, who reduces them.

    A unit is cut to so many pieces of `size` elements; `slots` is the most that one
    member reduces, `received` the elements that the busiest member receives.
    """

    cut: int
    size: int
    slots: int
    received: int
    reducers: tuple[tuple[int, ...], ...]


def dealt(work: Work, shares: Shares, room: int) -> tuple[Step, ...] | None:
    """Steps whose busiest device receives as the shares say, or nearly.

    None where a device would hold more than `room` elements of parts.
    """
    best: _Deal | None = None
    units = sum(len(block.places) for block in work.blocks)
    for cut in CUTS:
        if best is not None and (units * cut > MAX_PIECES or work.unit < cut):
            break
        deal = _deal(work, shares, cut)
        if work.parts * deal.slots * deal.size > room:
            continue
        if best is None or deal.received < best.received:
            best = deal
        if best.received <= math.ceil(shares.load * work.unit - 1e-6):
            break
    return None if best is None else _steps(work, best)


def _deal(work: Work, shares: Shares, cut: int) -> _Deal:
    loads, slots = np.zeros(work.members, int), np.zeros(work.members, int)
    reducers: list[tuple[int, ...]] = []
    for block, amounts in zip(work.blocks, shares.reduced, strict=True):
        exact = amounts * cut
        count = np.floor(exact + 1e-6).astype(int)
        missing = len(block.places) * cut - int(count.sum())
        order = sorted(range(work.members), key=lambda m: count[m] - exact[m])
        count[order[:missing]] += 1
        wanters = list(block.wanters)
        loads[wanters] += len(block.places) * cut - count[wanters]
        loads += count * [block.received(m) for m in range(work.members)]
        slots += count
        reducers.append(tuple(np.repeat(np.arange(work.members), count).tolist()))
    size = -(-work.unit // cut)
    return _Deal(cut, size, int(slots.max()), int(loads.max()) * size, tuple(reducers))


# Steps ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    """A piece at a place of the sender's tile and of the receiver's."""

    sender: int
    receiver: int
    read: tuple[int, ...]
    write: tuple[int, ...]


def _steps(work: Work, deal: _Deal) -> tuple[Step, ...]:
    parts, totals = _pieces(work, deal)
    n, size, unit = deal.slots, deal.size, work.unit_shape
    old, new = (
        tuple(t // u for t, u in zip(tile, unit, strict=True))
        for tile in (work.old_tile, work.new_tile)
    )
    olds, news = math.prod(old), math.prod(new)
    padded = deal.cut * size
    rank = len(unit)
    apart = tuple(itertools.chain(range(0, 2 * rank, 2), range(1, 2 * rank, 2)))
    together = tuple(i + half for i in range(rank) for half in (0, rank))
    split = tuple(itertools.chain.from_iterable(zip(old, unit, strict=True)))
    steps = (
        Shuffle(split, apart, (olds, work.unit)),
        Resize((olds, padded)),
        Shuffle((olds, padded), (0, 1), (1, olds * deal.cut, size)),
        _exchange(work, (work.parts, n, size), parts),
        Fold(work.reducer),
        _exchange(work, (news * deal.cut, size), totals),
        Shuffle((news * deal.cut, size), (0, 1), (news, padded)),
        Resize((news, work.unit)),
        Shuffle((*new, *unit), together, work.new_tile),
    )
    return tidy(work.old_tile, steps)


def _pieces(work: Work, deal: _Deal) -> tuple[list[_Piece], list[_Piece]]:
    """Parts to whoever reduces them, and totals to whoever wants them."""
    parts: list[_Piece] = []
    totals: list[_Piece] = []
    sent, slots = [0] * work.members, [0] * work.members
    for block, reducers in zip(work.blocks, deal.reducers, strict=True):
        places = _places(block, deal.cut)
        for (old, new), member in zip(places, reducers, strict=True):
            slot = slots[member]
            slots[member] += 1
            for part, holders in enumerate(block.holders):
                sender = member
                if member not in holders:
                    sender = min(holders, key=sent.__getitem__)
                    sent[sender] += 1
                parts.append(_Piece(sender, member, (0, old, 0), (part, slot, 0)))
            totals += [_Piece(member, m, (slot, 0), (new, 0)) for m in block.wanters]
    return parts, totals


def _places(block: Block, cut: int) -> Iterator[tuple[int, int]]:
    """Where the pieces of a block's units lie in the two tiles."""
    for old, new in block.places:
        for i in range(cut):
            yield old * cut + i, new * cut + i


def _exchange(work: Work, shape: tuple[int, ...], pieces: Sequence[_Piece]) -> Exchange:
    """All pieces in boxes of one shape: as many side by side as go together."""
    runs = list(_runs(pieces))
    length = math.gcd(*(n for _, n in runs))
    boxes = [_moved(piece, i) for piece, n in runs for i in range(0, n, length)]
    box = (*(1 for _ in shape[:-2]), length, shape[-1])
    nothing = tuple(0 for _ in shape)
    rounds: list[Round] = []
    for chosen in in_rounds(boxes):
        read, write = [nothing] * work.members, [nothing] * work.members
        for piece in chosen:
            read[piece.sender], write[piece.receiver] = piece.read, piece.write
        pairs = tuple((p.sender, p.receiver) for p in chosen)
        rounds.append(Round(box, pairs, tuple(read), tuple(write)))
    return Exchange(work.axes, shape, tuple(rounds))


def _runs(pieces: Sequence[_Piece]) -> Iterator[tuple[_Piece, int]]:
    """The first piece, and how many, that lie side by side at both ends."""
    order = sorted(pieces, key=lambda p: (p.sender, p.receiver, p.write))
    first, count = order[0], 0
    for piece in order:
        if piece != _moved(first, count):
            yield first, count
            first, count = piece, 0
        count += 1
    yield first, count


def _moved(piece: _Piece, by: int) -> _Piece:
    """The piece so many places on."""
    read, write = ((*at[:-2], at[-2] + by, at[-1]) for at in (piece.read, piece.write))
    return _Piece(piece.sender, piece.receiver, read, write)
