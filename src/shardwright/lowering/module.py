"""Plan -> per-device StableHLO: local ops from rules, steps from redistribution.

Before -> after, for a matmul whose operands are cut and whose result moves:

    func @main(f32[8192,8192], f32[8192,8192]) -> f32[8192,8192]
    func @main(f32[2048,8192], f32[8192,4096]) -> f32[4096,2048]
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.capture import to_hlo
from shardwright.jaxlib_bindings import (
    find_main,
    func,
    ir,
    make_context,
    module_bytes,
    operations,
    parse_module,
    run_passes,
)
from shardwright.lowering.merged import emit_merged
from shardwright.lowering.slabs import emit_in_slabs
from shardwright.lowering.steps import emit_schedule
from shardwright.placement import Plan
from shardwright.program import Layout, Schedule, Strategy
from shardwright.rules import Emitter, Local, call_of, localize, rule_of


def lower(plan: Plan, *, annotate: bool = False) -> ir.Module:
    """The program that each device runs, on tiles.

    With `annotate`, parameters and results carry their global sharding as
    `mhlo.sharding`, as XLA's dumps of partitioned modules do.
    """
    source = plan.program.source
    module = _emptied_copy(source.module)
    with module.context, ir.Location.unknown():
        _Lowering(plan, module, annotate).run()
    run_passes(module, "canonicalize,cse")
    return module


def schedules_module(
    schedules: Sequence[Schedule],
    *,
    accumulate: str | None = None,
) -> bytes:
    """MLIR bytecode of a program that takes a tile through each schedule.

    Several schedules must be of one kind (`kind_of`); their collectives are merged.
    Sums and products are made in the element type `accumulate`, if one is given.
    A scalar comes and leaves with one dim, along which tiles may be stacked.
    """
    context = make_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        emitter = Emitter(schedules[0].mesh, context)
        tiles, results = (
            [
                emitter.type(layout.tile_shape(s.shape) or (1,), s.dtype)
                for layout, s in zip(layouts, schedules, strict=True)
            ]
            for layouts in (
                [s.source for s in schedules],
                [s.target for s in schedules],
            )
        )
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", (tiles, results))
        with ir.InsertionPoint(function.add_entry_block()):
            given = [
                emitter.reshape(tile, s.source.tile_shape(s.shape))
                for tile, s in zip(function.arguments, schedules, strict=True)
            ]
            moved = _moved(emitter, given, schedules, accumulate)
            shapes = [s.target.tile_shape(s.shape) or (1,) for s in schedules]
            func.ReturnOp(
                [emitter.reshape(v, n) for v, n in zip(moved, shapes, strict=True)]
            )
    run_passes(module, "canonicalize,cse")
    return module_bytes(module)


def _moved(
    emitter: Emitter,
    tiles: Sequence[ir.Value],
    schedules: Sequence[Schedule],
    accumulate: str | None,
) -> list[ir.Value]:
    if len(schedules) > 1:
        return emit_merged(emitter, tiles, schedules, accumulate)
    (tile,), (schedule,) = tiles, schedules
    if schedule.slabs is None:
        return [emit_schedule(emitter, tile, schedule, accumulate)]

    def emit(inner: Emitter, slab: ir.Value, part: Schedule) -> ir.Value:
        return emit_schedule(inner, slab, part, accumulate)

    return [emit_in_slabs(emitter, tile, schedule, emit)]


def _emptied_copy(source: ir.Module) -> ir.Module:
    """The module without its main function and meshes; other functions stay.

    A copy by bytecode in the same context, so that operations of the source can
    be cloned into it.
    """
    module = parse_module(module_bytes(source), source.context)
    for op in list(operations(module.body)):
        if op.name == "sdy.mesh":
            op.erase()
    find_main(module).erase()
    return module


class _Lowering:
    """One pass over the program's ops, tiles kept by (value, layout)."""

    def __init__(self, plan: Plan, module: ir.Module, annotate: bool) -> None:
        self.plan = plan
        self.program = plan.program
        self.module = module
        self.annotate = annotate
        self.emitter = Emitter(plan.program.mesh, module.context)
        self.tiles: dict[tuple[int, Layout], ir.Value] = {}
        self.schedules = {(m.value, m.target): m.schedule for m in plan.moves}
        self.remade = {(v, layout): s for v, layout, s in plan.remade}
        self.producer = {
            v: i for i, op in enumerate(self.program.ops) for v in op.results
        }

    def run(self) -> None:
        plan, program = self.plan, self.program
        types = [self.tile_type(v, plan.made[v]) for v in program.inputs]
        results = [
            self.tile_type(v, layout)
            for v, layout in zip(program.outputs, plan.outputs, strict=True)
        ]
        main = find_main(program.source.module)
        places = [a.location for a in main.regions[0].blocks[0].arguments]
        with ir.InsertionPoint.at_block_begin(self.module.body):
            function = func.FuncOp("main", (types, results), loc=main.location)
        block = function.add_entry_block(places)
        with ir.InsertionPoint(block):
            for value, argument in zip(program.inputs, block.arguments, strict=True):
                self.tiles[value, plan.made[value]] = argument
            for i in range(len(program.ops)):
                self.op(i, plan.strategies[i])
            func.ReturnOp(
                [
                    self.tile(v, layout)
                    for v, layout in zip(program.outputs, plan.outputs, strict=True)
                ]
            )
        self.annotate_function(function)

    def tile_type(self, value: int, layout: Layout) -> ir.Type:
        type_ = self.program.values[value]
        return self.emitter.type(layout.tile_shape(type_.shape), type_.dtype)

    def tile(self, value: int, layout: Layout) -> ir.Value:
        """The value's tile in a layout: made, moved, or made again."""
        found = self.tiles.get((value, layout))
        if found is not None:
            return found
        strategy = self.remade.get((value, layout))
        if strategy is not None:
            self.op(self.producer[value], strategy)
            return self.tiles[value, layout]
        schedule = self.schedules[value, layout]
        made = self.tiles[value, self.plan.made[value]]
        tile = emit_schedule(self.emitter, made, schedule)
        self.tiles[value, layout] = tile
        return tile

    def op(self, index: int, strategy: Strategy) -> None:
        """Emit one op on tiles, after whatever its operands need."""
        program = self.program
        op = program.ops[index]
        call = call_of(program, op)
        rule = rule_of(call)
        mesh = program.mesh
        source = program.source.ops[index]
        needs = [
            strategy.operand_layout(rule, mesh, j) for j in range(len(op.operands))
        ]
        makes = [strategy.result_layout(rule, mesh, j) for j in range(len(op.results))]
        with source.location:
            operands = tuple(
                self.tile(v, need) for v, need in zip(op.operands, needs, strict=True)
            )
            shapes = tuple(
                layout.tile_shape(type_.shape)
                for layout, type_ in zip(makes, call.results, strict=True)
            )
            local = Local(
                emitter=self.emitter,
                source=source,
                call=call,
                rule=rule,
                strategy=strategy,
                operands=operands,
                result_shapes=shapes,
            )
            made = localize(local)
        for value, layout, tile in zip(op.results, makes, made, strict=True):
            self.tiles[value, layout] = tile

    def annotate_function(self, function: func.FuncOp) -> None:
        if not self.annotate:
            return
        plan, program = self.plan, self.program
        for name, values, layouts in (
            ("arg_attrs", program.inputs, plan.inputs),
            ("res_attrs", program.outputs, plan.outputs),
        ):
            function.attributes[name] = ir.ArrayAttr.get(
                [
                    ir.DictAttr.get(
                        {
                            "mhlo.sharding": ir.StringAttr.get(
                                to_hlo(layout, program.values[v].shape)
                            )
                        }
                    )
                    for v, layout in zip(values, layouts, strict=True)
                ]
            )
        self.module.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(
            ir.IntegerType.get_signless(32), program.mesh.num_devices
        )
