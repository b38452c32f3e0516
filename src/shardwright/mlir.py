"""Read and change MLIR modules: regions, calls, locations, shardings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from shardwright.jaxlib_bindings import (
    find_main,
    ir,
    module_bytes,
    operations,
    parse_module,
    run_passes,
    stablehlo,
    string_attr,
    tensor_type,
    walk_regions,
)


def restore_constants(module: ir.Module) -> None:
    """`sdy.constant`, which Shardy's constant splitter leaves, back to StableHLO."""
    with module.context:
        for op in list(walk_regions(find_main(module))):
            if op.name != "sdy.constant":
                continue
            with ir.InsertionPoint(op), op.location:
                made = _constant_like(op)
            op.results[0].replace_all_uses_with(made)
            op.erase()


def _constant_like(op: ir.Operation) -> ir.Value:
    """The `stablehlo.constant` of an `sdy.constant`."""
    try:
        return stablehlo.constant(op.attributes["value"])
    except TypeError:  # dense complex elements have no class in the bindings: by text
        type_ = op.results[0].type
        _, _, value = op.get_asm(enable_debug_info=False).partition("dense<")
        value = f"dense<{value.rpartition(' : ')[0]}"
        module = parse_module(
            f"func.func @main() -> {type_} {{\n"
            f"  %0 = stablehlo.constant {value} : {type_}\n  return %0 : {type_}\n}}",
            op.context,
        )
        (source, _) = operations(find_main(module).regions[0].blocks[0])
        return source.clone().results[0]


def captured_values(op: ir.Operation) -> list[ir.Value]:
    """Values that the op's regions use from outside, in order of first use."""
    inside: set[ir.Value] = set()
    used: dict[ir.Value, None] = {}
    for region in op.regions:
        for block in region.blocks:
            inside.update(block.arguments)
    for inner in walk_regions(op):
        inside.update(inner.results)
        for region in inner.regions:
            for block in region.blocks:
                inside.update(block.arguments)
    for inner in walk_regions(op):
        used.update(dict.fromkeys(v for v in inner.operands if v not in inside))
    return list(used)


def replace_operands(op: ir.Operation, mapping: Mapping[ir.Value, ir.Value]) -> None:
    """Replace operands of the op and of everything in its regions."""
    for inner in (op, *walk_regions(op)):
        for i, operand in enumerate(inner.operands):
            if operand in mapping:
                inner.operands[i] = mapping[operand]


_REDUCERS = {
    "stablehlo.add": ("sum", "or"),
    "stablehlo.multiply": ("prod", "and"),
    "stablehlo.maximum": ("max", "or"),
    "stablehlo.minimum": ("min", "and"),
    "stablehlo.and": ("and", "and"),
    "stablehlo.or": ("or", "or"),
}


def region_reducer(op: ir.Operation) -> str | None:
    """The reducer that the op's only region computes, None if it is another.

    Bitwise and/or of integers that are not predicates are not reducers of ours.
    """
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        return None
    block = op.regions[0].blocks[0]
    body = list(operations(block))
    if len(body) != 2 or len(block.arguments) != 2 or body[0].name not in _REDUCERS:
        return None
    if list(body[1].operands) != list(body[0].results):
        return None
    if set(body[0].operands) != set(block.arguments):
        return None
    dtype = tensor_type(body[0].results[0].type).dtype
    plain, predicate = _REDUCERS[body[0].name]
    if dtype != "i1" and plain in ("and", "or"):
        return None
    return predicate if dtype == "i1" else plain


def inline_calls(module: ir.Module) -> None:
    """Replace every func.call reachable from main by the callee's body.

    MLIR's own inline pass needs an extension that jaxlib's context lacks. A
    callee's operations get the call's name stack in front of their own.
    """
    functions = {
        string_attr(op, "sym_name"): op
        for op in operations(module.body)
        if op.name == "func.func"
    }
    with module.context:
        pending = [
            op for op in walk_regions(find_main(module)) if op.name == "func.call"
        ]
        while pending:
            call = pending.pop()
            callee = functions.get(string_attr(call, "callee"))
            if callee is None or not callee.regions[0].blocks:
                continue
            pending += _inline_call(call, callee)
    run_passes(module, "symbol-dce")


