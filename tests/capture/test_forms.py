"""One program in all its forms, and files that are not programs."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shardwright.capture import program_from_function, program_from_target
from shardwright.errors import InputError, LayoutError
from shardwright.jaxlib_bindings import hlo_text_to_module, module_bytes, module_to_hlo

MODULE = """
sdy.mesh @m = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>},
                %b: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"y"}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y":(1)2, ?}]>}) {
  %0 = func.call @inner(%a, %b)
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %1 = sdy.sharding_constraint %0 <@m, [{}, {"y", "x"}]> : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
func.func private @inner(%a: tensor<8x16xf32>, %b: tensor<16x8xf32>)
    -> tensor<8x8xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def test_stablehlo_text(tmp_path: Path):
    path = tmp_path / "program.mlir"
    path.write_text(MODULE)
    program = program_from_target(str(path))
    assert [op.name for op in program.ops] == [
        "stablehlo.dot_general",
        "sdy.sharding_constraint",
    ]
    given = [str(c.layout) for c in program.input_constraints if c]
    assert given == ["[x, -]", "[-, y]"]
    (result,) = program.output_constraints
    assert result is not None
    assert str(result.layout) == "[x, y:(1)2]"
    assert result.open_dims == (False, True)
    constraint = program.ops[1].constraint
    assert constraint is not None
    assert constraint.given
    assert str(constraint.layout) == "[-, y x]"


def test_all_forms_of_the_first_case_are_one_program(examples: Path, tmp_path: Path):
    text = (examples / "dot_reshard.hlo").read_text()
    module = hlo_text_to_module(text)
    forms = {
        "bytecode.mlirbc": module_bytes(module),
        "text.mlir": str(module).encode(),
        "proto.pb": module_to_hlo(module).as_serialized_hlo_module_proto(),
        "plain.hlo": text.replace("%", "").encode(),
    }
    whole = program_from_target(str(examples / "dot_reshard.hlo"))
    for name, data in forms.items():
        (tmp_path / name).write_bytes(data)
        program = program_from_target(str(tmp_path / name))
        assert program.values == whole.values, name
        assert program.input_constraints == whole.input_constraints, name
        assert [op.name for op in program.ops] == [op.name for op in whole.ops], name


def test_shardings_on_ops_are_hints_unless_kept(examples: Path):
    target = str(examples / "dot_reshard.hlo")
    dot = program_from_target(target).ops[0]
    assert dot.constraint is not None
    assert not dot.constraint.given
    kept = program_from_target(target, keep_op_shardings=True).ops
    assert [op.name.split(".")[-1] for op in kept] == [
        "dot",
        "sharding_constraint",
        "sharding_constraint",
    ]
    assert all(op.constraint and op.constraint.given for op in kept[1:])


def test_jax_function_keeps_names_and_places(make_mesh):
    mesh = make_mesh(x=4)
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("x")))

    def f(batch):
        return jnp.tanh(batch)

    traced = program_from_function(jax.jit(f, keep_unused=True), (x,), {})
    (op,) = traced.program.ops
    assert traced.program.input_names == ("batch",)
    assert op.name == "stablehlo.tanh"
    assert op.location.file.endswith("test_forms.py")
    assert "tanh" in op.location.name


