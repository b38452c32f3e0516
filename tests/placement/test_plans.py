"""Plans: what the user said is kept, and no plan costs more than Shardy's."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.capture import program_from_target
from shardwright.errors import PlanError
from shardwright.placement import Plan, place
from shardwright.program import Layout, Program
from shardwright.topology import preset

MIB = 1 << 20


@pytest.fixture
def program(examples: Path) -> Program:
    return program_from_target(str(examples / "dot_reshard.hlo"))


def text_program(tmp_path: Path, body: str) -> Program:
    path = tmp_path / "program.mlir"
    path.write_text(body)
    return program_from_target(str(path))


@pytest.mark.parametrize(
    "topology", ["cpu-8", "h100-8", "a100-8", "tpu-v5e-2x4", "gb200-nvl72"]
)
def test_the_first_case_moves_the_result_on_any_machine(program, topology: str):
    plan = place(program, preset(topology))
    assert plan.bytes_received == plan.lower_bound == 32 * MIB
    (move,) = plan.moves
    assert move.value == program.ops[0].results[0]
    assert [str(n) for n in plan.needs[0]] == ["[a b, -]", "[-, c]"]


def test_the_other_rows_of_the_table(program):
    rows = {
        name: place(program, preset("cpu-8"), name) for name in ("shardy", "replicate")
    }
    assert rows["shardy"].bytes_received == 128 * MIB
    assert rows["replicate"].bytes_received == 320 * MIB
    best = place(program, preset("cpu-8"))
    assert best.seconds < rows["shardy"].seconds < rows["replicate"].seconds


def test_reasons_price_both_ways(program):
    (decision,) = place(program, preset("h100-8")).decisions
    options = {o.name: o for o in decision.options}
    chosen = options["move the result"]
    other = options["make the result as it is needed, move the operands"]
    assert chosen.chosen
    assert (chosen.bytes_received, other.bytes_received) == (32 * MIB, 128 * MIB)
    assert chosen.seconds < other.seconds
    assert all(o.seconds >= chosen.seconds for o in decision.options)


def given_layouts_are_kept(plan: Plan) -> None:
    program = plan.program
    for given, layout in zip(program.input_constraints, plan.inputs, strict=True):
        assert given is None or any(given.open_dims) or given.layout == layout
    for given, layout in zip(program.output_constraints, plan.outputs, strict=True):
        assert given is None or any(given.open_dims) or given.layout == layout
    for op in program.ops:
        if op.is_constraint and op.constraint and op.constraint.given:
            assert plan.made[op.results[0]] == op.constraint.layout


@pytest.mark.parametrize("placement", ["optimal", "shardy", "replicate"])
def test_given_layouts_are_kept(program, placement: str):
    given_layouts_are_kept(place(program, preset("cpu-8"), placement))


def test_a_sum_over_a_cut_factor_is_scattered(tmp_path: Path):
    program = text_program(
        tmp_path,
        """
        sdy.mesh @m = <["x"=8]>
        func.func @main(
            %a: tensor<4096x4096xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>},
            %b: tensor<4096x4096xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>})
            -> (tensor<4096x4096xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) {
          %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
              : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
          %1 = stablehlo.negate %0 : tensor<4096x4096xf32>
          return %1 : tensor<4096x4096xf32>
        }
        """,
    )
    plan = place(program, preset("h100-8"))
    (move,) = plan.moves
    assert [type(step).__name__ for step in move.schedule.steps] == ["ReduceScatter"]
    assert plan.bytes_received == plan.lower_bound == 64 * MIB * 7 // 8


def test_a_shared_value_is_moved_once(tmp_path: Path):
    program = text_program(
        tmp_path,
        """
        sdy.mesh @m = <["x"=8]>
        func.func @main(
            %a: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>})
            -> (tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {}]>},
                tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {}]>}) {
          %0 = stablehlo.tanh %a : tensor<1024x1024xf32>
          return %0, %0 : tensor<1024x1024xf32>, tensor<1024x1024xf32>
        }
        """,
    )
    plan = place(program, preset("h100-8"))
    (move,) = plan.moves
    assert len(move.uses) == 2
    assert plan.bytes_received == 4 * MIB * 7 // 8


def test_open_dims_are_free(tmp_path: Path):
    program = text_program(
        tmp_path,
        """
        sdy.mesh @m = <["x"=8]>
        func.func @main(
            %a: tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>})
            -> tensor<64x64xf32> {
          %0 = sdy.sharding_constraint %a <@m, [{?}, {?}]> : tensor<64x64xf32>
          return %0 : tensor<64x64xf32>
        }
        """,
    )
    plan = place(program, preset("cpu-8"))
    assert plan.moves == ()
    assert plan.outputs == (Layout.parse(program.mesh, "x, -"),)


def test_what_cannot_be_kept_is_said(tmp_path: Path, program):
    odd = text_program(
        tmp_path,
        """
        sdy.mesh @m = <["x"=8]>
        func.func @main(
            %a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>})
            -> tensor<12xf32> {
          return %a : tensor<12xf32>
        }
        """,
    )
    with pytest.raises(PlanError, match=r"parameter 0: layout \[x\] does not divide"):
        place(odd, preset("cpu-8"))
    with pytest.raises(PlanError, match="use one of optimal, shardy, replicate"):
        place(program, preset("cpu-8"), "fastest")
