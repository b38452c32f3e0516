"""The choice as a problem: one candidate an op, priced; schedules between layouts.

Layouts, rules and tensor types are numbered, so that the search compares and
looks up small integers. A value is moved once per layout it is needed in.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from shardwright.errors import PlanError
from shardwright.placement.strategies import derive, enumerate_cuts, layouts, merge
from shardwright.program import (
    Constraint,
    Layout,
    Op,
    Program,
    Rule,
    Strategy,
    TensorType,
    tile_bytes,
)
from shardwright.redistribution import cheapest_seconds, plan_schedule
from shardwright.rules import Call, call_of, flops_of, rule_of
from shardwright.topology import Topology, op_seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy of one op, the layouts it needs and makes, and its own time."""

    strategy: Strategy
    needs: tuple[int, ...]
    makes: tuple[int, ...]
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """From an op to a light one that shares a value with it and would follow it.

    `position` is the value's among the op's results or operands, `index` among the
    other's.
    """

    from_result: bool
    position: int
    op: int
    index: int
    to_result: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """Operand `operand` of op `op`; op -1 stands for the program's output."""

    op: int
    operand: int


class Problem:
    """Everything about a program that the search asks for, cached."""

    def __init__(self, program: Program, topology: Topology) -> None:
        self.program = program
        self.topology = topology
        self.mesh = program.mesh
        self.layouts: list[Layout] = []
        self._layout_ids: dict[Layout, int] = {}
        self._moves: dict[tuple[TensorType, int, int], float] = {}
        self._derived: dict[tuple[Any, ...], Candidate] = {}
        self.calls = tuple(call_of(program, op) for op in program.ops)
        self.rules = tuple(rule_of(call) for call in self.calls)
        self._call_ids: dict[Call, int] = {}
        self.call_ids = tuple(
            self._call_ids.setdefault(c, len(self._call_ids)) for c in self.calls
        )
        self.producer: dict[int, int] = {
            v: i for i, op in enumerate(program.ops) for v in op.results
        }
        self.uses: dict[int, list[Use]] = defaultdict(list)
        for i, op in enumerate(program.ops):
            for j, v in enumerate(op.operands):
                self.uses[v].append(Use(i, j))
        for j, v in enumerate(program.outputs):
            self.uses[v].append(Use(-1, j))
        self.free = frozenset(
            i for i in range(len(program.ops)) if self._is_free(program.ops[i])
        )
        self.heavy = frozenset(
            i
            for i, rule in enumerate(self.rules)
            if rule.reduced and i not in self.free
        )
        self.touched = tuple(
            tuple(dict.fromkeys((*op.operands, *op.results))) for op in program.ops
        )
        self.pinned = {
            i: pin
            for i, op in enumerate(program.ops)
            if (pin := self._pin(i, op)) is not None
        }

        self.links = tuple(map(tuple, map(self._links, program.ops)))

    def _links(self, op: Op) -> Iterator[Link]:
        for position, value in enumerate(op.results):
            for use in self.uses[value]:
                if self._follows(use.op):
                    yield Link(True, position, use.op, use.operand, False)
        for position, value in enumerate(op.operands):
            other = self.producer.get(value, -1)
            if self._follows(other):
                index = self.program.ops[other].results.index(value)
                yield Link(False, position, other, index, True)

    def _follows(self, op: int) -> bool:
        fixed = op in self.heavy or op in self.free or op in self.pinned
        return op >= 0 and not fixed

    # Layouts ----------------------------------------------------------------

    def layout_id(self, layout: Layout) -> int:
        """The number of a layout; equal layouts have one number."""
        found = self._layout_ids.get(layout)
        if found is None:
            found = len(self.layouts)
            self._layout_ids[layout] = found
            self.layouts.append(layout)
        return found

    def move_seconds(self, type_: TensorType, source: int, target: int) -> float:
        """Time of the schedule between two numbered layouts."""
        if source == target:
            return 0.0
        key = (type_, source, target)
        found = self._moves.get(key)
        if found is None:
            found = cheapest_seconds(
                type_.shape,
                type_.dtype,
                self.layouts[source],
                self.layouts[target],
                self.topology,
            )
            self._moves[key] = found
        return found

    def schedule(self, type_: TensorType, source: int, target: int) -> Any:
        """The schedule between two numbered layouts."""
        return plan_schedule(
            type_.shape,
            type_.dtype,
            self.layouts[source],
            self.layouts[target],
            self.topology,
        )

    # Candidates ---------------------------------------------------------------

    def candidate(self, op: int, strategy: Strategy) -> Candidate:
        """Price a strategy of an op."""
        key = (self.call_ids[op], strategy)
        found = self._derived.get(key)
        if found is None:
            found = self._price(op, strategy)
            self._derived[key] = found
        return found

    def derived(self, op: int, index: int, is_result: bool, layout: int) -> Candidate:
        """The candidate in which one operand or result lies as in `layout`."""
        key = (self.call_ids[op], index, is_result, layout)
        found = self._derived.get(key)
        if found is None:
            call = self.calls[op]
            types = call.results if is_result else call.operands
            strategy = derive(
                self.rules[op],
                index,
                is_result,
                types[index].shape,
                self.layouts[layout],
            )
            found = self.candidate(op, strategy)
            self._derived[key] = found
        return found

    def merged(self, op: int, first: Candidate, second: Candidate) -> Candidate:
        """`first`, extended by what `second` says of the factors it leaves free."""
        if not second.strategy.cuts and not second.strategy.partial:
            return first
        strategy = merge(self.rules[op], first.strategy, second.strategy)
        return self.candidate(op, strategy)

    def enumerated(self, op: int) -> tuple[Candidate, ...]:
        """Every assignment of whole axes to the op's factors."""
        cuts = enumerate_cuts(self.rules[op], self.mesh)
        return tuple(self.candidate(op, strategy) for strategy in cuts)

    def _price(self, op: int, strategy: Strategy) -> Candidate:
        rule, call = self.rules[op], self.calls[op]
        if not call.operands:
            whole = tuple((f, p) for f, p in strategy.cuts if len(p) == 1)
            strategy = Strategy(whole, strategy.partial)
        needs, makes = layouts(rule, strategy, self.mesh)
        flops = flops_of(call) / strategy.ways()
        touched = self._touched(op, call, rule, needs, makes) if flops else 0
        dtype = call.results[0].dtype if call.results else "f32"
        seconds = op_seconds(self.topology, flops, touched, dtype) if flops else 0.0
        return Candidate(
            strategy,
            tuple(map(self.layout_id, needs)),
            tuple(map(self.layout_id, makes)),
            seconds,
        )

    def _touched(
        self,
        op: int,
        call: Call,
        rule: Rule,
        needs: tuple[Layout, ...],
        makes: tuple[Layout, ...],
    ) -> int:
        """Bytes of memory traffic: results, and operands that no fusion would keep."""
        total = sum(
            tile_bytes(layout.tile_shape(t.shape), t.dtype)
            for layout, t in zip(makes, call.results, strict=True)
        )
        if rule.reduced:
            total += sum(
                tile_bytes(layout.tile_shape(t.shape), t.dtype)
                for layout, t in zip(needs, call.operands, strict=True)
            )
        return total

    # What the user said ---------------------------------------------------------

    def _pin(self, index: int, op: Op) -> Candidate | None:
        """The candidate that a given, closed constraint leaves."""
        given = op.constraint
        if not op.is_constraint or given is None or not given.given:
            return None
        if any(given.open_dims):
            return None
        return self.derived(index, 0, True, self.layout_id(given.layout))

    def allowed(self, op: int, candidate: Candidate) -> bool:
        """Whether a candidate keeps what an open constraint gives."""
        given = self.program.ops[op].constraint
        if not self.program.ops[op].is_constraint:
            return True
        if given is None or not given.given:
            return True
        made = self.layouts[candidate.makes[0]]
        if made.view is not None or made.partial:
            return False
        return keeps(made, given)

    def output_need(self, index: int) -> int | None:
        """Layout that output `index` must have, None where it is free."""
        given = self.program.output_constraints[index]
        if given is None or any(given.open_dims):
            return None
        return self.layout_id(given.layout)

    def input_layout(self, index: int) -> int | None:
        """Layout that input `index` comes in, None where it is free."""
        given = self.program.input_constraints[index]
        if given is None or any(given.open_dims):
            return None
        return self.layout_id(given.layout)

    def _is_free(self, op: Op) -> bool:
        """Ops that cost nothing in any layout: they are made where needed."""
        if op.name in ("stablehlo.iota",):
            return True
        if op.name == "stablehlo.constant":
            value = op.attr("value")
            return isinstance(value, tuple) and value[:1] == ("splat",)
        rank0 = all(t.rank == 0 for t in self.program.operand_types(op))
        return op.name == "stablehlo.broadcast_in_dim" and rank0


def keeps(layout: Layout, given: Constraint) -> bool:
    """Whether `layout` has the given cuts, open dims cut no less than given."""
    for made, want, is_open in zip(
        layout.dims, given.layout.dims, given.open_dims, strict=True
    ):
        if made != want and not (is_open and made[: len(want)] == want):
            return False
    return True


def check_given(problem: Problem) -> None:
    """Raise a PlanError where a given layout cannot be kept yet."""
    program = problem.program
    for kind, constraints, ids in (
        ("parameter", program.input_constraints, program.inputs),
        ("result", program.output_constraints, program.outputs),
    ):
        for i, (given, v) in enumerate(zip(constraints, ids, strict=True)):
            shape = program.values[v].shape
            if given is not None and not given.layout.is_even(shape):
                raise PlanError(
                    f"{kind} {i}: layout {given.layout} does not divide shape {shape} "
                    f"on mesh {program.mesh}; pad the dim or drop an axis"
                )
