"""Shardy's propagation, run through jaxlib: the layouts that JAX users predict."""

from __future__ import annotations

from collections.abc import Mapping

from shardwright.capture import from_sdy, meshes_of_module
from shardwright.errors import LayoutError
from shardwright.jaxlib_bindings import (
    find_main,
    ir,
    module_bytes,
    operations,
    parse_module,
    per_value_shardings,
    run_passes,
)
from shardwright.program import Layout, Mesh, Program

_INDEX = "shardwright.index"
PIPELINE = "sdy-propagation-pipeline"


def propagate(program: Program) -> list[Layout | None]:
    """Layout that Shardy gives each value; None where it says nothing.

    Runs on a copy of the program's module. Hints that are not constraints of
    their own (an HLO op's sharding) are left out.
    """
    found: list[Layout | None] = [None] * len(program.values)
    if not program.mesh.whole_axes():
        return found
    module = parse_module(module_bytes(program.source.module))
    main = find_main(module)
    block = main.regions[0].blocks[0]
    with module.context:
        for i, op in enumerate(operations(block)):
            if "sdy.sharding" in op.attributes:
                del op.attributes["sdy.sharding"]
            op.attributes[_INDEX] = ir.IntegerAttr.get(
                ir.IntegerType.get_signless(64), i
            )
    run_passes(module, PIPELINE)
    meshes = meshes_of_module(module)
    _read_inputs(program, main, meshes, found)
    for op in operations(block):
        if _INDEX not in op.attributes or "sdy.sharding" not in op.attributes:
            continue
        index = ir.IntegerAttr(op.attributes[_INDEX]).value
        if index >= len(program.ops):
            continue
        shardings = per_value_shardings(op.attributes["sdy.sharding"])
        for value, attr in zip(program.ops[index].results, shardings, strict=True):
            found[value] = _layout(program, attr, meshes)
    return found


def _read_inputs(
    program: Program,
    main: ir.Operation,
    meshes: Mapping[str, Mesh | None],
    found: list[Layout | None],
) -> None:
    if "arg_attrs" not in main.attributes:
        return
    entries = ir.ArrayAttr(main.attributes["arg_attrs"])
    for value, entry in zip(program.inputs, entries, strict=True):
        attrs = ir.DictAttr(entry)
        if "sdy.sharding" in attrs:
            found[value] = _layout(program, attrs["sdy.sharding"], meshes)


def _layout(
    program: Program, attr: ir.Attribute, meshes: Mapping[str, Mesh | None]
) -> Layout | None:
    try:
        layout = from_sdy(attr, meshes).layout
    except LayoutError:
        return None
    return layout if layout.mesh == program.mesh else None
