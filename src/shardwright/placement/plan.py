"""The plan: a strategy an op, a schedule wherever layouts meet, costs, reasons."""

from __future__ import annotations

import dataclasses

from shardwright.program import Layout, Program, Schedule, Strategy
from shardwright.topology import Topology


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A value taken from the layout it is made in to one it is needed in.

    `uses` are (op, operand) pairs; op -1 stands for the program's output.
    """

    value: int
    schedule: Schedule
    uses: tuple[tuple[int, int], ...]

    @property
    def source(self) -> Layout:
        return self.schedule.source

    @property
    def target(self) -> Layout:
        return self.schedule.target


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One way to make an op's layouts agree, priced with its neighbours fixed.

    `bytes_received` and `seconds` count the moves of the op's operands and
    results; `compute_seconds` the op itself on its tile.
    """

    name: str
    detail: str
    bytes_received: int
    seconds: float
    compute_seconds: float
    chosen: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """A conflict at one op: what was chosen, and what was rejected at which price."""

    op: int
    options: tuple[Option, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Where every op computes and how every array moves.

    `made[v]` is the layout in which value v is made; `needs[i][j]` the layout
    in which op i takes operand j; `strategies[i]` op i's strategy. `remade` are
    values of no cost (constants, iotas, broadcast scalars) made again in
    another layout: (value, strategy of their op).
    """

    program: Program
    topology: Topology
    placement: str
    strategies: tuple[Strategy, ...]
    made: tuple[Layout, ...]
    needs: tuple[tuple[Layout, ...], ...]
    outputs: tuple[Layout, ...]
    moves: tuple[Move, ...]
    remade: tuple[tuple[int, Layout, Strategy], ...]
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]
    compute_seconds: float
    incumbents: tuple[tuple[str, float], ...]
    planning_seconds: float = dataclasses.field(compare=False, default=0.0)

    @property
    def inputs(self) -> tuple[Layout, ...]:
        """Layout of each input."""
        return tuple(self.made[v] for v in self.program.inputs)

    @property
    def bytes_received(self) -> int:
        """Bytes that the busiest device receives, summed over all moves."""
        return sum(move.schedule.bytes_received for move in self.moves)

    @property
    def lower_bound(self) -> int:
        """What the moves of this plan must receive at least."""
        return sum(move.schedule.lower_bound for move in self.moves)

    @property
    def communication_seconds(self) -> float:
        return sum(move.schedule.seconds for move in self.moves)

    @property
    def seconds(self) -> float:
        """Modelled time of one step, nothing overlapped."""
        return self.compute_seconds + self.communication_seconds

    @property
    def num_collectives(self) -> int:
        return sum(move.schedule.num_collectives for move in self.moves)
