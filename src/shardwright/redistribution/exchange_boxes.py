"""Direct exchange of boxes: any layouts, each missing piece from a device that has it.

The askers of one tile are dealt out over its holders, and the edges of the graph of
senders and receivers are coloured: a colour is a round. A round moves boxes of one
shape, so either a round serves pieces of one shape, or pieces are sent in *windows*:
boxes of the largest piece's shape, which hold more of the sender's tile than was asked
for; what of it belongs to the receiver's tile is as true as the piece itself, and the
rest is dropped. One window for all gives the fewest rounds, a window for each
magnitude of size sends less.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shardwright.program.layout import Box, Layout
from shardwright.program.schedule import Axes, Exchange, Offsets, Round
from shardwright.redistribution.rounds import in_rounds, max_degree

MAX_TABLE = 1 << 20
"""Most (device, piece) entries that an exchange may write down."""

MAX_JOINED = 64
"""Most members of one all-to-all that has room for a box from each to each."""

MAX_BOXES = 8
"""Most boxes that one piece is cut into, where all are cut alike."""

MAX_UNITS = 3
"""Most sizes of boxes that all pieces are cut to."""

FEW_ROUNDS = 8
"""Up to so many rounds, several ways to deal pieces out are tried."""

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Ends:
    """What each member of a group holds before and after.

    Boxes are global indices without padding; corners are where the stored tiles
    begin, which is past the end of the tensor for tiles of padding alone. Distances
    are by [sender, receiver].
    """

    axes: Axes
    old: tuple[Box, ...]
    new: tuple[Box, ...]
    old_corners: tuple[Offsets, ...]
    new_corners: tuple[Offsets, ...]
    old_tile: Shape
    new_tile: Shape
    distances: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    """Indices that one member sends another."""

    sender: int
    receiver: int
    box: Box

    @property
    def shape(self) -> Shape:
        return tuple(stop - start for start, stop in self.box)


def corners(layout: Layout, shape: Shape) -> tuple[Offsets, ...]:
    """Where the stored tile at each mesh position begins, padding or not."""
    mesh = layout.mesh
    positions = np.arange(mesh.num_devices)
    columns: list[list[int]] = []
    for axes, tile in zip(layout.dims, layout.view_tile_shape(shape), strict=True):
        index = np.zeros_like(positions)
        for axis in axes:
            index = index * axis.size + positions // mesh.stride(axis) % axis.size
        columns.append((index * tile).tolist())
    return tuple(zip(*columns, strict=True)) or ((),) * len(positions)


def boxes(layout: Layout, shape: Shape) -> tuple[Box, ...]:
    """What each mesh position holds, without padding."""
    sizes = layout.view_shape(shape)
    tiles = layout.view_tile_shape(shape)
    return tuple(
        tuple(
            (min(n, start), min(n, start + tile))
            for start, tile, n in zip(at, tiles, sizes, strict=True)
        )
        for at in corners(layout, shape)
    )


Worth = Callable[[int, int], bool]
"""Whether so many rounds, in which a device receives so many elements, can pay."""


def always(rounds: int, elements: int) -> bool:
    return True


def box_exchanges(ends: Ends, worth: Worth = always) -> Iterator[Exchange]:
    """The exchanges worth pricing, those of one shape of box a round first."""
    pieces = _pieces(ends)
    if not pieces:
        return
    yield from _of_pieces(ends, pieces, worth)
    if max_degree([(p.sender, p.receiver) for p in pieces]) <= FEW_ROUNDS:
        in_turn = _pieces(ends, in_turn=True)
        if in_turn != pieces:
            yield from _of_pieces(ends, in_turn, worth)


def _received(pieces: Sequence[_Piece]) -> int:
    """Elements that the busiest member is sent."""
    load: defaultdict[int, int] = defaultdict(int)
    for p in pieces:
        load[p.receiver] += math.prod(p.shape) if p.sender != p.receiver else 0
    return max(load.values(), default=0)


def _of_pieces(
    ends: Ends, pieces: Sequence[_Piece], worth: Worth
) -> Iterator[Exchange]:
    """Exchanges of the same pieces in different boxes."""
    received = _received(pieces)
    exact = _classes(pieces, lambda shape: shape)
    sizes = _classes(pieces, lambda shape: tuple(n.bit_length() for n in shape))
    together = _classes(pieces, lambda shape: None)
    tried: list[list[tuple[Shape, list[_Piece]]]] = []
    for classes in (exact, sizes, together):
        if classes not in tried and worth(_rounds(classes), received):
            yield _exchange(ends, classes)
        tried.append(classes)
    if not 1 < len(ends.old) <= MAX_JOINED:
        return
    for large in range(len(sizes)):
        begun = _rounds(sizes[:large]) + 1
        small = [p for _, alike in sizes[large:] for p in alike]
        if worth(begun, 0):
            yield _exchange(ends, sizes[:large], small)
        if 0 < large < len(sizes) - 1:
            rest = _classes(small, lambda shape: None)
            if worth(begun - 1 + _rounds(rest), received):
                yield _exchange(ends, [*sizes[:large], *rest])


def _rounds(classes: Sequence[tuple[Shape, Sequence[_Piece]]]) -> int:
    """Rounds of all classes, each coloured by itself."""
    moving = (
        [(p.sender, p.receiver) for p in alike if p.sender != p.receiver]
        for _, alike in classes
    )
    return sum(map(max_degree, moving))


def alike_exchanges(ends: Ends, worth: Worth) -> Iterator[Exchange]:
    """All pieces cut to boxes of one smaller piece's shape: rounds that are full."""
    pieces = [p for p in _pieces(ends) if p.sender != p.receiver]
    shapes = sorted({p.shape for p in pieces}, key=math.prod)
    for shape in shapes[-1 - MAX_UNITS : -1]:
        if math.prod(shapes[-1]) <= MAX_BOXES * math.prod(shape):
            found = cut_exchange(ends, shape, worth)
            if found is not None:
                yield found


