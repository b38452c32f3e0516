"""Program -> Plan: incumbents, then descent from each; the cheapest is the plan."""

from __future__ import annotations

import time
from collections import defaultdict

from shardwright.errors import PlanError
from shardwright.placement import incumbents
from shardwright.placement.descent import descend
from shardwright.placement.plan import Move, Plan
from shardwright.placement.problem import Problem, check_given
from shardwright.placement.propagate import propagate
from shardwright.placement.reasons import (
    constraint_warnings,
    decisions,
    no_rule_warnings,
)
from shardwright.placement.state import State
from shardwright.program import Layout, Program, Strategy
from shardwright.topology import Topology, check_fits

NEAR, FAR = 30, 100
"""Ops that one change may reach, in descents from every start and from the best."""

PLACEMENTS = ("optimal", "shardy", "replicate")


def place(program: Program, topology: Topology, placement: str = "optimal") -> Plan:
    """Choose a strategy for every op and a schedule wherever layouts meet.

    `placement` is "optimal" (the cheapest found; never above the plan from
    Shardy's propagation), "shardy" (that plan), or "replicate" (every op on
    gathered operands). Raises PlanError for another word, and where a given
    layout does not divide its shape.
    """
    if placement not in PLACEMENTS:
        raise PlanError(
            f"placement {placement!r} is unknown; use one of {', '.join(PLACEMENTS)}"
        )
    started = time.perf_counter()
    check_fits(topology, program.mesh.num_devices)
    problem = Problem(program, topology)
    check_given(problem)
    layouts = propagate(program)
    shardy = incumbents.shardy(problem, layouts)
    if placement == "replicate":
        best = incumbents.replicate(problem, layouts)
    elif placement == "shardy":
        best = shardy
    else:
        best = _cheapest(problem, layouts, shardy)
    costs = (("shardy", shardy.exact_seconds()), (placement, best.exact_seconds()))
    elapsed = time.perf_counter() - started
    return _finish(problem, best, shardy, placement, costs, elapsed)


def _cheapest(problem: Problem, layouts: list[Layout | None], shardy: State) -> State:
    best = shardy
    for start in (
        shardy.copy(),
        incumbents.operands_decide(problem, layouts),
        incumbents.result_decides(problem, layouts),
    ):
        descend(start, NEAR)
        if start.exact_seconds() < best.exact_seconds() * (1 - 1e-9):
            best = start
    last = best.copy()
    descend(last, FAR)
    return last if last.exact_seconds() < best.exact_seconds() else best


def _finish(
    problem: Problem,
    state: State,
    shardy: State,
    placement: str,
    costs: tuple[tuple[str, float], ...],
    elapsed: float,
) -> Plan:
    program = problem.program
    remade = _settle_free(problem, state)
    layouts = problem.layouts
    warnings = no_rule_warnings(problem, state) + constraint_warnings(problem)
    return Plan(
        program=program,
        topology=problem.topology,
        placement=placement,
        strategies=tuple(c.strategy for c in state.chosen),
        made=tuple(layouts[i] for i in state.made),
        needs=tuple(tuple(layouts[n] for n in c.needs) for c in state.chosen),
        outputs=tuple(
            layouts[state.need(-1, j, v)] for j, v in enumerate(program.outputs)
        ),
        moves=tuple(_moves(problem, state, {pair[:2] for pair in remade})),
        remade=remade,
        decisions=decisions(problem, state, shardy),
        warnings=warnings,
        compute_seconds=sum(c.seconds for c in state.chosen),
        incumbents=costs,
        planning_seconds=elapsed,
    )


def _settle_free(
    problem: Problem, state: State
) -> tuple[tuple[int, Layout, Strategy], ...]:
    """Make free values where they are needed, once per layout.

    Users come after their operands, so going backwards settles an op's needs
    before its operands'.
    """
    remade: list[tuple[int, Layout, Strategy]] = []
    for op in sorted(problem.free, reverse=True):
        value = problem.program.ops[op].results[0]
        needs = sorted(state.needs(value))
        exact = []
        for need in needs:
            candidate = problem.derived(op, 0, True, need)
            if candidate.makes[0] == need:
                exact.append(candidate)
        if exact:
            state.set(op, exact[0])
        for candidate in exact[1:]:
            layout = problem.layouts[candidate.makes[0]]
            remade.append((value, layout, candidate.strategy))
    return tuple(remade)


def _moves(
    problem: Problem, state: State, remade: set[tuple[int, Layout]]
) -> list[Move]:
    found: list[Move] = []
    for value, type_ in enumerate(problem.program.values):
        users: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for use in problem.uses[value]:
            need = state.need(use.op, use.operand, value)
            users[need].append((use.op, use.operand))
        for need, uses in users.items():
            made = state.made[value]
            if need == made or (value, problem.layouts[need]) in remade:
                continue
            schedule = problem.schedule(type_, made, need)
            found.append(Move(value, schedule, tuple(uses)))
    return found
