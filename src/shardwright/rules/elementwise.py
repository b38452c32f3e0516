"""Elementwise ops: every dim is a factor of its own, scalars go along.

The algebra by which partial operands pass through, a row a line. What holds for
P(max) on both operands holds for one of them too, since a replicated value is
P(max) as it is; so for min, and, or.

    add, subtract       P(sum) + P(sum)       -> P(sum)
    add                 P(max) + R            -> P(max);  floats, which do not wrap
    subtract            R - P(max)            -> P(min);  floats
    multiply            P(sum) * R            -> P(sum)
    divide              P(sum) / R            -> P(sum)
    negate              P(sum) -> P(sum);  P(max) -> P(min);  P(min) -> P(max)
    maximum             P(max), P(max)        -> P(max);  P(min), R -> P(min)
    minimum             P(min), P(min)        -> P(min);  P(max), R -> P(max)
    or (i1)             P(or), P(or)          -> P(or);   P(and), R -> P(and)
    and (i1)            P(and), P(and)        -> P(and);  P(or), R -> P(or)
    not (i1)            P(or) -> P(and);  P(and) -> P(or)
    select              R ? P(r) : P(r)       -> P(r), any r
    clamp               R, P(max), R          -> P(max)
    complex             P(sum), P(sum)        -> P(sum)
    real, imag, conj    P(sum) -> P(sum)
    convert             P(sum) -> P(sum), floats to wider floats
    exponential, tanh, ... (increasing everywhere)   P(max) -> P(max);  P(min) -> P(min)
    erfc (decreasing)   P(max) -> P(min);  P(min) -> P(max)
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.program import PartialRow, Rule, dtype_bits
from shardwright.rules.registry import Call, Sample, define, free, make_rule

LETTERS = "ijklmnopqrstuvwxyz"


def letters(rank: int) -> list[str]:
    """A factor name for each dim."""
    return [LETTERS[d] if d < len(LETTERS) else f"i{d}" for d in range(rank)]


def elementwise_rule(call: Call, partial: Sequence[PartialRow] = ()) -> Rule:
    """Operands have the result's factors, or none where they are scalars."""
    dims = letters(call.results[0].rank)
    operands = [dims if t.rank == len(dims) else [] for t in call.operands]
    return make_rule(call, operands, [dims] * len(call.results), partial=partial)


def _rows(reducers: str, *operands: int, turned: bool = False) -> list[PartialRow]:
    """A row for each reducer; `turned` swaps max and min, or and and, in the result."""
    other = {"max": "min", "min": "max", "or": "and", "and": "or"}
    return [
        PartialRow(r, operands, other.get(r, r) if turned else r)
        for r in reducers.split()
    ]


_ALGEBRA: dict[str, list[PartialRow]] = {
    "add": _rows("sum", 0, 1),
    "subtract": _rows("sum", 0, 1),
    "multiply": _rows("sum", 0) + _rows("sum", 1),
    "divide": _rows("sum", 0),
    "negate": _rows("sum max min", 0, turned=True),
    "maximum": _rows("max", 0, 1) + _rows("min", 0) + _rows("min", 1),
    "minimum": _rows("min", 0, 1) + _rows("max", 0) + _rows("max", 1),
    "clamp": _rows("max min", 1),
    "complex": _rows("sum", 0, 1),
    "real": _rows("sum", 0),
    "imag": _rows("sum", 0),
    "conj": _rows("sum", 0),
    "erfc": _rows("max min", 0, turned=True),
}

_FLOAT_ALGEBRA: dict[str, list[PartialRow]] = {
    "add": _rows("max min", 0) + _rows("max min", 1),
    "subtract": _rows("max min", 0) + _rows("max min", 1, turned=True),
}

_PREDICATE_ALGEBRA: dict[str, list[PartialRow]] = {
    "or": _rows("or", 0, 1) + _rows("and", 0) + _rows("and", 1),
    "and": _rows("and", 0, 1) + _rows("or", 0) + _rows("or", 1),
    "not": _rows("or and", 0, turned=True),
}

_INCREASING = frozenset(
    {
        "asinh",
        "atan",
        "cbrt",
        "ceil",
        "erf",
        "exponential",
        "exponential_minus_one",
        "floor",
        "logistic",
        "reduce_precision",
        "round_nearest_afz",
        "round_nearest_even",
        "sign",
        "sinh",
        "tanh",
    }
)
"""Increasing on all numbers. The logarithm is not here: a part may be below zero."""


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))


def _is_inexact(dtype: str) -> bool:
    return _is_float(dtype) or dtype.startswith("complex")


def _algebra(call: Call, name: str) -> list[PartialRow]:
    dtype = call.results[0].dtype
    if dtype == "i1":
        return _PREDICATE_ALGEBRA.get(name, [])
    if name == "divide" and not _is_inexact(dtype):
        return []  # integer division rounds
    if name == "negate" and dtype.startswith("ui"):
        return _rows("sum", 0)  # negation of unsigned numbers turns no order around
    if name in _INCREASING and _is_float(dtype):
        return _rows("max min", 0)
    rows = _ALGEBRA.get(name, [])
    if dtype.startswith("complex"):
        return [row for row in rows if row.reducer == "sum"]
    return rows + (_FLOAT_ALGEBRA.get(name, []) if _is_float(dtype) else [])


