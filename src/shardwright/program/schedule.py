"""Steps that move tiles, and the schedule that takes a layout to another.

Every step acts on the tile as the layout's view sees it. A collective acts in
groups: the devices that differ only in `axes` form a group, ordered row-major
over `axes` as written (major to minor), and member k of the group is the device
whose index over `axes` is k. Everything else about the mesh is batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh, SubAxis, ways

Axes = tuple[SubAxis, ...]
Offsets = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """Keep one's own piece: member k keeps chunk k of `dim`. Nothing moves."""

    dim: int
    axes: Axes


@dataclasses.dataclass(frozen=True, slots=True)
class AllGather:
    """Concatenate the group's tiles along `dim` in member order."""

    dim: int
    axes: Axes


@dataclasses.dataclass(frozen=True, slots=True)
class AllToAll:
    """Cut `split_dim` in as many chunks as members; chunk k goes to member k.

    What arrives is concatenated along `concat_dim` in member order.
    """

    split_dim: int
    concat_dim: int
    axes: Axes


@dataclasses.dataclass(frozen=True, slots=True)
class Permute:
    """Member s sends its whole tile to member t, for each pair (s, t).

    A member that no pair names as target is left with zeros.
    """

    axes: Axes
    pairs: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class AllReduce:
    """Every member gets the elementwise reduction of the group's tiles."""

    axes: Axes
    reducer: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReduceScatter:
    """As AllReduce, but member k keeps chunk k of `dim` alone."""

    dim: int
    axes: Axes
    reducer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Shuffle:
    """Local: reshape the tile to `split`, transpose by `perm`, reshape to `shape`."""

    split: tuple[int, ...]
    perm: tuple[int, ...]
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Resize:
    """Local: cut the end of each dim off, or pad it with zeros, to this shape.

    So tiles that do not divide evenly go through steps that must.
    """

    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Unreduce:
    """Local: make a replicated value partial; member 0 keeps it.

    The other members hold the reducer's identity.
    """

    axes: Axes
    reducer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Fold:
    """Local: reduce the tile's first dim, which is then gone."""

    reducer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """One round of an exchange: boxes of one shape, each member at most one.

    For each pair (s, t) member s sends the box of `shape` at `read[s]` of its
    tile, and t writes what it receives at `write[t]` of its new tile; what would
    lie outside of that tile is dropped. `read` and `write` have one entry a member;
    entries of idle members are ignored. A round of pairs (k, k) alone copies locally
    and moves nothing.
    """

    shape: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    read: tuple[Offsets, ...]
    write: tuple[Offsets, ...]

    @property
    def is_local(self) -> bool:
        return all(s == t for s, t in self.pairs)


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """Direct exchange: the new tile, of `shape`, is written round by round.

    All rounds read the old tile. `axes` must be all axes that move, so that the
    members of a group hold everything the group needs. `joined` holds more rounds,
    which travel in one all-to-all that has room for a box from each member to each:
    as many rounds as members, of one shape, round k with pairs (s, s + k) alone.
    """

    axes: Axes
    shape: tuple[int, ...]
    rounds: tuple[Round, ...]
    joined: tuple[Round, ...] = ()

    @property
    def all_rounds(self) -> tuple[Round, ...]:
        return self.rounds + self.joined


Step = (
    Slice
    | AllGather
    | AllToAll
    | Permute
    | AllReduce
    | ReduceScatter
    | Shuffle
    | Resize
    | Unreduce
    | Fold
    | Exchange
)


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """A schedule that was considered: its family and what it would cost."""

    family: str
    steps: tuple[Step, ...]
    bytes_received: int
    peak_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Slabs:
    """A schedule done in `count` parts, one after the other, to hold less at a time.

    Seen as `source_view`, the source's tile is cut along `source_dim` into slabs that
    the steps take one by one, each as a tensor of `shape`; the results are written one
    after the other along `target_dim` of `target_view`.
    """

    count: int
    shape: tuple[int, ...]
    source_view: tuple[int, ...]
    source_dim: int
    target_view: tuple[int, ...]
    target_dim: int


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """How a tensor of `shape` goes from `source` to `target`, and at what price.

    Bytes are per device, for the device that receives most. `lower_bound` is
    what any schedule must let some device receive. `alternatives` are the
    candidates that lost, cheapest first. `steps_mesh` is the mesh whose axes the
    steps name, where that is not the source's. `room_bytes` is what a device holds at
    most beside the two tiles. With `slabs`, the steps are those of one slab.
    """

    shape: tuple[int, ...]
    dtype: str
    source: Layout
    target: Layout
    family: str
    steps: tuple[Step, ...]
    bytes_received: int
    lower_bound: int
    peak_bytes: int
    seconds: float
    alternatives: tuple[Alternative, ...] = ()
    steps_mesh: Mesh | None = None
    room_bytes: int = 0
    slabs: Slabs | None = None

    @property
    def mesh(self) -> Mesh:
        """The mesh whose axes the steps name."""
        return self.steps_mesh or self.source.mesh

    @property
    def num_collectives(self) -> int:
        """Launches of a collective: one a step that moves, one a moving round."""
        times = self.slabs.count if self.slabs else 1
        return times * sum(count_collectives(step) for step in self.steps)


def count_collectives(step: Step) -> int:
    """How many collective operations the step is emitted as."""
    match step:
        case Slice() | Shuffle() | Resize() | Unreduce() | Fold():
            return 0
        case Exchange():
            return sum(not r.is_local for r in step.rounds) + bool(step.joined)
        case Permute():
            return int(any(s != t for s, t in step.pairs))
        case _:
            return 1


def step_result_shape(step: Step, tile: Sequence[int]) -> tuple[int, ...]:
    """Shape of the tile after the step, for a tile of this shape before it."""
    shape = list(tile)
    match step:
        case Slice() | ReduceScatter():
            shape[step.dim] //= ways(step.axes)
        case AllGather():
            shape[step.dim] *= ways(step.axes)
        case AllToAll():
            shape[step.split_dim] //= ways(step.axes)
            shape[step.concat_dim] *= ways(step.axes)
        case Shuffle() | Resize() | Exchange():
            return step.shape
        case Fold():
            return tuple(shape[1:])
        case Permute() | AllReduce() | Unreduce():
            pass
    return tuple(shape)