def _inline_call(call: ir.Operation, callee: ir.Operation) -> list[ir.Operation]:
    block = callee.regions[0].blocks[0]
    mapping = dict(zip(block.arguments, call.operands, strict=True))
    prefix = location_name(call.location)
    nested: list[ir.Operation] = []
    with ir.InsertionPoint(call):
        for op in operations(block):
            if op.name == "func.return":
                for old, value in zip(call.results, op.operands, strict=True):
                    old.replace_all_uses_with(mapping[value])
                break
            clone = op.clone()
            replace_operands(clone, mapping)
            _prefix_location(clone, prefix)
            mapping.update(zip(op.results, clone.results, strict=True))
            inner = (clone, *walk_regions(clone))
            nested += [o for o in inner if o.name == "func.call"]
    call.erase()
    return nested


def _prefix_location(op: ir.Operation, prefix: str) -> None:
    if not prefix:
        return
    for inner in (op, *walk_regions(op)):
        name = location_name(inner.location)
        joined = f"{prefix}/{name}" if name else prefix
        if name.startswith(prefix):
            continue
        inner.location = ir.Location.name(joined, inner.location, op.context)


_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"(?!:\d)')
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+)')


def location_name(location: ir.Location) -> str:
    """The outermost name of a location: JAX's name stack, XLA's op_name."""
    found = _NAME.search(str(location))
    return found[1] if found else ""


def location_file(location: ir.Location) -> tuple[str, int]:
    """File and line of the innermost frame that a location records."""
    found = _FILE.search(str(location))
    return (found[1], int(found[2])) if found else ("", 0)


def gspmd_bytes(
    module: ir.Module,
    arguments: Sequence[str | None],
    results: Sequence[str | None],
    constraints: Mapping[int, str],
) -> bytes:
    """The module with its shardings as HLO strings, the form that GSPMD reads.

    `constraints` gives the string for the main block's op of each index, which
    becomes a `@Sharding` custom call.
    """
    copy = parse_module(module_bytes(module))
    main = find_main(copy)
    ops = list(operations(main.regions[0].blocks[0]))
    with copy.context, ir.Location.unknown():
        for index, op in enumerate(ops):
            if "sdy.sharding" in op.attributes:
                del op.attributes["sdy.sharding"]
            if index in constraints:
                _to_custom_call(op, constraints[index])
        for name, texts in (("arg_attrs", arguments), ("res_attrs", results)):
            main.attributes[name] = ir.ArrayAttr.get(
                [
                    ir.DictAttr.get(
                        {} if t is None else {"mhlo.sharding": ir.StringAttr.get(t)}
                    )
                    for t in texts
                ]
            )
        for op in list(operations(copy.body)):
            if op.name == "sdy.mesh":
                op.erase()
    return module_bytes(copy)


def _to_custom_call(op: ir.Operation, sharding: str) -> None:
    with ir.InsertionPoint(op), op.location:
        call = ir.Operation.create(
            "stablehlo.custom_call",
            results=[op.results[0].type],
            operands=[op.operands[0]],
            attributes={
                "call_target_name": ir.StringAttr.get("Sharding"),
                "mhlo.sharding": ir.StringAttr.get(sharding),
            },
        )
    op.results[0].replace_all_uses_with(call.results[0])
    op.erase()


def strip_shardings(module: ir.Module) -> None:
    """Remove every sharding and constraint in place: the program on one device."""
    main = find_main(module)
    with module.context:
        for op in list(walk_regions(main)):
            if op.name in ("sdy.sharding_constraint", "sdy.reshard"):
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()
            elif "sdy.sharding" in op.attributes:
                del op.attributes["sdy.sharding"]
        for kind in ("arg_attrs", "res_attrs"):
            if kind in main.attributes:
                del main.attributes[kind]
        for op in list(operations(module.body)):
            if op.name == "sdy.mesh":
                op.erase()


def drop_result_attributes(module: ir.Module) -> None:
    """Take the attributes off main's results, in place.

    XLA's importer wraps results that carry a sharding in a tuple.
    """
    attributes = find_main(module).attributes
    if "res_attrs" in attributes:
        del attributes["res_attrs"]
