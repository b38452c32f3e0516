"""StableHLO module -> Program: calls inlined, cleaned by MLIR, layouts read."""

from __future__ import annotations

import dataclasses
from typing import Any

from shardwright.capture.hlo import pin_op_shardings, shardings_to_sdy
from shardwright.capture.roundtrip import frontend_attributes_to_sdy
from shardwright.capture.shardings import from_sdy, mesh_from_sdy
from shardwright.errors import InputError, LayoutError
from shardwright.jaxlib_bindings import (
    attribute_items,
    attribute_value,
    find_main,
    ir,
    operations,
    per_value_shardings,
    run_passes,
    string_attr,
    tensor_type,
    walk_regions,
)
from shardwright.mlir import (
    captured_values,
    inline_calls,
    location_file,
    location_name,
    region_reducer,
    restore_constants,
)
from shardwright.program import (
    CONSTRAINT_OPS,
    Constraint,
    Layout,
    Location,
    Mesh,
    Op,
    Program,
    TensorType,
)

_KNOWN_DIALECTS = ("stablehlo", "chlo", "mhlo", "sdy", "func")

_PER_DEVICE = frozenset(
    {
        "stablehlo.all_gather",
        "stablehlo.all_reduce",
        "stablehlo.all_to_all",
        "stablehlo.collective_broadcast",
        "stablehlo.collective_permute",
        "stablehlo.partition_id",
        "stablehlo.reduce_scatter",
        "stablehlo.replica_id",
    }
)

_USER_CONSTRAINT_NAMES = ("sharding_constraint", "reshard")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """The cleaned module of a program and its main block's operations."""

    module: ir.Module
    ops: tuple[ir.Operation, ...]


def program_from_module(
    module: ir.Module,
    *,
    num_devices: int | None = None,
    explicit: bool = False,
    keep_op_shardings: bool = False,
) -> Program:
    """Read a StableHLO module (which is changed in place) as a Program.

    Shardings may be `sdy` attributes or `mhlo.sharding` strings. `num_devices`
    overrides what the module names. With `explicit`, constraints that JAX's
    sharding types put after each op are hints; `keep_op_shardings` makes every
    sharding on an op a given one.

    Raises InputError for an op of an unknown dialect or a dynamic shape, and
    LayoutError for a sharding that does not fit.
    """
    for op in walk_regions(module.operation):
        refuse(op, location_of(op))
    num_devices = num_devices or _num_partitions(module)
    if not frontend_attributes_to_sdy(module):
        shardings_to_sdy(module, num_devices)
    inline_calls(module)
    if keep_op_shardings:
        pin_op_shardings(module)
    run_passes(module, "canonicalize,cse,sdy-constant-or-scalar-splitter")
    restore_constants(module)
    meshes = meshes_of_module(module)
    hints = explicit and not keep_op_shardings
    reader = _Reader(meshes, _main_mesh(meshes, num_devices), hints)
    return reader.read(module)


def _num_partitions(module: ir.Module) -> int | None:
    attributes = module.operation.attributes
    if "mhlo.num_partitions" not in attributes:
        return None
    count: int = ir.IntegerAttr(attributes["mhlo.num_partitions"]).value
    return count if count > 1 else None


def meshes_of_module(module: ir.Module) -> dict[str, Mesh | None]:
    """The meshes a module declares, None for a single device."""
    return {
        string_attr(op, "sym_name"): mesh_from_sdy(op.attributes["mesh"])
        for op in operations(module.body)
        if op.name == "sdy.mesh"
    }


def _main_mesh(meshes: dict[str, Mesh | None], num_devices: int | None) -> Mesh:
    real = {mesh: name for name, mesh in meshes.items() if mesh and mesh.axes}
    if len(real) > 1:
        listing = ", ".join(f"@{name} {mesh}" for mesh, name in real.items())
        raise InputError(
            f"the module uses several meshes: {listing}; "
            "put all shardings on one mesh (use one jax Mesh for the whole program)"
        )
    mesh = next(iter(real), None)
    if mesh is None:
        return Mesh((("devices", num_devices),)) if num_devices else Mesh(())
    if num_devices is not None and mesh.num_devices != num_devices:
        raise InputError(
            f"mesh {mesh} has {mesh.num_devices} devices, but the module is for "
            f"{num_devices}; give the number of devices that the shardings name"
        )
    return mesh


