"""Deriving and merging strategies."""

from __future__ import annotations

from shardwright.placement.strategies import derive, enumerate_cuts, merge
from shardwright.program import Layout, Mesh, Rule, Strategy

CUBE = Mesh((("a", 2), ("b", 2), ("c", 2)))
MATMUL = Rule.parse(
    "m k, k n -> m n", [(8, 16), (16, 4)], [(8, 4)], reduced={"k": "sum"}
)


def layout(text: str) -> Layout:
    return Layout.parse(CUBE, text)


def test_derived_strategy_lies_as_asked():
    strategy = derive(MATMUL, 0, False, (8, 16), layout("a b, c"))
    assert strategy.operand_layout(MATMUL, CUBE, 0) == layout("a b, c")
    assert strategy.operand_layout(MATMUL, CUBE, 1) == layout("c, -")
    assert strategy.result_layout(MATMUL, CUBE, 0) == layout("a b, - | sum c")


def test_merge_keeps_the_first_where_both_want_an_axis():
    first = derive(MATMUL, 0, False, (8, 16), layout("a, -"))
    second = derive(MATMUL, 1, False, (16, 4), layout("-, a"))
    assert merge(MATMUL, first, second) == first
    third = derive(MATMUL, 1, False, (16, 4), layout("-, b"))
    merged = merge(MATMUL, first, third)
    assert merged.result_layout(MATMUL, CUBE, 0) == layout("a, b")


def test_tensors_that_do_not_meet_may_use_one_axis():
    rule = Rule.parse("i, j -> i, j", [(8,), (4,)], [(8,), (4,)], independent=True)
    first = derive(rule, 0, False, (8,), layout("a"))
    second = derive(rule, 1, False, (4,), layout("a b"))
    merged = merge(rule, first, second)
    assert merged.result_layout(rule, CUBE, 0) == layout("a")
    assert merged.result_layout(rule, CUBE, 1) == layout("a b")


def test_a_cut_that_does_not_divide_is_dropped():
    rule = Rule.parse("i -> i", [(6,)], [(6,)])
    assert derive(rule, 0, False, (6,), layout("a b")) == Strategy()
    assert derive(rule, 0, False, (6,), layout("a")) != Strategy()


def test_compound_dim_is_cut_factor_by_factor():
    rule = Rule.parse("(i j) -> i j", [(32,)], [(4, 8)])
    strategy = derive(rule, 0, False, (32,), layout("a b c"))
    assert strategy.result_layout(rule, CUBE, 0) == layout("a b, c")


def test_minor_cut_of_a_compound_dim_is_strided_in_the_operand():
    rule = Rule.parse("(i j) -> i j", [(32,)], [(4, 8)])
    strategy = derive(rule, 0, True, (4, 8), layout("-, a"))
    made = strategy.operand_layout(rule, CUBE, 0)
    assert made.view == (4, 8)
    assert made.tile_shape((32,)) == (16,)


def test_every_whole_axis_assignment_is_enumerated():
    mesh = Mesh((("a", 2), ("b", 2)))
    # Each of two axes to one of m, k, n or none, and both orders where they share.
    assert len(enumerate_cuts(MATMUL, mesh)) == 16 + 3
