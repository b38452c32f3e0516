"""The cheapest path of moves from source to target: Dijkstra over states of digits.

States are few, since every move brings a digit to where the target wants it. The
path is priced step by step on the topology, local transposes included, and no state
may hold a larger tile than the larger of source and target.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Iterator
from itertools import count

from shardwright.program.mesh import Mesh
from shardwright.program.schedule import (
    Step,
    Unreduce,
    count_collectives,
)
from shardwright.redistribution.exchange import exchange_moves
from shardwright.redistribution.grouping import (
    shuffle,
    source_groups,
    target_groups,
    tidy,
    tile_shape,
)
from shardwright.redistribution.moves import (
    Move,
    State,
    all_gathers,
    all_to_alls,
    permute,
    reductions,
    start,
)
from shardwright.redistribution.project import Problem, tile_elements
from shardwright.topology import (
    Topology,
    schedule_bytes,
    schedule_seconds,
    step_seconds,
)

MoveSet = tuple[Callable[[Problem, State], Iterator[Move]], ...]

COLLECTIVES: MoveSet = (all_to_alls, all_gathers, reductions, permute)
WITH_EXCHANGE: MoveSet = (*COLLECTIVES, exchange_moves)
EXCHANGE_ONLY: MoveSet = (all_gathers, reductions, exchange_moves)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What is compared, in this order: time, bytes, collectives, peak bytes."""

    seconds: float = 0.0
    bytes_received: int = 0
    collectives: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Prices:
    """Prices of steps on one topology, for tiles of one element type."""

    topology: Topology
    mesh: Mesh
    dtype: str

    def step_seconds(self, step: Step, tile: tuple[int, ...]) -> float:
        """Modelled seconds of one step on a tile of this shape."""
        return step_seconds(self.topology, self.mesh, step, tile, self.dtype)

    def path(self, steps: tuple[Step, ...], tile: tuple[int, ...]) -> Cost:
        """Price of steps in a row that begin on a tile of this shape."""
        seconds = schedule_seconds(self.topology, self.mesh, steps, tile, self.dtype)
        received = schedule_bytes(steps, tile, self.dtype)
        collectives = sum(map(count_collectives, steps))
        return Cost(seconds, received, collectives)


def by_digits(problem: Problem, prices: Prices) -> Iterator[tuple[Step, ...]]:
    """Paths of collectives, and of exchanges where they can save bytes."""
    steps = cheapest_path(problem, prices, COLLECTIVES)
    if steps is not None:
        yield steps
    if problem.owed or _permutes_and_more(problem):
        steps = cheapest_path(problem, prices, EXCHANGE_ONLY)
        if steps is not None:
            yield steps


def _permutes_and_more(problem: Problem) -> bool:
    """Whether an exchange can save bytes: some digits swap, and some move."""
    swaps = any(d.source >= 0 <= d.target for d in problem.digits)
    return swaps and any(d.source >= 0 > d.target for d in problem.digits)


def cheapest_path(
    problem: Problem, prices: Prices, moves: MoveSet = WITH_EXCHANGE
) -> tuple[Step, ...] | None:
    """Steps of the cheapest path, or None where these moves do not lead there."""
    sizes = problem.sizes
    limit = max(tile_elements(problem))
    goal = tuple(d.target for d in problem.digits)
    order = count()
    steps, state = start(problem)
    begin = tile_shape(sizes, source_groups(problem))
    cost = prices.path(steps, begin)
    queue: list[tuple[Cost, int, bool, tuple[Step, ...], State]] = [
        (cost, next(order), False, steps, state)
    ]
    done: set[State] = set()
    while queue:
        cost, _, finished, steps, state = heapq.heappop(queue)
        if finished:
            return _finish(problem, steps)
        if state in done:
            continue
        done.add(state)
        if state.cut == goal and not state.owed:
            last = shuffle(sizes, state.groups, target_groups(problem))
            total = prices.path(steps + last, begin)
            heapq.heappush(queue, (total, next(order), True, steps + last, state))
            continue
        for move in moves:
            for new_steps, after in move(problem, state):
                if after in done or _elements(sizes, after) > limit:
                    continue
                total = prices.path(steps + new_steps, begin)
                entry = (total, next(order), False, steps + new_steps, after)
                heapq.heappush(queue, entry)
    return None


def _elements(sizes: tuple[int, ...], state: State) -> int:
    return math.prod(sizes[d] for _, digits in state.groups for d in digits)


def _finish(problem: Problem, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    tile = tile_shape(problem.sizes, source_groups(problem))
    local = tuple(
        Unreduce(problem.axes([atom]), reducer) for atom, reducer in problem.unreduced
    )
    return tidy(tile, steps + local)
