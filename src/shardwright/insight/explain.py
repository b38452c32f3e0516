"""The plan in words: each collective, its price, its reason, what else there was."""

from __future__ import annotations

from typing import Any

from shardwright.placement import Decision, Move, Plan
from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Fold,
    Layout,
    Mesh,
    Permute,
    ReduceScatter,
    Resize,
    Shuffle,
    Slice,
    Step,
    SubAxis,
    TensorType,
    Unreduce,
)

MAX_DECISIONS = 8
"""Most choices that the text explains, the costliest ones."""


def explain(plan: Plan) -> str:
    """The whole plan as text: totals, layouts, ops, moves, reasons, warnings."""
    blocks = [_summary(plan), _layouts(plan), _contractions(plan), _moves(plan)]
    if plan.decisions:
        blocks.append(_decisions(plan))
    if plan.warnings:
        blocks.append("\n".join(["warnings", *(f"  {w}" for w in plan.warnings)]))
    return "\n\n".join(filter(None, blocks)) + "\n"


def to_dict(plan: Plan) -> dict[str, Any]:
    """The same facts as JSON-ready data, bytes and seconds as plain numbers."""
    program = plan.program
    return {
        "program": program.name,
        "mesh": dict(program.mesh.axes),
        "topology": plan.topology.name,
        "placement": plan.placement,
        "seconds": plan.seconds,
        "compute_seconds": plan.compute_seconds,
        "communication_seconds": plan.communication_seconds,
        "bytes_received": plan.bytes_received,
        "lower_bound": plan.lower_bound,
        "num_collectives": plan.num_collectives,
        "incumbents": dict(plan.incumbents),
        "inputs": [
            _value_dict(plan, v, layout, name)
            for v, layout, name in zip(
                program.inputs, plan.inputs, program.input_names, strict=True
            )
        ],
        "outputs": [
            _value_dict(plan, v, layout, f"result {i}")
            for i, (v, layout) in enumerate(
                zip(program.outputs, plan.outputs, strict=True)
            )
        ],
        "contractions": [_op_dict(plan, i) for i in contractions(plan)],
        "moves": [_move_dict(plan, move) for move in plan.moves],
        "decisions": [_decision_dict(plan, d) for d in plan.decisions],
        "warnings": list(plan.warnings),
    }


def contractions(plan: Plan) -> list[int]:
    """Ops that multiply and sum: where the flops are."""
    names = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
    return [i for i, op in enumerate(plan.program.ops) if op.name in names]


def bytes_str(count: float) -> str:
    """Bytes with a binary unit.

    >>> bytes_str(33554432), bytes_str(1000)
    ('32 MiB', '1000 B')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.2f} {unit}"


def seconds_str(seconds: float) -> str:
    """Seconds with a fitting unit, three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0 s"


def _rounds_str(step: Exchange) -> str:
    """In how many permutes, and whether there is an all-to-all for the rest."""
    moving = sum(not r.is_local for r in step.rounds)
    words = [f"in {moving} round{'s' * (moving != 1)}"] if moving else []
    if step.joined:
        words.append("in one all-to-all with room for a box from each to each")
    return " and ".join(words) or "(local)"


def step_str(mesh: Mesh, step: Step) -> str:
    """One step in words, axes by name."""
    match step:
        case Slice():
            return f"slice dim {step.dim} over {_axes(mesh, step.axes)} (local)"
        case AllGather():
            return f"all-gather dim {step.dim} over {_axes(mesh, step.axes)}"
        case AllToAll():
            return (
                f"all-to-all over {_axes(mesh, step.axes)}: "
                f"split dim {step.split_dim}, join dim {step.concat_dim}"
            )
        case Permute():
            return f"collective-permute over {_axes(mesh, step.axes)}"
        case AllReduce():
            return f"all-reduce {step.reducer} over {_axes(mesh, step.axes)}"
        case ReduceScatter():
            return (
                f"reduce-scatter {step.reducer} dim {step.dim} over "
                f"{_axes(mesh, step.axes)}"
            )
        case Shuffle():
            return "shuffle chunks (local)"
        case Resize():
            return f"cut or pad the tile to {'x'.join(map(str, step.shape))} (local)"
        case Unreduce():
            return (
                f"keep as partial {step.reducer} over {_axes(mesh, step.axes)} (local)"
            )
        case Fold():
            return f"reduce {step.reducer} over dim 0 of the tile (local)"
        case Exchange():
            return f"exchange over {_axes(mesh, step.axes)} {_rounds_str(step)}"


