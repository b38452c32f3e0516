"""Every interface that JAX does not promise, in this one file.

Each use has a note of what it is and why nothing public serves. Tested on jax
0.10.2 and 0.12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

# MLIR's Python bindings: JAX ships them for its own lowering; modules are read,
# cloned and written in process.
from jax._src.interpreters import mlir as _jax_mlir

# Parsers and converters of XLA's own formats; JAX uses them for its dumps.
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import func, sdy, stablehlo

from shardwright.errors import InputError
from shardwright.program.types import TensorType

__all__ = ["func", "ir", "sdy", "stablehlo"]

HloSharding = _hlo.HloSharding


def make_context() -> ir.Context:
    """An MLIR context with JAX's dialects (func, stablehlo, chlo, mhlo, sdy)."""
    return _jax_mlir.make_ir_context()


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run MLIR passes in place, e.g. "inline,canonicalize,cse"."""
    with module.context:
        manager = passmanager.PassManager.parse(f"builtin.module({pipeline})")
        manager.run(module.operation)


def parse_module(text: str | bytes, context: ir.Context | None = None) -> ir.Module:
    """A module from MLIR text or bytecode; a syntax error is an InputError."""
    context = context or make_context()
    with context, ir.Location.unknown():
        try:
            return ir.Module.parse(text)
        except (ir.MLIRError, ValueError) as error:
            where = _line_of(text, str(error))
            raise InputError(
                f"not a valid MLIR module: {_first_lines(error)}{where}"
            ) from None


def _line_of(text: str | bytes, message: str) -> str:
    """The line that a parser's message points at, to print below it."""
    found = re.search(r'"-":(\d+):\d+', message)
    lines = text.splitlines() if isinstance(text, str) else []
    if found is None or int(found[1]) > len(lines):
        return ""
    return f"\n    {lines[int(found[1]) - 1].strip()}"


def module_bytes(module: ir.Module) -> bytes:
    """MLIR bytecode with locations, for another context of this process."""
    import io

    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def module_text(module: ir.Module) -> str:
    """StableHLO text for people."""
    return str(module.operation.get_asm(enable_debug_info=False))


# HLO --------------------------------------------------------------------


def hlo_text_to_module(text: str) -> ir.Module:
    """HLO text to StableHLO; shardings become `mhlo.sharding` strings."""
    try:
        hlo = _hlo.hlo_module_from_text(text)
    except Exception as error:
        raise InputError(f"not a valid HLO module: {_first_lines(error)}") from None
    return hlo_proto_to_module(hlo.as_serialized_hlo_module_proto())


def hlo_proto_to_module(proto: bytes) -> ir.Module:
    """A serialized HloModuleProto to StableHLO."""
    try:
        computation = _hlo.XlaComputation(proto)
        text = _jax.mlir.xla_computation_to_mlir_module(computation)
    except Exception as error:
        raise InputError(f"not a valid HLO proto: {_first_lines(error)}") from None
    return parse_module(text)


def module_to_hlo(module: ir.Module) -> Any:
    """StableHLO to an HloModule object (`to_string`, proto, cost analysis)."""
    computation = _jax.mlir.mlir_module_to_xla_computation(
        module_bytes(module), use_tuple_args=False, return_tuple=False
    )
    return computation.get_hlo_module()


def hlo_print_options() -> Any:
    """Options of XLA's printer; the defaults print as XLA's dumps do."""
    return _hlo.HloPrintOptions()


def _first_lines(error: Exception, count: int = 4) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n  ".join(lines[:count])


# Types and attributes ---------------------------------------------------


def tensor_type(type_: ir.Type) -> TensorType:
    """MLIR's ranked tensor type as data; a dynamic dim is an InputError."""
    if not isinstance(type_, ir.RankedTensorType):
        return TensorType((), str(type_))
    ranked = ir.RankedTensorType(type_)
    if not ranked.has_static_shape:
        raise InputError(
            f"type {type_} has a dynamic dimension; fix all shapes before partitioning"
        )
    return TensorType(tuple(ranked.shape), str(ranked.element_type))


def mlir_type(type_: TensorType, context: ir.Context) -> ir.Type:
    """The MLIR type of a tensor type."""
    dims = "".join(f"{n}x" for n in type_.shape)
    text = f"tensor<{dims}{type_.dtype}>"
    return ir.Type.parse(type_.dtype if type_.dtype[0] == "!" else text, context)


