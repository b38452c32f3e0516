"""What a candidate costs, and which of them comes first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shardwright.program.mesh import ways
from shardwright.program.schedule import (
    AllToAll,
    Alternative,
    Exchange,
    Shuffle,
    Step,
    count_collectives,
    step_result_shape,
)
from shardwright.program.types import tile_bytes
from shardwright.redistribution.grouping import moves_data
from shardwright.redistribution.routes import Request
from shardwright.topology import schedule_bytes


def ranked_by_price(candidates: Iterable[Alternative]) -> list[Alternative]:
    """Cheapest first; ties by bytes, number of collectives, peak bytes."""
    return sorted(candidates, key=_rank)


def _rank(candidate: Alternative) -> tuple[float, int, int, int]:
    collectives = sum(map(count_collectives, candidate.steps))
    seconds = float(f"{candidate.seconds:.9e}")  # sums in another order are a tie
    return seconds, candidate.bytes_received, collectives, candidate.peak_bytes


def family_of(steps: tuple[Step, ...]) -> str:
    """Which family of schedules the steps belong to."""
    if sum(map(count_collectives, steps)) == 0:
        return "local"
    exchanges = [step for step in steps if isinstance(step, Exchange)]
    if exchanges:
        others = sum(count_collectives(s) for s in steps if s not in exchanges)
        return "mixed" if others else "exchange"
    shuffled = any(isinstance(step, Shuffle) and moves_data(step) for step in steps)
    return "shuffled sequence" if shuffled else "sequence"


def priced(request: Request, family: str, steps: tuple[Step, ...]) -> Alternative:
    """A candidate with what it costs."""
    prices = request.prices
    tile = request.source.view_tile_shape(request.shape)
    received = schedule_bytes(steps, tile, prices.dtype)
    seconds = prices.path(steps, tile).seconds
    peak = tile_bytes(tile, prices.dtype)
    for step in steps:
        tile = step_result_shape(step, tile)
        peak = max(
            peak, tile_bytes(tile, prices.dtype) + _round_bytes(step, prices.dtype)
        )
    return Alternative(family, steps, received, peak, seconds)


def room_bytes(steps: Sequence[Step], tile: tuple[int, ...], dtype: str) -> int:
    """Most bytes that a device holds at a time beside the first and the last tile.

    Before and after each collective that is the tile in hand, what a round sends and
    receives, and an all-to-all's chunks where they have to be laid side by side.
    """
    most, last = 0, len(steps) - 1
    for i, step in enumerate(steps):
        held = tile_bytes(tile, dtype) if i else 0
        before, tile = tile, step_result_shape(step, tile)
        made = tile_bytes(tile, dtype) if i < last else 0
        if isinstance(step, AllToAll):
            is_packed = math.prod(before[: step.split_dim]) > 1
            is_joined = math.prod(tile[: step.concat_dim]) > 1
            held += is_packed * tile_bytes(before, dtype)
            made += is_joined * tile_bytes(tile, dtype)
        most = max(most, held + made + 2 * _round_bytes(step, dtype))
    return most


def _round_bytes(step: Step, dtype: str) -> int:
    """The buffer of one round, beside the new tile."""
    if not isinstance(step, Exchange):
        return 0
    rooms = [tile_bytes(r.shape, dtype) for r in step.rounds if not r.is_local]
    if step.joined:
        rooms.append(ways(step.axes) * tile_bytes(step.joined[0].shape, dtype))
    return max(rooms, default=0)