def cut_exchange(ends: Ends, unit: Shape, worth: Worth) -> Exchange | None:
    """Pieces cut to boxes of one unit's shape, so that all rounds are alike."""
    pieces = [small for p in _pieces(ends) for small in _cut(p, unit)]
    if len(pieces) * len(ends.old) > MAX_TABLE or not pieces:
        return None
    small, large = [], []
    for p in pieces:
        fits = all(n <= u for n, u in zip(p.shape, unit, strict=True))
        (small if fits else large).append(p)
    alike = [(unit, small), *_classes(large, lambda shape: shape)]
    if not worth(_rounds(alike), 0):
        return None
    return _exchange(ends, sorted(alike, key=lambda c: c[0], reverse=True))


def _classes(
    pieces: Sequence[_Piece], key: Callable[[Shape], object]
) -> list[tuple[Shape, list[_Piece]]]:
    """Pieces that travel in boxes of one shape, and that shape, large ones first."""
    found: defaultdict[object, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        found[key(piece.shape)].append(piece)
    classes = [
        (tuple(map(max, zip(*(p.shape for p in alike), strict=True))), alike)
        for alike in found.values()
    ]
    return sorted(classes, key=lambda c: c[0], reverse=True)


def _exchange(
    ends: Ends,
    classes: Sequence[tuple[Shape, Sequence[_Piece]]],
    joined: Sequence[_Piece] = (),
) -> Exchange:
    """Rounds for each class of pieces, and one all-to-all for those to be joined."""
    rounds: list[Round] = []
    for shape, alike in classes:
        rounds += [_round(ends, shape, chosen) for chosen in in_rounds(alike)]
    more = tuple(_joined(ends, joined)) if joined else ()
    return Exchange(ends.axes, ends.new_tile, tuple(rounds), more)


def _joined(ends: Ends, pieces: Sequence[_Piece]) -> Iterator[Round]:
    """Pieces in windows of one shape, by how far they go."""
    count = len(ends.old)
    ((shape, _),) = _classes(pieces, lambda shape: None)
    for shift in range(count):
        alike = [p for p in pieces if (p.receiver - p.sender) % count == shift]
        yield _round(ends, shape, alike)


def _pieces(ends: Ends, *, in_turn: bool = False) -> list[_Piece]:
    """What each device needs, cut by who holds it; its own tile comes first.

    Large pieces are dealt out first, each to the holder that sends least by then: the
    nearest of those, or the next in turn. None at all where they are too many.
    """
    old, new = ends.old, ends.new
    holders: defaultdict[Box, list[int]] = defaultdict(list)
    for device, box in enumerate(old):
        holders[box].append(device)
    cells = list(holders)
    receivers, chosen, found = _common(new, cells)
    if len(receivers) * len(old) > MAX_TABLE:
        return []
    sizes = np.prod(found[..., 1] - found[..., 0], axis=-1)
    sent = [0] * len(old)
    result: list[_Piece] = []
    for i in np.argsort(-sizes, kind="stable").tolist():
        receiver, cell = int(receivers[i]), cells[chosen[i]]
        sender = receiver
        if old[receiver] != cell:
            far = ends.distances[:, receiver] if not in_turn else sent
            sender = min(holders[cell], key=lambda h: (sent[h], far[h]))
            sent[sender] += int(sizes[i])
        box = tuple((a, b) for a, b in found[i].tolist())
        result.append(_Piece(sender, receiver, box))
    return sorted(result, key=lambda p: (p.receiver, p.box))


def _common(
    new: Sequence[Box], cells: Sequence[Box]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
    """Receivers, cells that they want of, and the boxes that are in both."""
    rank = len(new[0])
    wanted = np.array(new, np.int64).reshape(len(new), 1, rank, 2)
    held = np.array(cells, np.int64).reshape(1, len(cells), rank, 2)
    start = np.maximum(wanted[..., 0], held[..., 0])
    stop = np.minimum(wanted[..., 1], held[..., 1])
    receivers, chosen = np.nonzero((start < stop).all(-1))
    both = np.stack([start, stop], -1)[receivers, chosen]
    return receivers, chosen, both


def _cut(piece: _Piece, unit: Shape) -> Iterator[_Piece]:
    if piece.sender == piece.receiver:
        yield piece
        return
    starts = (range(a, b, n) for (a, b), n in zip(piece.box, unit, strict=True))
    for corner_ in product(*starts):
        box = tuple(
            (a, min(a + n, stop))
            for a, n, (_, stop) in zip(corner_, unit, piece.box, strict=True)
        )
        yield _Piece(piece.sender, piece.receiver, box)


def _round(ends: Ends, shape: Shape, pieces: Sequence[_Piece]) -> Round:
    """Windows of this shape around the pieces, inside the senders' stored tiles."""
    nothing: Offsets = (0,) * len(shape)
    read: list[Offsets] = [nothing] * len(ends.old)
    write = list(read)
    for p in pieces:
        at = tuple(
            min(start - low, tile - n)
            for (start, _), low, tile, n in zip(
                p.box, ends.old_corners[p.sender], ends.old_tile, shape, strict=True
            )
        )
        read[p.sender] = at
        write[p.receiver] = tuple(
            low + o - new
            for low, o, new in zip(
                ends.old_corners[p.sender],
                at,
                ends.new_corners[p.receiver],
                strict=True,
            )
        )
    pairs = tuple((p.sender, p.receiver) for p in pieces)
    return Round(shape, pairs, tuple(read), tuple(write))
