"""The captured program: values, operations, and what the user said of layouts."""

from __future__ import annotations

import dataclasses
from typing import Any

from shardwright.program.layout import Layout
from shardwright.program.mesh import Mesh
from shardwright.program.types import TensorType

CONSTRAINT_OPS = ("sdy.sharding_constraint", "sdy.reshard")


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """Where an operation comes from: name stack and innermost user source line."""

    name: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        name = self.name.partition("[")[0]  # old dumps print all parameters there
        place = f"{self.file}:{self.line}" if self.file else ""
        return " at ".join(filter(None, (name, place))) or "unknown location"


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """A layout the user asked for; an open dim may be cut further by the planner.

    `given` is false for a hint: a first choice that may be improved on.
    """

    layout: Layout
    open_dims: tuple[bool, ...]
    given: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Op:
    """One operation. Operands and results are indices into Program.values.

    The last `num_captured` operands are values that the op's regions use from
    outside. `attrs` hold the attributes as plain Python values. `constraint` is
    set on sharding constraints, and on ops whose module carried a sharding.
    `index` finds the operation again in the program's source module.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...]
    location: Location
    index: int
    num_captured: int = 0
    constraint: Constraint | None = None

    @property
    def is_constraint(self) -> bool:
        """Whether the op only says how its operand is to lie."""
        return self.name in CONSTRAINT_OPS

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's value, or `default` where the op has none."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A whole program in single-assignment form, in execution order.

    `source` is the module it was read from (see jaxlib_bindings); lowering
    clones its operations. A program is compared by its data, not its source.
    """

    name: str
    mesh: Mesh
    values: tuple[TensorType, ...]
    inputs: tuple[int, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]
    input_constraints: tuple[Constraint | None, ...]
    output_constraints: tuple[Constraint | None, ...]
    input_names: tuple[str, ...]
    source: Any = dataclasses.field(compare=False, repr=False)

    def operand_types(self, op: Op) -> tuple[TensorType, ...]:
        return tuple(self.values[v] for v in op.operands)

    def result_types(self, op: Op) -> tuple[TensorType, ...]:
        return tuple(self.values[v] for v in op.results)
