"""The rule table: one entry an op, filled when the families are imported, then closed.

An entry is keyword-only and says all there is to know of an op:

    define(
        "stablehlo.transpose",
        rule=lambda call: ...,          # its factors, see program/rule.py
        samples=(Sample("24x12x4xf32 -> 4x24x12xf32", "permutation = ..."),),
    )

`localize` emits the op on tiles; the default clones it with the result's shape
changed, which is right for most ops. The conformance test is made from `samples`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from shardwright.errors import RuleError
from shardwright.jaxlib_bindings import ir
from shardwright.program import Dims, Op, Program, Rule, Strategy, SubAxis, TensorType
from shardwright.rules.emitter import Emitter


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """An op with the types of its operands and results."""

    op: Op
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


@dataclasses.dataclass(frozen=True)
class Local:
    """What `localize` works with: the op, its strategy, and its operands' tiles.

    `result_shapes` are the shapes of the tiles to make.
    """

    emitter: Emitter
    source: ir.Operation
    call: Call
    rule: Rule
    strategy: Strategy
    operands: tuple[ir.Value, ...]
    result_shapes: tuple[tuple[int, ...], ...]

    def axes_of(self, dims: Dims, dim: int) -> tuple[SubAxis, ...]:
        """The axes that cut one dim of an operand or result, major to minor."""
        return tuple(a for f in dims[dim] for a in self.strategy.axes(f))

    def clone(self, operands: Sequence[ir.Value] | None = None) -> list[ir.Value]:
        """The op on tiles, its results with the tiles' shapes."""
        tiles = self.operands if operands is None else operands
        return self.emitter.retyped_clone(self.source, tiles, self.result_shapes)


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One use of an op: types `24x12xf32, f32 -> 24x12xf32`, attributes, regions.

    All in MLIR's syntax; `low` and `high` bound the random operands.
    """

    types: str
    attributes: str = ""
    regions: str = ""
    low: int = -4
    high: int = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """Everything the table knows of one op."""

    name: str
    rule: Callable[[Call], Rule]
    localize: Callable[[Local], list[ir.Value]]
    flops: Callable[[Call], float]
    samples: tuple[Sample, ...]


_TABLE: dict[str, Entry] = {}


def define(
    name: str,
    *,
    rule: Callable[[Call], Rule],
    samples: Sequence[Sample],
    localize: Callable[[Local], list[ir.Value]] = Local.clone,
    flops: Callable[[Call], float] | None = None,
) -> None:
    """Add an op's entry. A second entry for one op is a RuleError.

    The name of a custom call is `stablehlo.custom_call@` and its target. `flops`
    defaults to one for each element of the results.
    """
    if name in _TABLE:
        raise RuleError(f"op {name!r} has a rule already")
    _TABLE[name] = Entry(name, rule, localize, flops or one_a_result, tuple(samples))


def entries() -> tuple[Entry, ...]:
    """All entries, by name."""
    return tuple(_TABLE[name] for name in sorted(_TABLE))


def call_of(program: Program, op: Op) -> Call:
    """The op with its types, as rules take it. Names and places are left out."""
    anonymous = dataclasses.replace(
        op,
        operands=tuple(range(len(op.operands))),
        results=tuple(range(len(op.results))),
        location=type(op.location)(),
        index=0,
        constraint=None,
    )
    return Call(anonymous, program.operand_types(op), program.result_types(op))


def one_a_result(call: Call) -> float:
    """One operation for each element of the first result."""
    return float(call.results[0].num_elements) if call.results else 0.0


def free(call: Call) -> float:
    """No work: the op is fused away or changes the shape alone."""
    return 0.0


def op_key(op: Op) -> str:
    """The name an op has in the table."""
    if op.name == "stablehlo.custom_call":
        return f"{op.name}@{op.attr('call_target_name', '')}"
    return op.name


def has_rule(op: Op) -> bool:
    """Whether the table knows the op."""
    return op_key(op) in _TABLE


@lru_cache(maxsize=1 << 16)
def rule_of(call: Call) -> Rule:
    """The op's factors; those of an unknown op must all stay whole."""
    entry = _TABLE.get(op_key(call.op))
    return replicated_rule(call) if entry is None else entry.rule(call)


@lru_cache(maxsize=1 << 16)
def flops_of(call: Call) -> float:
    """Arithmetic operations of the whole, unpartitioned op."""
    entry = _TABLE.get(op_key(call.op))
    return one_a_result(call) if entry is None else entry.flops(call)


def localize(local: Local) -> list[ir.Value]:
    """Emit the op on tiles at the emitter's insertion point."""
    entry = _TABLE.get(op_key(local.call.op))
    return local.clone() if entry is None else entry.localize(local)


def replicated_rule(call: Call) -> Rule:
    """A rule under which nothing may be cut."""
    tensors = [
        tuple((f"t{i}_{d}",) for d in range(t.rank))
        for i, t in enumerate((*call.operands, *call.results))
    ]
    sizes = {
        factors[0]: n
        for dims, t in zip(tensors, (*call.operands, *call.results), strict=True)
        for factors, n in zip(dims, t.shape, strict=True)
    }
    count = len(call.operands)
    return Rule(
        tuple(tensors[:count]),
        tuple(tensors[count:]),
        tuple(sizes.items()),
        whole=frozenset(sizes),
    )


def make_rule(
    call: Call,
    operands: Sequence[Sequence[str]],
    results: Sequence[Sequence[str]],
    **fates: object,
) -> Rule:
    """A rule from words, one a dim, as the notation has them: `["m", "k"]`."""
    return Rule.parse(
        f"{_notation(operands)} -> {_notation(results)}",
        [t.shape for t in call.operands],
        [t.shape for t in call.results],
        **fates,  # type: ignore[arg-type]
    )


def _notation(side: Sequence[Sequence[str]]) -> str:
    return ", ".join(" ".join(dims) for dims in side)


def elements(types: Sequence[TensorType]) -> float:
    """Elements of all tensors together."""
    return float(sum(math.prod(t.shape) for t in types))
