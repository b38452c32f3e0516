"""One placement under construction: a candidate an op, and what it all costs."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.placement.problem import Candidate, Problem
from shardwright.program import Layout


class State:
    """Chosen candidates and input layouts, with the cost of any part of it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        program = problem.program
        self.chosen: list[Candidate] = []
        self._costs: dict[int, float] = {}
        self.made: list[int] = [
            problem.layout_id(Layout.replicated(program.mesh, t.rank))
            for t in program.values
        ]
        for i, v in enumerate(program.inputs):
            fixed = problem.input_layout(i)
            if fixed is not None:
                self.made[v] = fixed

    def copy(self) -> State:
        other = object.__new__(State)
        other.problem = self.problem
        other.chosen = list(self.chosen)
        other.made = list(self.made)
        other._costs = {}
        return other

    def set(self, op: int, candidate: Candidate) -> None:
        """Choose a candidate for an op."""
        self.chosen[op] = candidate
        results = self.problem.program.ops[op].results
        for value, layout in zip(results, candidate.makes, strict=True):
            self.made[value] = layout

    def append(self, candidate: Candidate) -> None:
        """Choose the candidate of the next op in order."""
        self.chosen.append(candidate)
        self.set(len(self.chosen) - 1, candidate)

    # What is needed ----------------------------------------------------------

    def need(self, op: int, operand: int, value: int) -> int:
        """Layout in which one use needs the value; op -1 is the program's output."""
        if op >= 0:
            return self.chosen[op].needs[operand]
        fixed = self.problem.output_need(operand)
        return self.presentable(value) if fixed is None else fixed

    def presentable(self, value: int) -> int:
        """The layout of a free output: as made, but expressible as a PartitionSpec."""
        problem = self.problem
        layout = problem.layouts[self.made[value]]
        shape = problem.program.values[value].shape
        return problem.layout_id(presentable(layout, shape))

    def needs(self, value: int) -> set[int]:
        """All layouts that uses of the value need."""
        return {
            self.need(use.op, use.operand, value) for use in self.problem.uses[value]
        }

    # Cost ------------------------------------------------------------------------

    def value_seconds(self, value: int) -> float:
        """Time of all moves of a value."""
        problem = self.problem
        producer = problem.producer.get(value, -1)
        if producer in problem.free:
            return 0.0
        made = self.made[value]
        type_ = problem.program.values[value]
        return sum(
            problem.move_seconds(type_, made, need)
            for need in self.needs(value)
            if need != made
        )

    def part_seconds(self, ops: Iterable[int], values: Iterable[int]) -> float:
        """Time of these ops and of the moves of these values."""
        total = sum(self.chosen[op].seconds for op in ops)
        return total + sum(self.value_seconds(v) for v in values)

    def seconds(self) -> float:
        """Modelled time of the whole placement, nothing overlapped."""
        ops = range(len(self.chosen))
        return self.part_seconds(ops, range(len(self.made)))

    def trial(self, changes: dict[int, Candidate]) -> float:
        """Seconds saved by the changes; they are made, and undone if they save none."""
        touched = self.problem.touched
        values = dict.fromkeys(v for op in changes for v in touched[op])
        before = sum(self.chosen[op].seconds for op in changes)
        before += sum(map(self.cost, values))
        limit = before - max(1e-9 * before, 1e-15)
        after = sum(candidate.seconds for candidate in changes.values())
        if after >= limit:
            return 0.0
        old = {op: self.chosen[op] for op in changes}
        for op, candidate in changes.items():
            self.set(op, candidate)
        costs: dict[int, float] = {}
        for value in values:
            costs[value] = self.value_seconds(value)
            after += costs[value]
            if after >= limit:
                for op, candidate in old.items():
                    self.set(op, candidate)
                return 0.0
        self._costs.update(costs)
        return before - after

    def cost(self, value: int) -> float:
        """`value_seconds`, remembered; what changes a placement keeps it true."""
        found = self._costs.get(value)
        if found is None:
            found = self._costs[value] = self.value_seconds(value)
        return found

    def forget(self, value: int) -> None:
        """Drop a remembered cost, after a change from outside."""
        self._costs.pop(value, None)

    def exact_seconds(self) -> float:
        """`seconds` by the schedules themselves, whatever the search took them for."""
        problem = self.problem
        total = sum(candidate.seconds for candidate in self.chosen)
        for value, type_ in enumerate(problem.program.values):
            if problem.producer.get(value, -1) in problem.free:
                continue
            made = self.made[value]
            total += sum(
                problem.schedule(type_, made, need).seconds
                for need in self.needs(value)
                if need != made
            )
        return total


def presentable(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The nearest layout a PartitionSpec can say: whole axes, nothing partial.

    Strided cuts keep the most major factor of each dim alone.
    """
    mesh = layout.mesh
    dims = []
    for pieces in layout.pieces(shape):
        _, axes = pieces[0]
        kept = []
        for axis in axes:
            if not mesh.is_whole(axis):
                break
            kept.append(axis)
        dims.append(tuple(kept))
    return Layout(mesh, tuple(dims))
