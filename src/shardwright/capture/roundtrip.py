"""Shardy's shardings as XLA's dumps carry them: strings in frontend attributes.

HLO has no `sdy` dialect, so XLA writes meshes on the module, shardings on parameters
and ops, and a `@xla.sdy.FuncResultSharding` custom call on each result:

    frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"x\"}, {}]>"}

They say more than the HLO shardings beside them, which are left out then.
"""

from __future__ import annotations

from shardwright.errors import InputError
from shardwright.jaxlib_bindings import (
    find_main,
    ir,
    operations,
    per_value_shardings,
    sdy,
    string_attr,
    walk_regions,
)

_FRONTEND = "mhlo.frontend_attributes"
_HLO = "mhlo.sharding"
_MESHES = "xla.sdy.meshes"
_SHARDING = "xla.sdy.sharding"
_RESULT = "xla.sdy.FuncResultSharding"


def frontend_attributes_to_sdy(module: ir.Module) -> bool:
    """Rewrite such strings as `sdy` attributes and ops; whether there are any."""
    text = _text(module.operation.attributes, _MESHES)
    main = find_main(module)
    if not text or not _has_shardings(main):
        return False
    with module.context, ir.Location.unknown():
        meshes = ir.DictAttr(_parse(text, "the module's meshes"))
        with ir.InsertionPoint.at_block_begin(module.body):
            for item in meshes:
                sdy.MeshOp(ir.StringAttr.get(item.name), item.attr)
        _parameters(main)
        _results_and_ops(main)
    return True


def _has_shardings(main: ir.Operation) -> bool:
    """Whether a parameter or an op carries one; partitioned modules keep the meshes."""
    if any(_text(op.attributes, _SHARDING) for op in walk_regions(main)):
        return True
    if "arg_attrs" not in main.attributes:
        return False
    entries = ir.ArrayAttr(main.attributes["arg_attrs"])
    return any(_text(ir.DictAttr(entry), _SHARDING) for entry in entries)


def _text(attributes: ir.OpAttributeMap | ir.DictAttr, name: str) -> str:
    """One string among the frontend attributes, "" where it is missing."""
    if _FRONTEND not in attributes:
        return ""
    found = ir.DictAttr(attributes[_FRONTEND])
    return ir.StringAttr(found[name]).value if name in found else ""


def _parse(text: str, what: str) -> ir.Attribute:
    try:
        return ir.Attribute.parse(text)
    except (ir.MLIRError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{what}: {text!r} cannot be read: {first}") from None


def _parameters(main: ir.Operation) -> None:
    if "arg_attrs" not in main.attributes:
        return
    entries = []
    for i, entry in enumerate(ir.ArrayAttr(main.attributes["arg_attrs"])):
        attrs = ir.DictAttr(entry)
        text = _text(attrs, _SHARDING)
        kept = {a.name: a.attr for a in attrs if a.name not in (_FRONTEND, _HLO)}
        if text:
            kept["sdy.sharding"] = _parse(text, f"parameter {i}")
        entries.append(ir.DictAttr.get(kept))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)


def _results_and_ops(main: ir.Operation) -> None:
    """Results take their sharding from the custom call that returns them."""
    returned = list(operations(main.regions[0].blocks[0]))[-1]
    results: list[ir.Attribute | None] = [None] * len(returned.operands)
    for op in list(walk_regions(main)):
        text = _text(op.attributes, _SHARDING)
        if _HLO in op.attributes:
            del op.attributes[_HLO]
        if not text:
            continue
        shardings = per_value_shardings(_parse(text, op.name))
        target = string_attr(op, "call_target_name")
        if target == _RESULT:
            for use in op.results[0].uses:
                if use.owner.operation == returned.operation:
                    results[use.operand_number] = shardings[0]
            _replace(op, op.operands[0])
        elif target == "Sharding":
            with ir.InsertionPoint(op), op.location:
                made = sdy.ShardingConstraintOp(op.operands[0], shardings[0])
            _replace(op, made.result)
        else:
            del op.attributes[_FRONTEND]
            op.attributes["sdy.sharding"] = sdy.TensorShardingPerValueAttr.get(
                list(shardings)
            )
    main.attributes["res_attrs"] = ir.ArrayAttr.get(
        [ir.DictAttr.get({} if s is None else {"sdy.sharding": s}) for s in results]
    )


def _replace(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()