_DIMENSION_NUMBERS = {
    "#stablehlo.dot<": (
        stablehlo.DotDimensionNumbers,
        (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        ),
    ),
    "#stablehlo.gather<": (
        stablehlo.GatherDimensionNumbers,
        (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
            "index_vector_dim",
        ),
    ),
    "#stablehlo.scatter<": (
        stablehlo.ScatterDimensionNumbers,
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "scattered_dims_to_operand_dims",
            "index_vector_dim",
        ),
    ),
    "#stablehlo.conv<": (
        stablehlo.ConvDimensionNumbers,
        (
            "input_batch_dimension",
            "input_feature_dimension",
            "input_spatial_dimensions",
            "kernel_input_feature_dimension",
            "kernel_output_feature_dimension",
            "kernel_spatial_dimensions",
            "output_batch_dimension",
            "output_feature_dimension",
            "output_spatial_dimensions",
        ),
    ),
}


def attribute_value(attr: ir.Attribute) -> Any:
    """An attribute as a hashable Python value.

    Integers, floats, strings and integer arrays become Python's; dimension
    numbers become a tuple of (field, value) pairs; a splat constant becomes
    ("splat", value); whatever else becomes its text.
    """
    if isinstance(attr, ir.BoolAttr):
        return bool(ir.BoolAttr(attr).value)
    if isinstance(attr, ir.IntegerAttr):
        return ir.IntegerAttr(attr).value
    if isinstance(attr, ir.FloatAttr):
        return ir.FloatAttr(attr).value
    if isinstance(attr, ir.StringAttr):
        return ir.StringAttr(attr).value
    if isinstance(attr, ir.UnitAttr):
        return True
    if isinstance(attr, ir.DenseI64ArrayAttr):
        return tuple(ir.DenseI64ArrayAttr(attr))
    if isinstance(attr, ir.DenseBoolArrayAttr):
        return tuple(ir.DenseBoolArrayAttr(attr))
    if isinstance(attr, ir.DictAttr):
        items = ir.DictAttr(attr)
        return tuple((item.name, attribute_value(item.attr)) for item in items)
    if isinstance(attr, ir.ArrayAttr):
        return tuple(attribute_value(item) for item in ir.ArrayAttr(attr))
    return _opaque_value(attr)


def _opaque_value(attr: ir.Attribute) -> Any:
    if isinstance(attr, ir.DenseElementsAttr):
        dense = ir.DenseElementsAttr(attr)
        if dense.is_splat:
            return ("splat", _splat_text(dense))
        if not isinstance(attr, ir.DenseIntElementsAttr) or len(dense) > 64:
            return ("dense", len(dense))
        integers: Any = ir.DenseIntElementsAttr(attr)
        return tuple(integers)
    text = str(attr)
    for prefix, (cast, fields) in _DIMENSION_NUMBERS.items():
        if text.startswith(prefix):
            return tuple((f, _plain(getattr(cast(attr), f))) for f in fields)
    return text


def _splat_text(dense: ir.DenseElementsAttr) -> str:
    text = str(dense.get_splat_value())
    return text.split(" : ")[0]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else tuple(value)


def operations(block: ir.Block) -> Iterator[ir.Operation]:
    """The operations of a block, as plain Operation handles."""
    for op in block.operations:
        yield op.operation


def attribute_items(op: ir.Operation) -> Iterator[tuple[str, ir.Attribute]]:
    """Names and values of an operation's attributes (jaxlib versions differ)."""
    attributes = op.attributes
    for item in attributes:
        name = item if isinstance(item, str) else item.name
        try:
            yield name, attributes[name]
        except TypeError:  # dense complex elements have no class in the bindings
            yield name, ir.StringAttr.get("dense elements", op.context)


def integer_elements(values: Any, bits: int = 64) -> ir.DenseElementsAttr:
    """A dense integer attribute from nested integers, e.g. replica groups."""
    array = np.ascontiguousarray(values, dtype=f"int{bits}")
    return ir.DenseElementsAttr.get(array)  # type: ignore[call-overload]


def channel(number: int) -> ir.Attribute:
    """A channel handle; type 1 is device to device, the kind SPMD modules use."""
    return stablehlo.ChannelHandle.get(number, 1)


def find_main(module: ir.Module) -> ir.Operation:
    """The public entry function of the module."""
    functions = [op for op in operations(module.body) if op.name == "func.func"]
    named = [
        f for f in functions if ir.StringAttr(f.attributes["sym_name"]).value == "main"
    ]
    if named:
        return named[0]
    if len(functions) == 1:
        return functions[0]
    names: Sequence[str] = [
        ir.StringAttr(f.attributes["sym_name"]).value for f in functions
    ]
    raise InputError(
        "the module has no function named 'main'"
        + (f"; it has {', '.join(names)}" if names else " and no function at all")
    )


# Walking ------------------------------------------------------------------


def string_attr(op: ir.Operation, name: str) -> str:
    """A string or symbol attribute's text, "" where the op has none."""
    if name not in op.attributes:
        return ""
    attr = op.attributes[name]
    if isinstance(attr, ir.FlatSymbolRefAttr):
        return attr.value
    return attr.value if isinstance(attr, ir.StringAttr) else str(attr)


