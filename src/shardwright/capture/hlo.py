"""HLO's shardings to sdy: `mhlo.sharding` strings become attributes on one mesh.

Before -> after, for a module imported from HLO or lowered by JAX for GSPMD:

    %1 = mhlo.copy %0 {mhlo.sharding = "{devices=[2,4]<=[8]}"}
    %1 = sdy.sharding_constraint %0 <@mesh, [{"a"}, {"b", "c"}]>

Annotations on parameters, results, copies and @Sharding custom calls are the
user's; those on other ops are hints and stay on the op as `sdy.sharding`.
"""

from __future__ import annotations

import dataclasses

from shardwright.capture.hlo_shardings import layouts_from_hlo
from shardwright.capture.shardings import to_sdy, to_sdy_mesh
from shardwright.errors import InputError
from shardwright.jaxlib_bindings import (
    find_main,
    ir,
    operations,
    per_value_shardings,
    sdy,
    string_attr,
    tensor_type,
    walk_regions,
)
from shardwright.program import Constraint

_KEY = "mhlo.sharding"


@dataclasses.dataclass(frozen=True, slots=True)
class _Site:
    """Where a sharding string stands: an op's result, or main's i-th attribute."""

    text: str
    rank: int
    what: str
    op: ir.Operation | None = None
    kind: str = ""
    index: int = 0


def shardings_to_sdy(module: ir.Module, num_devices: int | None) -> None:
    """Rewrite every `mhlo.sharding` of the module in place; nothing if there is none.

    Raises LayoutError or InputError for a sharding that does not fit.
    """
    main = find_main(module)
    sites = [*_function_sites(main), *_op_sites(main)]
    if not sites:
        return
    mesh, constraints = layouts_from_hlo(
        [site.text for site in sites],
        [site.rank for site in sites],
        num_devices,
        [site.what for site in sites],
    )
    with module.context, ir.Location.unknown():
        if mesh.axes:
            with ir.InsertionPoint.at_block_begin(module.body):
                sdy.MeshOp(ir.StringAttr.get("mesh"), to_sdy_mesh(mesh, module.context))
        for site, constraint in zip(sites, constraints, strict=True):
            if site.op is not None:
                del site.op.attributes[_KEY]
            if constraint is not None and mesh.axes:
                _write(site, main, constraint)


def _function_sites(main: ir.Operation) -> list[_Site]:
    block = main.regions[0].blocks[0]
    returned = list(operations(block))[-1].operands
    sites: list[_Site] = []
    for kind, what, values in (
        ("arg_attrs", "parameter", list(block.arguments)),
        ("res_attrs", "result", list(returned)),
    ):
        if kind not in main.attributes:
            continue
        for i, attrs in enumerate(ir.ArrayAttr(main.attributes[kind])):
            attrs = ir.DictAttr(attrs)
            if _KEY not in attrs:
                continue
            text = ir.StringAttr(attrs[_KEY]).value
            type_ = tensor_type(values[i].type)
            where = f"{what} {i}, {type_}"
            sites.append(_Site(text, type_.rank, where, None, kind, i))
    return sites


def _op_sites(main: ir.Operation) -> list[_Site]:
    sites: list[_Site] = []
    for op in walk_regions(main):
        if _KEY not in op.attributes or len(op.results) != 1:
            continue
        type_ = tensor_type(op.results[0].type)
        where = f"{op.name} of {type_}"
        sites.append(_Site(string_attr(op, _KEY), type_.rank, where, op))
    return sites


def _is_user_constraint(op: ir.Operation) -> bool:
    if op.name == "mhlo.copy":
        return True
    target = string_attr(op, "call_target_name")
    return op.name == "stablehlo.custom_call" and target == "Sharding"


def _write(site: _Site, main: ir.Operation, constraint: Constraint) -> None:
    attr = to_sdy(constraint, "mesh", main.context)
    if site.op is None:
        _set_function_attr(main, site, attr)
        return
    if not _is_user_constraint(site.op):
        values = sdy.TensorShardingPerValueAttr.get([attr])
        site.op.attributes["sdy.sharding"] = values
        return
    with ir.InsertionPoint(site.op), site.op.location:
        made = sdy.ShardingConstraintOp(site.op.operands[0], attr)
    site.op.results[0].replace_all_uses_with(made.result)
    site.op.erase()


def pin_op_shardings(module: ir.Module) -> None:
    """Turn every sharding on an op of one result into a constraint on it, in place."""
    with module.context:
        for op in list(operations(find_main(module).regions[0].blocks[0])):
            if "sdy.sharding" not in op.attributes or len(op.results) != 1:
                continue
            (attr,) = per_value_shardings(op.attributes["sdy.sharding"])
            del op.attributes["sdy.sharding"]
            result = op.results[0]
            with ir.InsertionPoint(op), op.location:
                made = sdy.ShardingConstraintOp(result, attr)
            made.operation.move_after(op)
            result.replace_all_uses_except(made.result, made.operation)


def _set_function_attr(main: ir.Operation, site: _Site, attr: ir.Attribute) -> None:
    entries = [ir.DictAttr(entry) for entry in ir.ArrayAttr(main.attributes[site.kind])]
    kept = {item.name: item.attr for item in entries[site.index] if item.name != _KEY}
    kept["sdy.sharding"] = attr
    new = [
        ir.DictAttr.get(kept) if i == site.index else e for i, e in enumerate(entries)
    ]
    main.attributes[site.kind] = ir.ArrayAttr.get(new)


_ELIDED = "constant({...})"


def refuse_elided_constants(text: str) -> None:
    """XLA's dumps print large constants as `{...}`; such a file has lost data."""
    for number, line in enumerate(text.splitlines(), 1):
        if _ELIDED in line:
            name = line.split("=")[0].strip()
            raise InputError(
                f"line {number}: constant {name} is elided as {{...}}; dump the module "
                "again with --xla_dump_large_constants or as a proto"
            )