FAULTS = {
    "empty.hlo": (b"", "empty"),
    "truncated.hlo": (b"HloModule m\nENTRY e {\n  p = f32[2]", "not a valid HLO"),
    "truncated.mlir": (b"func.func @main(%a: tensor<4xf32>", "not a valid MLIR"),
    "noise.pb": (b"\x00\xff\x01noise", "not a valid HLO proto"),
    "dialect.mlir": (
        b'func.func @main() {\n  "foo.bar"() : () -> ()\n  return\n}',
        "foo.bar",
    ),
    "dynamic.mlir": (
        b"func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n"
        b"  return %a : tensor<?xf32>\n}",
        "dynamic",
    ),
    "elided.hlo": (
        b"HloModule m\nENTRY e {\n  c = f32[20] constant({...})\n"
        b"  ROOT r = f32[20] add(c, c)\n}",
        "constant c is elided",
    ),
    "nomain.mlir": (b"module {}", "no function"),
    "rank.mlir": (
        b'sdy.mesh @m = <["x"=2]>\nfunc.func @main(%a: tensor<4xf32> '
        b'{mhlo.sharding = "{devices=[2,2]<=[4]}"}) -> tensor<4xf32> {\n'
        b"  return %a : tensor<4xf32>\n}",
        "2 dims",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_names_the_file_and_the_place(name: str, tmp_path: Path):
    data, words = FAULTS[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises((InputError, LayoutError), match=words) as caught:
        program_from_target(str(path))
    assert str(caught.value).startswith(str(path))


def test_missing_file_and_directory(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        program_from_target(str(tmp_path / "nothing.hlo"))
    with pytest.raises(InputError, match="directory"):
        program_from_target(str(tmp_path))


@pytest.mark.parametrize("target", ["no.module:f", "json:nothing", "json:dumps"])
def test_functions_that_cannot_be_had(target: str):
    with pytest.raises(InputError, match=target):
        program_from_target(target)


def test_per_device_program_is_refused(examples: Path, tmp_path: Path):
    from shardwright.lowering import partitioned_text
    from shardwright.placement import place
    from shardwright.topology import preset

    program = program_from_target(str(examples / "dot_reshard.hlo"))
    path = tmp_path / "partitioned.mlir"
    path.write_text(partitioned_text(place(program, preset("cpu-8")), "stablehlo"))
    with pytest.raises(InputError, match="written for one device of many"):
        program_from_target(str(path))


def dumped(make_mesh, **axes: int):
    """A program with arguments, a constraint and a result laid out, lowered by JAX."""
    mesh = make_mesh(**axes)
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    w = jax.ShapeDtypeStruct((8, 8), jnp.float32)

    def f(x, w):
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P(None, "y")))
        return jax.nn.relu(y), y.sum()

    out = (NamedSharding(mesh, P("y", "x")), None)
    return jax.jit(f, out_shardings=out).lower(x, w)


def test_hlo_of_todays_jax_keeps_shardys_shardings(make_mesh, tmp_path: Path):
    path = tmp_path / "dump.hlo"
    path.write_text(dumped(make_mesh, x=2, y=2).as_text("hlo"))
    program = program_from_target(str(path))
    assert str(program.mesh) == "(x=2,y=2)"
    inputs = [c and str(c.layout) for c in program.input_constraints]
    outputs = [c and str(c.layout) for c in program.output_constraints]
    assert inputs[0] == "[x, -]"
    assert outputs[0] == "[y, x]"
    given = [str(op.constraint.layout) for op in program.ops if op.is_constraint]
    assert given == ["[-, y]"]
    assert not any(op.name == "stablehlo.custom_call" for op in program.ops)


def test_hlo_after_partitioning_is_refused(make_mesh, tmp_path: Path):
    path = tmp_path / "after.hlo"
    path.write_text(dumped(make_mesh, x=2, y=2).compile().as_text())
    with pytest.raises(InputError, match="written for one device of many"):
        program_from_target(str(path))


def test_shardings_on_ops_of_stablehlo_are_kept_alike(tmp_path: Path):
    path = tmp_path / "program.mlir"
    path.write_text(
        """
        sdy.mesh @m = <["x"=2]>
        func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
          %0 = stablehlo.tanh %a
              {sdy.sharding = #sdy.sharding_per_value<[<@m, [{"x"}]>]>} : tensor<8xf32>
          return %0 : tensor<8xf32>
        }
        """
    )
    (hint,) = program_from_target(str(path)).ops
    assert hint.constraint is not None
    assert not hint.constraint.given
    _, kept = program_from_target(str(path), keep_op_shardings=True).ops
    assert kept.is_constraint
    assert kept.constraint is not None
    assert kept.constraint.given
