"""Splits and rows of algebra that would be right and that no rule claims."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from shardwright.program import PartialRow, Strategy
from shardwright.rules import Entry, entries
from tests.rules.conformance import (
    Probe,
    joined,
    mesh_of,
    probe,
    run_strategies,
    tiles_of,
)

MESH = mesh_of("2")

SIGN = "holds for operands of one sign alone, as the sample's are"
DOMAIN = (
    "increasing or decreasing on a part of the numbers alone; parts may lie outside"
)
INTEGERS = "holds for parts that are integers alone"
VALUES = "holds for the sample's values alone"
INDICES = "an index has no parts to add or compare"
WRAPS = "holds where the top bits are not used"

EXPLAINED = {
    "chlo.acos": DOMAIN,
    "chlo.acosh": DOMAIN,
    "chlo.asin": DOMAIN,
    "chlo.atanh": DOMAIN,
    "chlo.cosh": SIGN,
    "chlo.digamma": DOMAIN,
    "chlo.erf_inv": DOMAIN,
    "chlo.lgamma": DOMAIN,
    "chlo.next_after": VALUES,
    "chlo.polygamma": DOMAIN,
    "chlo.square": SIGN,
    "chlo.zeta": DOMAIN,
    "stablehlo.abs": SIGN,
    "stablehlo.atan2": SIGN,
    "stablehlo.bitcast_convert": VALUES,
    "stablehlo.ceil": INTEGERS,
    "stablehlo.clamp": "bounds are seldom partial; the value itself passes through",
    "stablehlo.convert": "to integers: rounding and saturation are the target's affair",
    "stablehlo.divide": SIGN,
    "stablehlo.dynamic_slice": INDICES,
    "stablehlo.dynamic_update_slice": INDICES,
    "stablehlo.floor": INTEGERS,
    "stablehlo.log": DOMAIN,
    "stablehlo.log_plus_one": DOMAIN,
    "stablehlo.multiply": SIGN,
    "stablehlo.power": DOMAIN,
    "stablehlo.reduce": "the start of a reduction is seldom partial; or all are alike",
    "stablehlo.round_nearest_afz": INTEGERS,
    "stablehlo.round_nearest_even": INTEGERS,
    "stablehlo.rsqrt": DOMAIN,
    "stablehlo.select": VALUES,
    "stablehlo.shift_left": WRAPS,
    "stablehlo.shift_right_arithmetic": WRAPS,
    "stablehlo.shift_right_logical": WRAPS,
    "stablehlo.sign": VALUES,
    "stablehlo.sqrt": DOMAIN,
}

SAMPLES = [
    pytest.param(entry, i, id=f"{entry.name}-{i}")
    for entry in entries()
    for i in range(len(entry.samples))
]


def is_right(found: Probe, strategy: Strategy) -> bool:
    for _, results, layouts in run_strategies(found, MESH, [strategy]):
        for tiles, layout, whole in zip(results, layouts, found.results, strict=True):
            expected = tiles_of(
                whole, layout.without_partial(), np.random.default_rng()
            )
            got = joined(tiles, layout)
            if got.dtype.kind == "b" or got.dtype.kind in "iu":
                same = np.array_equal(got, expected)
            else:
                same = np.allclose(got, expected, 1e-4, 1e-4, equal_nan=True)
            if not same:
                return False
    return True


def unclaimed_rows(found: Probe) -> Iterator[PartialRow]:
    """Rows with one reducer on both sides, or turned, that the rule has not."""
    operands, (result, *_) = found.call.operands, found.call.results
    if not operands or len(found.call.results) > 1:
        return
    dtypes = {t.dtype for t in operands}
    predicates = dtypes == {"i1"}
    reducers = ("or", "and") if predicates else ("sum", "max", "min")
    if any(d.startswith("complex") for d in (*dtypes, result.dtype)):
        reducers = ("sum",)
    for count in range(1, min(len(operands), 3) + 1):
        for chosen in itertools.combinations(range(len(operands)), count):
            if any((operands[j].dtype == "i1") != predicates for j in chosen):
                continue
            for before, after in itertools.product(reducers, reducers):
                if (before == "sum") != (after == "sum"):
                    continue
                if (result.dtype == "i1") != predicates:
                    continue
                if not any(
                    (row.reducer, row.result) == (before, after)
                    and covers(row, set(chosen))
                    for row in found.rule.partial
                ):
                    yield PartialRow(before, chosen, after)


def covers(row: PartialRow, operands: set[int]) -> bool:
    """Whether a row says it of these operands; a replicated value is P(max) too."""
    stated = set(row.operands)
    return stated == operands if row.reducer == "sum" else stated >= operands


@pytest.mark.parametrize(("entry", "index"), SAMPLES)
def test_no_row_of_algebra_is_missing(entry: Entry, index: int):
    found = probe(entry, index)
    (axis,) = MESH.whole_axes()
    missing = [
        f"{row.reducer}{list(row.operands)} gives {row.result}"
        for row in unclaimed_rows(found)
        if is_right(found, Strategy(partial=((row, (axis,)),)))
    ]
    if entry.name in EXPLAINED:
        assert missing or len(entry.samples) > 1, "nothing is missing: drop the reason"
    else:
        assert missing == []


@pytest.mark.parametrize(("entry", "index"), SAMPLES)
def test_no_split_is_missing(entry: Entry, index: int):
    """A factor that stays whole, though operands and results share it, must."""
    found = probe(entry, index)
    rule = found.rule
    sides = (rule.operands, rule.results)
    shared = [
        {f for dims in side for factors in dims for f in factors} for side in sides
    ]
    (axis,) = MESH.whole_axes()
    for factor in sorted(rule.whole & shared[0] & shared[1]):
        if rule.size(factor) % axis.size:
            continue
        free = dataclasses.replace(rule, whole=rule.whole - {factor})
        strategy = Strategy.of(free, {factor: (axis,)})
        assert not is_right(found, strategy), f"{factor} of {rule} may be cut"
