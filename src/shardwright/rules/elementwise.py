"""Elementwise ops: every dim is a factor of its own, scalars go along.

The algebra by which partial operands pass through, a row a line:

    add, subtract       P(sum) + P(sum)       -> P(sum)
    multiply            P(sum) * R            -> P(sum)
    divide              P(sum) / R            -> P(sum)
    negate              P(sum) -> P(sum);  P(max) -> P(min);  P(min) -> P(max)
    maximum             P(max), P(max)        -> P(max)
    minimum             P(min), P(min)        -> P(min)
    or, and (i1)        P(or), P(or)          -> P(or);   and alike
    not (i1)            P(or) -> P(and);  P(and) -> P(or)
    select              R ? P(r) : P(r)       -> P(r), any r
    convert             P(sum) -> P(sum), floats to wider floats
    real, imag          P(sum) -> P(sum)
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


_SUM = PartialRow("sum", (0,), "sum")
_SUM_RIGHT = PartialRow("sum", (1,), "sum")
_SUM_BOTH = PartialRow("sum", (0, 1), "sum")


def _both(reducer: str) -> PartialRow:
    return PartialRow(reducer, (0, 1), reducer)


_ALGEBRA: dict[str, tuple[PartialRow, ...]] = {
    "add": (_SUM_BOTH,),
    "subtract": (_SUM_BOTH,),
    "multiply": (_SUM, _SUM_RIGHT),
    "divide": (_SUM,),
    "negate": (_SUM, PartialRow("max", (0,), "min"), PartialRow("min", (0,), "max")),
    "maximum": (_both("max"),),
    "minimum": (_both("min"),),
    "real": (_SUM,),
    "imag": (_SUM,),
}

_PREDICATE_ALGEBRA: dict[str, tuple[PartialRow, ...]] = {
    "or": (_both("or"),),
    "and": (_both("and"),),
    "not": (PartialRow("or", (0,), "and"), PartialRow("and", (0,), "or")),
}


def _is_inexact(dtype: str) -> bool:
    return dtype.startswith(("f", "bf", "complex"))


def _algebra(call: Call, name: str) -> tuple[PartialRow, ...]:
    dtype = call.results[0].dtype
    if dtype == "i1":
        return _PREDICATE_ALGEBRA.get(name, ())
    if name == "divide" and not _is_inexact(dtype):
        return ()  # integer division rounds
    if name == "negate" and dtype.startswith("ui"):
        return (_SUM,)  # negation of unsigned numbers turns no order around
    return _ALGEBRA.get(name, ())


def _convert_rule(call: Call) -> Rule:
    (old,), (new,) = call.operands, call.results
    widens = dtype_bits(new.dtype) >= dtype_bits(old.dtype)
    passes = widens and _is_inexact(old.dtype) and _is_inexact(new.dtype)
    return elementwise_rule(call, (_SUM,) if passes else ())


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
