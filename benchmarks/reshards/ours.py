"""Our plans for a problem: checked exactly, counted, and priced on machines."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from reshards.problems import Problem
from shardwright.errors import CheckSizeError
from shardwright.program import Schedule, tile_bytes
from shardwright.redistribution import check_schedule, plan_redistribution
from shardwright.topology import Switched, Topology, preset

BYTES = Topology(
    "bytes",
    None,
    (("f32", 1e30),),
    1e30,
    1e12,
    Switched(1 << 20, 1e9, 1e9, 0.0),
    "made up: nothing but received bytes takes time",
)
MACHINES = ("h100-8", "h100x8x8", "tpu-v5e-16x16", "tpu-v5p-4x4x4")


def machines(num_devices: int) -> list[Topology]:
    """Where bytes alone cost, then every machine that is large enough."""
    real = map(preset, MACHINES)
    return [BYTES, *(m for m in real if (m.num_devices or 0) >= num_devices)]


@dataclasses.dataclass(frozen=True)
class Ours:
    """Figures of the plan of fewest bytes; seconds of each machine's own plan.

    `peak_ratio` is over the larger of the two tiles, `peak_bytes` the most of any
    machine's plan.
    """

    bytes_received: int
    lower_bound: int
    collectives: int
    peak_ratio: float
    peak_bytes: int
    seconds: dict[str, float]
    planning: float
    family: str
    unchecked: int


def our_answer(problem: Problem, where: Sequence[Topology]) -> Ours:
    """Plan for each machine; a schedule that is not exact raises."""
    start = time.perf_counter()
    plans = [_plan(problem, machine) for machine in where]
    planning = (time.perf_counter() - start) / len(where)
    least = least_bytes(plans[0])
    unchecked = sum(not _is_checked(plan) for plan in (least, *plans))
    return Ours(
        least.bytes_received,
        least.lower_bound,
        least.num_collectives,
        least.peak_bytes / ends(problem),
        max(plan.peak_bytes for plan in plans),
        {m.name: p.seconds for m, p in zip(where, plans, strict=True)},
        planning,
        least.family,
        unchecked,
    )


def _is_checked(plan: Schedule) -> bool:
    """Whether the plan was followed and found exact; one too large to follow is not."""
    try:
        check_schedule(plan)
    except CheckSizeError:
        return False
    return True


def least_bytes(plan: Schedule) -> Schedule:
    """The plan itself or the alternative that received fewest bytes."""
    best = min(plan.alternatives, key=lambda a: a.bytes_received, default=None)
    if best is None or best.bytes_received >= plan.bytes_received:
        return plan
    return dataclasses.replace(
        plan,
        family=best.family,
        steps=best.steps,
        bytes_received=best.bytes_received,
        peak_bytes=best.peak_bytes,
        seconds=best.seconds,
        alternatives=(),
    )


def ends(problem: Problem) -> int:
    """Bytes of the larger of the source's and the target's tile."""
    return max(
        1,
        *(
            tile_bytes(layout.tile_shape(problem.shape), "f32")
            for layout in (problem.source, problem.target)
        ),
    )


def _plan(problem: Problem, machine: Topology) -> Schedule:
    return plan_redistribution(
        problem.shape, "f32", problem.source, problem.target, machine
    )
