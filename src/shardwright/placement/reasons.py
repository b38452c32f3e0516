"""Why: at each conflict the options, each priced with the neighbours as they are."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.placement.plan import Decision, Option
from shardwright.placement.problem import Candidate, Problem
from shardwright.placement.state import State
from shardwright.program import Strategy
from shardwright.rules import has_rule


def decisions(
    problem: Problem, state: State, shardy: State | None
) -> tuple[Decision, ...]:
    """A decision for each op at which a value is moved and another way exists."""
    found: list[Decision] = []
    for op in range(len(problem.program.ops)):
        if op in problem.free or not _moves_at(state, op):
            continue
        options = _options(state, op, shardy)
        if len(options) > 1:
            found.append(Decision(op, options))
    return tuple(found)


def _moves_at(state: State, op: int) -> bool:
    program_op = state.problem.program.ops[op]
    chosen = state.chosen[op]
    moved_in = any(
        state.made[v] != need
        and state.problem.producer.get(v, -1) not in state.problem.free
        for v, need in zip(program_op.operands, chosen.needs, strict=True)
    )
    return moved_in or any(
        need != state.made[v] for v in program_op.results for need in state.needs(v)
    )


def _options(state: State, op: int, shardy: State | None) -> tuple[Option, ...]:
    problem = state.problem
    chosen = state.chosen[op]
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], Option] = {}
    for name, candidate in _named(state, op, shardy):
        if not problem.allowed(op, candidate):
            continue
        if op in problem.pinned and candidate is not chosen:
            continue
        key = (candidate.needs, candidate.makes)
        if key not in seen:
            seen[key] = _price(state, op, name, candidate, candidate is chosen)
    options = sorted(seen.values(), key=lambda o: (not o.chosen, o.seconds))
    return tuple(options[:6])


def _named(
    state: State, op: int, shardy: State | None
) -> Iterator[tuple[str, Candidate]]:
    problem = state.problem
    program_op = problem.program.ops[op]
    chosen = state.chosen[op]
    yield _name(state, op, chosen), chosen
    merged = problem.candidate(op, Strategy())
    for j, value in enumerate(program_op.operands):
        derived = problem.derived(op, j, False, state.made[value])
        merged = problem.merged(op, merged, derived)
    yield "take the operands as they lie, move the result", merged
    for value in program_op.results[:1]:
        for need in sorted(state.needs(value)):
            derived = problem.derived(op, 0, True, need)
            yield "make the result as it is needed, move the operands", derived
    if shardy is not None:
        yield "as Shardy propagates", shardy.chosen[op]
    yield "gather the operands, compute everywhere", problem.candidate(op, Strategy())
    if op in problem.heavy:
        others = sorted(
            problem.enumerated(op),
            key=lambda c: _total(state, op, c),
        )
        yield from (("another split", c) for c in others[:3])


def _name(state: State, op: int, chosen: Candidate) -> str:
    program_op = state.problem.program.ops[op]
    moves_in = any(
        state.made[v] != n
        for v, n in zip(program_op.operands, chosen.needs, strict=True)
    )
    moves_out = any(
        n != state.made[v] for v in program_op.results for n in state.needs(v)
    )
    if moves_in and moves_out:
        return "move operands and result"
    return "move the result" if moves_out else "move the operands"


def _price(
    state: State, op: int, name: str, candidate: Candidate, is_chosen: bool
) -> Option:
    problem = state.problem
    program_op = problem.program.ops[op]
    old = state.chosen[op]
    state.set(op, candidate)
    received, seconds, details = 0, 0.0, []
    values = dict.fromkeys((*program_op.operands, *program_op.results))
    for value in values:
        producer = problem.producer.get(value, -1)
        if producer in problem.free:
            continue
        for need in sorted(state.needs(value)):
            if need == state.made[value]:
                continue
            schedule = problem.schedule(
                problem.program.values[value], state.made[value], need
            )
            received += schedule.bytes_received
            seconds += schedule.seconds
            details.append(f"{schedule.source} -> {schedule.target}")
    state.set(op, old)
    return Option(
        name=name,
        detail="; ".join(details) or "nothing moves",
        bytes_received=received,
        seconds=seconds + candidate.seconds,
        compute_seconds=candidate.seconds,
        chosen=is_chosen,
    )


def _total(state: State, op: int, candidate: Candidate) -> float:
    """Seconds of the op and of the moves around it."""
    old = state.chosen[op]
    state.set(op, candidate)
    moves = sum(map(state.value_seconds, state.problem.touched[op]))
    state.set(op, old)
    return moves + candidate.seconds


def no_rule_warnings(problem: Problem, state: State) -> tuple[str, ...]:
    """One warning for each op without a rule that had to take gathered operands."""

    found: list[str] = []
    for i, op in enumerate(problem.program.ops):
        if has_rule(op):
            continue
        received, seconds = 0, 0.0
        for v, need in zip(op.operands, state.chosen[i].needs, strict=True):
            schedule = problem.schedule(problem.program.values[v], state.made[v], need)
            received += schedule.bytes_received
            seconds += schedule.seconds
        found.append(
            f"no rule for {op.name} ({op.location}): replicated on every device, "
            f"gathering {received} bytes a device, {seconds * 1e6:.1f} us"
        )
    return tuple(found)


def constraint_warnings(problem: Problem) -> tuple[str, ...]:
    """One warning for each given layout that its shape does not divide."""
    found: list[str] = []
    for op in problem.program.ops:
        given = op.constraint
        if given is None or not given.given:
            continue
        shape = problem.program.values[op.results[0]].shape
        if not given.layout.is_even(shape):
            found.append(
                f"constraint {given.layout} at {op.location} does not divide shape "
                f"{shape}; the cuts that do not divide are left out"
            )
    return tuple(found)
