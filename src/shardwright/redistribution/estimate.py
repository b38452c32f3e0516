"""What a change of layout costs at least, for searches that ask about very many."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

from shardwright.program.layout import Layout
from shardwright.redistribution.choose import has_levels, plan_schedule
from shardwright.redistribution.grouping import source_groups, tile_shape
from shardwright.redistribution.project import FREE, Problem, project
from shardwright.redistribution.sequences import Prices, by_digits
from shardwright.topology import Topology


def cheapest_seconds(
    shape: tuple[int, ...],
    dtype: str,
    source: Layout,
    target: Layout,
    topology: Topology,
) -> float:
    """Modelled seconds of `plan_schedule`'s choice, for searches that try many changes.

    Changes that are one up to the names of axes are planned once. Detours over faster
    links are not looked for, so it may be more than the schedule's own seconds.
    """
    problem = project(shape, source, target)
    if problem is None or math.prod(shape) == 0:
        return plan_schedule(shape, dtype, source, target, topology).seconds
    prices = Prices(topology, source.mesh, dtype)
    key = (_nameless(problem, prices), source.mesh.num_devices)
    return _seconds(_Question(key, dtype, topology, problem, prices))


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """A change to price; questions with one key, type and topology have one answer."""

    key: tuple[Any, ...]
    dtype: str
    topology: Topology
    problem: Problem = dataclasses.field(compare=False)
    prices: Prices = dataclasses.field(compare=False)


@lru_cache(maxsize=1 << 16)
def _seconds(question: _Question) -> float:
    problem, prices = question.problem, question.prices
    tile = tile_shape(problem.sizes, source_groups(problem))
    return min(prices.path(steps, tile).seconds for steps in by_digits(problem, prices))


def _nameless(problem: Problem, prices: Prices) -> tuple[Any, ...]:
    """What the price of a change depends on: atoms by size and place, not by name."""
    number: dict[int, int] = {FREE: FREE}
    for digit in problem.digits:
        number.setdefault(digit.source, len(number) - 1)
        number.setdefault(digit.target, len(number) - 1)
    for atom, _ in problem.owed + problem.unreduced:
        number.setdefault(atom, len(number) - 1)
    is_layered = has_levels(prices.topology, prices.mesh)
    return (
        tuple(
            (d.size, number[d.source], number[d.target], d.home, d.target_home)
            for d in problem.digits
        ),
        tuple(
            (problem.atoms[a].size, prices.mesh.stride(problem.atoms[a]) * is_layered)
            for a in number
            if a != FREE
        ),
        tuple((number[a], reducer) for a, reducer in problem.owed),
        tuple((number[a], reducer) for a, reducer in problem.unreduced),
        problem.source_rank,
        problem.target_rank,
    )