def _axes(mesh: Mesh, axes: tuple[SubAxis, ...]) -> str:
    return " ".join(mesh.axis_str(axis) for axis in axes)


# Blocks of text -----------------------------------------------------------


def _summary(plan: Plan) -> str:
    program = plan.program
    shardy = dict(plan.incumbents)["shardy"]
    lines = [
        f"{program.name}: {len(program.ops)} ops on mesh {program.mesh}, "
        f"{program.mesh.num_devices} devices",
        f"  topology        {plan.topology.name}",
        f"  placement       {plan.placement}",
        f"  modelled step   {seconds_str(plan.seconds)} = compute "
        f"{seconds_str(plan.compute_seconds)} + communication "
        f"{seconds_str(plan.communication_seconds)}"
        f" (Shardy's propagation: {seconds_str(shardy)})",
        f"  received        {bytes_str(plan.bytes_received)} a device in "
        f"{plan.num_collectives} collectives; lower bound of these moves "
        f"{bytes_str(plan.lower_bound)}",
    ]
    return "\n".join(lines)


def _layouts(plan: Plan) -> str:
    program = plan.program
    rows = [
        (name, program.values[v], layout)
        for name, v, layout in zip(
            program.input_names, program.inputs, plan.inputs, strict=True
        )
    ]
    rows += [
        (f"result {i}" if len(program.outputs) > 1 else "result", program.values[v], x)
        for i, (v, x) in enumerate(zip(program.outputs, plan.outputs, strict=True))
    ]
    names = [name for name, _, _ in rows]
    width = max(map(len, names), default=0)
    lines = ["inputs and results"]
    for name, type_, layout in rows:
        tile = TensorType(layout.tile_shape(type_.shape), type_.dtype)
        lines.append(f"  {name:<{width}}  {type_}  {layout}  tile {tile}")
    return "\n".join(lines)


def _contractions(plan: Plan) -> str:
    found = contractions(plan)
    if not found:
        return ""
    lines = ["contractions, per device"]
    lines += [f"  {_op_str(plan, i)}" for i in found]
    return "\n".join(lines)


def _op_str(plan: Plan, index: int) -> str:
    entry = _op_dict(plan, index)
    moved = {use[0] for m in plan.moves for use in m.uses if m.schedule.bytes_received}
    before = "" if index in moved else "  (nothing received before it)"
    return (
        f"{' x '.join(entry['operand_tiles'])} -> {entry['result_tile']}"
        f"{before}  {entry['location']}"
    )


def _moves(plan: Plan) -> str:
    if not plan.moves:
        return "moves\n  none: every value is used where it is made"
    lines = ["moves"]
    mesh = plan.program.mesh
    for number, move in enumerate(plan.moves, 1):
        schedule = move.schedule
        at_bound = schedule.bytes_received <= schedule.lower_bound
        bound = (
            "the lower bound"
            if at_bound
            else f"bound {bytes_str(schedule.lower_bound)}"
        )
        lines.append(
            f"  {number}. {value_name(plan, move.value)} "
            f"{plan.program.values[move.value]}: {move.source} -> {move.target}"
        )
        lines.append(
            f"     receives {bytes_str(schedule.bytes_received)} a device ({bound}), "
            f"{seconds_str(schedule.seconds)}, peak {bytes_str(schedule.peak_bytes)}"
        )
        lines += [f"     - {step_str(mesh, step)}" for step in schedule.steps]
        lines.append(f"     for {_uses_str(plan, move)}")
        if schedule.alternatives:
            best = schedule.alternatives[0]
            lines.append(
                f"     next best: {best.family}, {bytes_str(best.bytes_received)}, "
                f"{seconds_str(best.seconds)}"
            )
    return "\n".join(lines)