class _Reader:
    """Numbers the values of one main function and reads its operations."""

    def __init__(
        self, meshes: dict[str, Mesh | None], mesh: Mesh, type_hints: bool
    ) -> None:
        self.meshes = meshes
        self.mesh = mesh
        self.type_hints = type_hints
        self.ids: dict[Any, int] = {}
        self.types: list[TensorType] = []

    def read(self, module: ir.Module) -> Program:
        main = find_main(module)
        block = main.regions[0].blocks[0]
        inputs = tuple(self.number(argument) for argument in block.arguments)
        names = tuple(_argument_name(a, i) for i, a in enumerate(block.arguments))
        source = tuple(operations(block))
        ops = tuple(self.op(op, i) for i, op in enumerate(source[:-1]))
        outputs = tuple(self.ids[value] for value in source[-1].operands)
        results = [self.types[v] for v in outputs]
        arguments = [self.types[v] for v in inputs]
        return Program(
            name=string_attr(module.operation, "sym_name") or "main",
            mesh=self.mesh,
            values=tuple(self.types),
            inputs=inputs,
            ops=ops,
            outputs=outputs,
            input_constraints=self.function_constraints(main, "arg_attrs", arguments),
            output_constraints=self.function_constraints(main, "res_attrs", results),
            input_names=names,
            source=Source(module, source[:-1]),
        )

    def number(self, value: ir.Value) -> int:
        self.ids[value] = len(self.types)
        self.types.append(tensor_type(value.type))
        return self.ids[value]

    def op(self, op: ir.Operation, index: int) -> Op:
        name = op.name
        location = location_of(op)
        if name.split(".")[0] not in _KNOWN_DIALECTS:
            raise InputError(f"unknown operation {name!r} at {location}")
        captured = captured_values(op)
        operands = tuple(self.ids[value] for value in (*op.operands, *captured))
        attrs = [
            (key, attribute_value(attr))
            for key, attr in attribute_items(op)
            if not key.startswith(("sdy.", "mhlo.sharding"))
        ]
        if len(op.regions) == 1:
            attrs.append(("reducer", region_reducer(op)))
        constraint = self.op_constraint(op, location)
        results = tuple(self.number(result) for result in op.results)
        return Op(
            name=name,
            operands=operands,
            results=results,
            attrs=tuple(attrs),
            location=location,
            index=index,
            num_captured=len(captured),
            constraint=constraint,
        )

    def op_constraint(self, op: ir.Operation, location: Location) -> Constraint | None:
        if op.name in CONSTRAINT_OPS:
            found = self.constraint(
                op.attributes["sharding"], tensor_type(op.results[0].type), location
            )
            user = location.name.split("/")[-1].startswith(_USER_CONSTRAINT_NAMES)
            if self.type_hints and not user:
                return dataclasses.replace(found, given=False)
            return found
        if "sdy.sharding" not in op.attributes or len(op.results) != 1:
            return None
        (attr,) = per_value_shardings(op.attributes["sdy.sharding"])
        try:
            found = self.constraint(attr, tensor_type(op.results[0].type), location)
        except InputError:  # a callback's single device, say: only a hint
            return None
        return dataclasses.replace(found, given=False)

    def function_constraints(
        self, main: ir.Operation, kind: str, types: list[TensorType]
    ) -> tuple[Constraint | None, ...]:
        if kind not in main.attributes:
            return (None,) * len(types)
        side = "parameter" if kind == "arg_attrs" else "result"
        found: list[Constraint | None] = []
        for i, (attrs, type_) in enumerate(
            zip(ir.ArrayAttr(main.attributes[kind]), types, strict=True)
        ):
            attrs = ir.DictAttr(attrs)
            here = Location(f"{side} {i}")
            has = "sdy.sharding" in attrs
            found.append(
                self.constraint(attrs["sdy.sharding"], type_, here) if has else None
            )
        return tuple(found)

    def constraint(
        self, attr: ir.Attribute, type_: TensorType, location: Location
    ) -> Constraint:
        try:
            found = from_sdy(attr, self.meshes)
            if not found.layout.mesh.axes:
                layout = Layout.replicated(self.mesh, type_.rank)
                found = dataclasses.replace(found, layout=layout)
            found.layout.check_rank(type_.shape)
        except LayoutError as error:
            raise LayoutError(f"{location}: {error}") from None
        return found


def location_of(op: ir.Operation) -> Location:
    """Where the op comes from, as data."""
    return Location(location_name(op.location), *location_file(op.location))


def refuse(op: ir.Operation, location: Location) -> None:
    """Raise an InputError for an op that cannot run on every device as it is."""
    if op.name == "sdy.manual_computation":
        raise InputError(
            f"shard_map at {location} is not supported yet: take it out of the "
            "function that is planned, or run the function with jax.jit"
        )
    if "python" in string_attr(op, "call_target_name"):
        raise InputError(
            f"a callback to Python at {location} (jax.debug.print, io_callback, ...) "
            "is not supported yet: take it out of the function that is planned"
        )
    if op.name in _PER_DEVICE:
        raise InputError(
            f"{op.name} at {location}: the program is written for one device of many "
            "already; give the program of whole arrays"
        )


def _argument_name(argument: ir.Value, index: int) -> str:
    return location_name(argument.location) or f"arg{index}"
