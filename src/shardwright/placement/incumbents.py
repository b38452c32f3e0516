"""First placements: Shardy's, operands decide, result decides, replicate."""

from __future__ import annotations

from shardwright.errors import PlanError
from shardwright.placement.problem import Candidate, Problem
from shardwright.placement.state import State
from shardwright.program import Layout, Strategy


def shardy(problem: Problem, layouts: list[Layout | None]) -> State:
    """Each op made in the layout Shardy's propagation gave its first result.

    Factors that no result carries are cut as the operands lie, where all agree.
    """
    state = State(problem)
    _free_inputs(state, layouts)
    for i, op in enumerate(problem.program.ops):
        candidate = problem.candidate(i, Strategy())
        known = [layouts[v] for v in op.results]
        for j, layout in enumerate(known):
            if layout is not None:
                derived = problem.derived(i, j, True, problem.layout_id(layout))
                candidate = problem.merged(i, candidate, derived)
        candidate = _agreeing_reductions(state, i, candidate)
        state.append(_pinned(problem, i, candidate))
    return state


def operands_decide(problem: Problem, layouts: list[Layout | None]) -> State:
    """Each op takes its operands as they lie; ties go to the cheapest move."""
    state = State(problem)
    _free_inputs(state, layouts)
    for i, op in enumerate(problem.program.ops):
        derived = [
            problem.derived(i, j, False, state.made[v])
            for j, v in enumerate(op.operands)
        ]
        candidates = [problem.candidate(i, Strategy()), *derived]
        for first in derived:
            merged = first
            for second in derived:
                merged = problem.merged(i, merged, second)
            candidates.append(merged)
        if i in problem.heavy:
            candidates += problem.enumerated(i)
        candidates = [c for c in candidates if problem.allowed(i, c)] or candidates[:1]

        def price(candidate: Candidate, i: int = i) -> tuple[float, int]:
            moves = _operand_seconds(state, i, candidate)
            return moves + candidate.seconds, len(candidate.strategy.cuts)

        state.append(_pinned(problem, i, min(candidates, key=price)))
    return state


def result_decides(problem: Problem, layouts: list[Layout | None]) -> State:
    """Backwards from outputs and constraints: each op makes what its use needs."""
    forward = operands_decide(problem, layouts)
    state = forward.copy()
    for i in reversed(range(len(problem.program.ops))):
        op = problem.program.ops[i]
        if i in problem.pinned:
            continue
        for j, value in enumerate(op.results):
            needs = [n for n in state.needs(value) if problem.layouts[n].used_axes]
            if not needs:
                continue
            candidate = problem.derived(i, j, True, needs[0])
            candidate = _agreeing_reductions(state, i, candidate)
            if problem.allowed(i, candidate):
                state.set(i, candidate)
            break
    return state


def replicate(problem: Problem, layouts: list[Layout | None]) -> State:
    """Every contraction on gathered operands: what the first report saw."""
    state = State(problem)
    _free_inputs(state, layouts)
    for i in range(len(problem.program.ops)):
        state.append(_pinned(problem, i, problem.candidate(i, Strategy())))
    return state


def _pinned(problem: Problem, op: int, candidate: Candidate) -> Candidate:
    pinned = problem.pinned.get(op)
    if pinned is not None:
        return pinned
    if problem.allowed(op, candidate):
        return candidate
    given = problem.program.ops[op].constraint
    if given is None:
        raise PlanError(f"op {op} has no legal candidate")
    return problem.derived(op, 0, True, problem.layout_id(given.layout))


def _free_inputs(state: State, layouts: list[Layout | None]) -> None:
    problem = state.problem
    for i, value in enumerate(problem.program.inputs):
        layout = layouts[value]
        if problem.input_layout(i) is not None:
            continue
        given = problem.program.input_constraints[i]
        layout = layout or (given.layout if given is not None else None)
        shape = problem.program.values[value].shape
        if layout is None or not layout.is_even(shape):
            continue
        state.made[value] = problem.layout_id(layout)
        state.made[value] = state.presentable(value)


def _agreeing_reductions(state: State, op: int, candidate: Candidate) -> Candidate:
    """Also cut the reduced factors that every operand carrying them has cut alike."""
    problem = state.problem
    rule = problem.rules[op]
    for factor, _ in rule.reduced:
        cuts = set()
        for j, (dims, value) in enumerate(
            zip(rule.operands, problem.program.ops[op].operands, strict=True)
        ):
            if any(factor in factors for factors in dims):
                derived = problem.derived(op, j, False, state.made[value])
                cuts.add(dict(derived.strategy.cuts).get(factor))
        if len(cuts) == 1 and None not in cuts:
            extra = Strategy(((factor, cuts.pop() or ()),))
            candidate = problem.merged(op, candidate, problem.candidate(op, extra))
    return candidate


def _operand_seconds(state: State, op: int, candidate: Candidate) -> float:
    problem = state.problem
    program = problem.program
    return sum(
        problem.move_seconds(program.values[v], state.made[v], need)
        for v, need in zip(program.ops[op].operands, candidate.needs, strict=True)
        if problem.producer.get(v, -1) not in problem.free
    )