def _decisions(plan: Plan) -> str:
    lines = ["why"]
    shown = sorted(plan.decisions, key=_weight, reverse=True)[:MAX_DECISIONS]
    for decision in sorted(shown, key=lambda d: d.op):
        op = plan.program.ops[decision.op]
        lines.append(f"  {op.name.split('.')[-1]} ({op.location})")
        for option in decision.options:
            mark = "*" if option.chosen else " "
            lines.append(
                f"   {mark} {option.name}: receives "
                f"{bytes_str(option.bytes_received)}, {seconds_str(option.seconds)} "
                f"(compute {seconds_str(option.compute_seconds)})"
            )
            lines.append(f"       {option.detail}")
    more = len(plan.decisions) - len(shown)
    if more:
        lines.append(f"  and {more} lighter choices, which the JSON form lists")
    return "\n".join(lines)


def _weight(decision: Decision) -> float:
    """Seconds that the choice takes, its moves included."""
    return max(option.seconds for option in decision.options if option.chosen)


def value_name(plan: Plan, value: int) -> str:
    """How messages call a value: its input's name or the op that makes it."""
    program = plan.program
    if value in program.inputs:
        return program.input_names[program.inputs.index(value)]
    for op in program.ops:
        if value in op.results:
            return f"{op.name.split('.')[-1]} ({op.location})"
    return f"value {value}"


def _uses_str(plan: Plan, move: Move) -> str:
    program = plan.program
    words = []
    for op, operand in move.uses[:3]:
        if op < 0:
            words.append(f"result {operand}")
        else:
            used = program.ops[op]
            words.append(f"{used.name.split('.')[-1]} ({used.location})")
    more = len(move.uses) - len(words)
    return "; ".join(words) + (f" and {more} more" if more > 0 else "")


# The same as data -----------------------------------------------------------


def _value_dict(plan: Plan, value: int, layout: Layout, name: str) -> dict[str, Any]:
    type_ = plan.program.values[value]
    return {
        "name": name,
        "type": str(type_),
        "layout": str(layout),
        "tile": str(TensorType(layout.tile_shape(type_.shape), type_.dtype)),
    }


def _op_dict(plan: Plan, index: int) -> dict[str, Any]:
    program = plan.program
    op = program.ops[index]
    tiles = [
        str(TensorType(layout.tile_shape(t.shape), t.dtype))
        for layout, t in zip(plan.needs[index], program.operand_types(op), strict=True)
    ]
    (result,) = program.result_types(op)
    made = plan.made[op.results[0]]
    return {
        "op": op.name,
        "location": str(op.location),
        "operand_tiles": tiles,
        "result_tile": str(TensorType(made.tile_shape(result.shape), result.dtype)),
        "result_layout": str(made),
    }


def _move_dict(plan: Plan, move: Move) -> dict[str, Any]:
    schedule = move.schedule
    mesh = plan.program.mesh
    return {
        "value": value_name(plan, move.value),
        "type": str(plan.program.values[move.value]),
        "source": str(move.source),
        "target": str(move.target),
        "family": schedule.family,
        "steps": [step_str(mesh, step) for step in schedule.steps],
        "bytes_received": schedule.bytes_received,
        "lower_bound": schedule.lower_bound,
        "peak_bytes": schedule.peak_bytes,
        "seconds": schedule.seconds,
        "for": _uses_str(plan, move),
        "alternatives": [
            {
                "family": a.family,
                "bytes_received": a.bytes_received,
                "seconds": a.seconds,
            }
            for a in schedule.alternatives
        ],
    }


def _decision_dict(plan: Plan, decision: Decision) -> dict[str, Any]:
    op = plan.program.ops[decision.op]
    return {
        "op": op.name,
        "location": str(op.location),
        "options": [
            {
                "name": o.name,
                "detail": o.detail,
                "bytes_received": o.bytes_received,
                "seconds": o.seconds,
                "compute_seconds": o.compute_seconds,
                "chosen": o.chosen,
            }
            for o in decision.options
        ],
    }
