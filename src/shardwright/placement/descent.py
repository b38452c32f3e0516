"""Make a placement cheaper: change one op, or one op and all that follows it.

A light op (elementwise, shape) follows its neighbours, so a change at a
contraction ripples through the light ops around it and is judged as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from shardwright.placement.problem import Candidate
from shardwright.placement.state import State


def descend(state: State, reach: int, max_sweeps: int = 8) -> None:
    """Improve `state` in place until no single or rippled change saves time.

    A ripple changes `reach` ops at most.

    After the first sweep only ops near a change are looked at again.
    """
    near: set[int] = set(range(len(state.problem.program.ops)))
    for _ in range(max_sweeps):
        before = list(state.chosen)
        _improve_single(state, near)
        _improve_rippled(state, near, reach)
        changed = {i for i, c in enumerate(before) if c is not state.chosen[i]}
        near = changed | {n for i in changed for n in _neighbours(state, i)}
        if not near:
            return


def options(state: State, op: int) -> Iterator[Candidate]:
    """Candidates worth trying for one op, given its neighbours as they are."""
    problem = state.problem
    if op in problem.pinned:
        return
    program_op = problem.program.ops[op]
    seen: set[int] = set()
    found: list[Candidate] = []

    def add(candidate: Candidate) -> None:
        if id(candidate) not in seen:
            seen.add(id(candidate))
            found.append(candidate)

    for j, value in enumerate(program_op.operands):
        add(problem.derived(op, j, False, state.made[value]))
    for j, value in enumerate(program_op.results):
        for need in state.needs(value):
            add(problem.derived(op, j, True, need))
    for first in tuple(found):
        for second in tuple(found):
            if first is not second and len(found) < 32:
                add(problem.merged(op, first, second))
    if op in problem.heavy or not program_op.operands:
        for candidate in problem.enumerated(op):
            add(candidate)
    yield from (c for c in found if problem.allowed(op, c))


def _improve_single(state: State, near: set[int]) -> None:
    problem = state.problem
    ops = problem.program.ops
    queue = deque(sorted(near))
    queued = set(queue)
    budget = 12 * len(ops)
    while queue and budget:
        budget -= 1
        op = queue.popleft()
        queued.discard(op)
        if op in problem.free:
            continue
        saved = 0.0
        for candidate in options(state, op):
            if candidate is not state.chosen[op]:
                saved += state.trial({op: candidate})
        if saved > 0.0:
            for neighbour in _neighbours(state, op):
                if neighbour not in queued:
                    queued.add(neighbour)
                    queue.append(neighbour)
    _improve_inputs(state)


def _neighbours(state: State, op: int) -> Iterator[int]:
    problem = state.problem
    for value in problem.program.ops[op].operands:
        if value in problem.producer:
            yield problem.producer[value]
        yield from (u.op for u in problem.uses[value] if u.op >= 0)
    for value in problem.program.ops[op].results:
        yield from (use.op for use in problem.uses[value] if use.op >= 0)


def _improve_inputs(state: State) -> None:
    """Free inputs come in whatever layout costs least at their uses."""
    problem = state.problem
    for i, value in enumerate(problem.program.inputs):
        if problem.input_layout(i) is not None:
            continue
        before = state.value_seconds(value)
        kept = state.made[value]
        for need in state.needs(value):
            layout = problem.layouts[need]
            if layout.partial or layout.view is not None:
                continue
            state.made[value] = need
            state.made[value] = state.presentable(value)
            after = state.value_seconds(value)
            if after < before * (1 - 1e-9):
                before, kept = after, state.made[value]
        state.made[value] = kept
        state.forget(value)


def _improve_rippled(state: State, near: set[int], reach: int) -> None:
    problem = state.problem
    for op in sorted(near):
        if op in problem.free or op in problem.pinned:
            continue
        if op not in problem.heavy and not _at_border(state, op):
            continue
        for candidate in tuple(options(state, op)):
            if candidate is state.chosen[op]:
                continue
            changes = ripple(state, op, candidate, reach)
            if len(changes) > 1:
                state.trial(changes)


def _at_border(state: State, op: int) -> bool:
    """Whether a value is moved on its way into or out of the op."""
    program_op = state.problem.program.ops[op]
    needs = state.chosen[op].needs
    if any(state.made[v] != n for v, n in zip(program_op.operands, needs, strict=True)):
        return True
    return any(
        need != state.made[v] for v in program_op.results for need in state.needs(v)
    )


def ripple(
    state: State, op: int, candidate: Candidate, reach: int
) -> dict[int, Candidate]:
    """The change of one op, and of every light op that would follow it."""
    problem, chosen = state.problem, state.chosen
    changes = {op: candidate}
    queue = deque([op])
    while queue and len(changes) < reach:
        at = queue.popleft()
        now = changes[at]
        for link in problem.links[at]:
            other = link.op
            if other in changes:
                continue
            layout = (now.makes if link.from_result else now.needs)[link.position]
            current = chosen[other]
            held = current.makes if link.to_result else current.needs
            if held[link.index] == layout:
                continue
            wanted = problem.derived(other, link.index, link.to_result, layout)
            if wanted is not current and problem.allowed(other, wanted):
                changes[other] = wanted
                queue.append(other)
    return changes