def walk_regions(op: ir.Operation) -> Iterator[ir.Operation]:
    """Every operation inside the op's regions, outer before inner."""
    for region in op.regions:
        for block in region.blocks:
            for inner in operations(block):
                yield inner
                yield from walk_regions(inner)


# JAX's own intermediate form ----------------------------------------------


def jaxpr_shardings(closed: Any) -> Iterator[Any]:
    """Named shardings of the constraints in a jaxpr, nested ones included."""
    jaxpr = getattr(closed, "jaxpr", closed)
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            if isinstance(value, jax.sharding.NamedSharding):
                yield value
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                    yield from jaxpr_shardings(item)
                elif isinstance(item, jax.sharding.NamedSharding):
                    yield item


# Compiling a module without JAX's front end ---------------------------------

_PARTITIONER_PASSES = "spmd-partitioning,sharding-propagation,shardy-xla"


def compile_module(
    module: bytes, devices: Sequence[Any], *, partitioner: str | None
) -> Any:
    """Compile MLIR bytecode for these devices as one SPMD program.

    `partitioner` is "shardy" or "gspmd" for a module of whole arrays, None for
    one that is per-device already. Gives jaxlib's executable (`hlo_modules`,
    `get_compiled_memory_stats`).
    """
    from jax._src import compiler

    count = len(devices)
    options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=count,
        device_assignment=np.array([[d.id for d in devices]]),
    )
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = partitioner == "shardy"
    if partitioner is None:
        options.env_option_overrides = [("xla_disable_hlo_passes", _PARTITIONER_PASSES)]
    client = devices[0].client
    return client.compile_and_load(module, _jax.DeviceList(tuple(devices)), options)


def compiled_text(executable: Any) -> str:
    """HLO text of what XLA compiled."""
    return executable.hlo_modules()[0].to_string()


def canonical_hlo_sharding(text: str) -> str:
    """A sharding string as XLA prints it."""
    return str(HloSharding.from_string(text))


def per_value_shardings(attr: ir.Attribute) -> tuple[ir.Attribute, ...]:
    """The shardings of an op's results, from its `sdy.sharding` attribute."""
    return tuple(sdy.TensorShardingPerValueAttr(attr).shardings)


# A module as a JAX operation -----------------------------------------------

# Everything in jax.interpreters.mlir; `merge_mlir_modules` and the module context's
# channels are what jax.export itself uses, and nothing public merges a module.


def module_primitive(name: str) -> Any:
    """A JAX primitive that calls an MLIR module's main function.

    Bind it with `module` (MLIR bytecode) and `results` (a tuple of
    jax.ShapeDtypeStruct). Channels are numbered anew in the surrounding module.
    """
    from jax.extend import core
    from jax.interpreters import mlir as jax_mlir

    primitive = core.Primitive(name)
    primitive.multiple_results = True

    @primitive.def_abstract_eval
    def _(*_: Any, module: bytes, results: tuple[Any, ...]) -> list[Any]:
        return [jax.core.ShapedArray(r.shape, r.dtype) for r in results]

    def lowering(ctx: Any, *operands: Any, module: bytes, results: Any) -> Any:
        del results
        context = ctx.module_context
        inner = ir.Module.parse(module, context.context)
        for op in walk_regions(find_main(inner)):
            if "channel_handle" in op.attributes:
                op.attributes["channel_handle"] = channel(context.new_channel())
        symbol = jax_mlir.merge_mlir_modules(
            context.module, name, inner, dst_symtab=context.symbol_table
        )
        function = context.symbol_table[symbol]
        type_ = ir.FunctionType(function.attributes["function_type"].value)
        call = func.CallOp(
            list(type_.results), ir.FlatSymbolRefAttr.get(symbol), list(operands)
        )
        return list(call.results)

    jax_mlir.register_lowering(primitive, lowering)
    return primitive


def key_impl(dtype: Any) -> Any:
    """The implementation of a PRNG key type; jax.random tells it of arrays alone."""
    return dtype._impl


def sharding_of(value: Any) -> Any:
    """The sharding of an array or a ShapeDtypeStruct; None where there is none.

    From jax 0.12.1 on an array asserts that its sharding has no unreduced axes.
    """
    if isinstance(value, jax.Array) and hasattr(value, "_sharding"):
        return value._sharding  # pyright: ignore[reportAttributeAccessIssue]
    return getattr(value, "sharding", None)


def tiles_by_device(array: jax.Array) -> dict[Any, jax.Array]:
    """This process's tiles of an array; `addressable_shards` tells a sharding, too."""
    tiles: list[jax.Array] = array._arrays  # pyright: ignore[reportAttributeAccessIssue]
    return {device: tile for tile in tiles for device in tile.devices()}


def is_staged(value: Any) -> bool:
    """Whether a tracer only records (jit), so that any primitive may be bound."""
    from jax._src.interpreters import partial_eval

    return isinstance(value, partial_eval.DynamicJaxprTracer)