def _convert_rule(call: Call) -> Rule:
    (old,), (new,) = call.operands, call.results
    rows: list[PartialRow] = []
    widens = dtype_bits(new.dtype) >= dtype_bits(old.dtype)
    if widens and _is_inexact(old.dtype) and _is_inexact(new.dtype):
        rows += _rows("sum", 0)
    if _is_float(new.dtype) and not old.dtype.startswith(("complex", "i1")):
        rows += _rows("max min", 0)
    return elementwise_rule(call, rows)


def moving_rows(call: Call, operands: Sequence[int] = (0,)) -> list[PartialRow]:
    """The algebra of moving elements about, which commutes with every reduction."""
    dtype = call.results[0].dtype
    reducers = ["sum", "prod", "max", "min"]
    if dtype == "i1":
        reducers = ["or", "and"]
    elif dtype.startswith("complex"):
        reducers = ["sum", "prod"]
    return [PartialRow(r, tuple(operands), r) for r in reducers]


def _select_rule(call: Call) -> Rule:
    return elementwise_rule(call, moving_rows(call, (1, 2)))


def _define(
    name: str, types: str, attributes: str = "", low: int = -4, high: int = 5
) -> None:
    short = name.rsplit(".", 1)[-1]
    define(
        name,
        rule=lambda call: elementwise_rule(call, _algebra(call, short)),
        samples=[Sample(types, attributes, low=low, high=high)],
    )


_UNARY = """
    abs cbrt ceil cosine exponential exponential_minus_one floor is_finite log
    log_plus_one logistic negate round_nearest_afz round_nearest_even rsqrt sign sine
    sqrt tan tanh
"""
_CHLO_UNARY = """
    acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc
    is_inf is_neg_inf is_pos_inf lgamma sinh square tan
"""
_BINARY = "add atan2 divide maximum minimum multiply power remainder subtract"

for _name in _UNARY.split():
    _result = "24x12xi1" if _name == "is_finite" else "24x12xf32"
    _define(f"stablehlo.{_name}", f"24x12xf32 -> {_result}", low=1)

for _name in _CHLO_UNARY.split():
    _kind = "complex<f32>" if _name == "conj" else "f32"
    _result = "i1" if _name.startswith("is_") else _kind
    _define(f"chlo.{_name}", f"24x12x{_kind} -> 24x12x{_result}", low=1)

for _name in _BINARY.split():
    _define(f"stablehlo.{_name}", "24x12xf32, 24x12xf32 -> 24x12xf32", low=1)

for _name in ("next_after", "polygamma", "zeta"):
    _define(f"chlo.{_name}", "24x12xf32, 24x12xf32 -> 24x12xf32", low=2)

for _name in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
    _define(f"stablehlo.{_name}", "24x12xi32, 24x12xi32 -> 24x12xi32", low=0)

for _name in ("and", "or", "xor"):
    _define(f"stablehlo.{_name}", "24x12xi1, 24x12xi1 -> 24x12xi1", low=0, high=2)

_define("stablehlo.not", "24x12xi1 -> 24x12xi1", low=0, high=2)
_define("stablehlo.popcnt", "24x12xi32 -> 24x12xi32")
_define("stablehlo.count_leading_zeros", "24x12xi32 -> 24x12xi32")
_define("stablehlo.complex", "24x12xf32, 24x12xf32 -> 24x12xcomplex<f32>")
_define("stablehlo.real", "24x12xcomplex<f32> -> 24x12xf32")
_define("stablehlo.imag", "24x12xcomplex<f32> -> 24x12xf32")
_define(
    "stablehlo.compare",
    "24x12xf32, 24x12xf32 -> 24x12xi1",
    "comparison_direction = #stablehlo<comparison_direction LT>",
)
_define("stablehlo.clamp", "f32, 24x12xf32, f32 -> 24x12xf32")
_define(
    "stablehlo.reduce_precision",
    "24x12xf32 -> 24x12xf32",
    "exponent_bits = 5 : i32, mantissa_bits = 10 : i32",
)

define(
    "stablehlo.convert",
    rule=_convert_rule,
    flops=free,  # always fused with its neighbours
    samples=[Sample("24x12xf32 -> 24x12xi32"), Sample("24x12xbf16 -> 24x12xf32")],
)
define(
    "stablehlo.bitcast_convert",
    rule=lambda call: _bitcast_rule(call),
    flops=free,
    samples=[
        Sample("24x12xf32 -> 24x12xi32"),
        Sample("24x12xi32 -> 24x12x4xi8"),
        Sample("24x12x2xi16 -> 24x12xi32"),
    ],
)
define(
    "stablehlo.select",
    rule=_select_rule,
    samples=[
        Sample("24x12xi1, 24x12xf32, 24x12xf32 -> 24x12xf32", low=0, high=2),
        Sample("i1, 24x12xi32, 24x12xi32 -> 24x12xi32", low=0, high=2),
    ],
)


def _bitcast_rule(call: Call) -> Rule:
    """A dim of parts comes or goes at the end where widths differ; it stays whole."""
    (old,), (new,) = call.operands, call.results
    shared = letters(min(old.rank, new.rank))
    if old.rank == new.rank:
        return make_rule(call, [shared], [shared])
    wider = [*shared, "parts"]
    sides = (wider, shared) if old.rank > new.rank else (shared, wider)
    return make_rule(call, [sides[0]], [sides[1]], whole=["parts"])
