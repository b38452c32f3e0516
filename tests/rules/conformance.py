"""Run an op's sample cut in every legal way and compare with the whole.

For each strategy the operands' tiles are cut in numpy, partial operands into uneven
parts; the op is localized as lowering does it; every device's result tile must be
the whole result's, after joining what is partial. All strategies of a sample on a
mesh are compiled as one program.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shardwright.capture import program_from_module
from shardwright.jaxlib_bindings import func, ir, module_bytes, parse_module
from shardwright.program import Layout, Mesh, Rule, Strategy, SubAxis, TensorType, ways
from shardwright.rules import (
    Call,
    Emitter,
    Entry,
    Local,
    Sample,
    call_of,
    localize,
    rule_of,
)
from shardwright.runtime.call import sharded_call
from shardwright.runtime.dtypes import jax_dtype

MAX_STRATEGIES = 48

Array = np.ndarray[Any, Any]


def mesh_of(text: str) -> Mesh:
    """A mesh from its sizes: "2x2x2"."""
    sizes = map(int, text.split("x"))
    return Mesh(tuple(zip("abcd", sizes, strict=False)))


def sample_module(entry: Entry, sample: Sample) -> ir.Module:
    """A module whose main is the one op of the sample."""
    left, _, right = sample.types.partition("->")
    ins = [f"tensor<{t.strip()}>" for t in left.split(",") if t.strip()]
    outs = [f"tensor<{t.strip()}>" for t in right.split(",")]
    arguments = ", ".join(f"%arg{i}: {t}" for i, t in enumerate(ins))
    operands = ", ".join(f"%arg{i}" for i in range(len(ins)))
    names = ", ".join(f"%r#{i}" for i in range(len(outs)))
    region = f" ({{{sample.regions}}})" if sample.regions else ""
    name = entry.name.partition("@")[0]
    text = (
        f"func.func @main({arguments}) -> ({', '.join(outs)}) {{\n"
        f'  %r:{len(outs)} = "{name}"({operands}){region} {{{sample.attributes}}} : '
        f"({', '.join(ins)}) -> ({', '.join(outs)})\n"
        f"  return {names} : {', '.join(outs)}\n}}"
    )
    return parse_module(text)


@dataclasses.dataclass(frozen=True)
class Probe:
    """A sample as a call, with its values and the whole op's results."""

    name: str
    call: Call
    source: ir.Operation
    module: ir.Module
    operands: tuple[Array, ...]
    results: tuple[Array, ...]

    @property
    def rule(self) -> Rule:
        return rule_of(self.call)


@functools.cache
def probe(entry: Entry, index: int) -> Probe:
    """Run the sample as it is, on one device."""
    sample = entry.samples[index]
    module = sample_module(entry, sample)
    whole = module_bytes(module)
    program = program_from_module(module)
    (op,) = program.ops
    call = call_of(program, op)
    name = f"{entry.name}[{index}]"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    operands = tuple(random(rng, t, sample) for t in call.operands)
    tiles = [(t.shape, t.dtype) for t in call.results]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("one",))
    specs = [PartitionSpec()]
    run = sharded_call(whole, mesh, specs * len(operands), specs * len(tiles), tiles)
    results = tuple(np.asarray(r) for r in jax.jit(run)(*operands))
    (source,) = program.source.ops
    return Probe(name, call, source, module, operands, results)


def random(rng: np.random.Generator, type_: TensorType, sample: Sample) -> Array:
    dtype = jax_dtype(type_.dtype)
    if np.issubdtype(dtype, np.integer) or dtype.kind == "b" or sample.high == 2:
        return rng.integers(sample.low, sample.high, type_.shape).astype(dtype)
    if type_.dtype == "bf16":  # parts of few bits add up without rounding
        return rng.integers(sample.low, sample.high, type_.shape).astype(dtype)
    values = rng.uniform(sample.low, sample.high, type_.shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.uniform(sample.low, sample.high, type_.shape)
    return np.asarray(values).astype(dtype)


# Strategies -------------------------------------------------------------------


def strategies(rule: Rule, mesh: Mesh) -> list[Strategy]:
    """Every even assignment of axes and halves of axes to factors and partial rows."""
    found: dict[Strategy, None] = {}
    for axes in axis_sets(mesh):
        choices = (None, *rule.free_factors, *rule.partial)
        for choice in itertools.product(choices, repeat=len(axes)):
            for order in (axes, axes[::-1]):
                made = strategy_of(rule, dict(zip(order, choice, strict=True)))
                if made is not None:
                    found.setdefault(made)
    every = list(found)
    if len(every) <= MAX_STRATEGIES:
        return every
    rng = np.random.default_rng(len(every))
    keep = sorted(rng.choice(len(every), MAX_STRATEGIES, replace=False))
    return [every[i] for i in keep]


def axis_sets(mesh: Mesh) -> Iterator[tuple[SubAxis, ...]]:
    """The whole axes, and the same with one of four or more ways in halves."""
    whole = mesh.whole_axes()
    yield whole
    for axis in whole:
        if axis.size >= 4 and axis.size % 2 == 0:
            halves = (SubAxis(axis.name, 2, 1), SubAxis(axis.name, axis.size // 2, 2))
            yield tuple(a for a in whole if a != axis) + halves


def strategy_of(rule: Rule, choice: dict[SubAxis, Any]) -> Strategy | None:
    cuts: dict[str, tuple[SubAxis, ...]] = {}
    rows: dict[Any, tuple[SubAxis, ...]] = {}
    for axis, target in choice.items():
        if isinstance(target, str):
            cuts[target] = (*cuts.get(target, ()), axis)
        elif target is not None:
            rows[target] = (*rows.get(target, ()), axis)
    if len({row.result for row in rows}) > 1:
        return None
    if any(rule.size(f) % ways(axes) for f, axes in cuts.items()):
        return None
    return Strategy.of(rule, cuts, list(rows.items()))


# Tiles ------------------------------------------------------------------------


def tiles_of(whole: Array, layout: Layout, rng: np.random.Generator) -> Array:
    """Every device's tile, [device, *tile]; uneven parts where it is partial."""
    mesh = layout.mesh
    parts = [whole] * mesh.num_devices
    for axis, reducer in layout.partial:
        parts = split_parts(parts, mesh, axis, reducer, rng)
    shape = layout.view_shape(whole.shape)
    tile = layout.tile_shape(whole.shape)
    return np.stack(
        [
            part.reshape(shape)[slices(layout, whole.shape, p)].reshape(tile)
            for p, part in enumerate(parts)
        ]
    )


def slices(layout: Layout, shape: Sequence[int], position: int) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in layout.tile_box(shape, position))


def split_parts(
    values: list[Array],
    mesh: Mesh,
    axis: SubAxis,
    reducer: str,
    rng: np.random.Generator,
) -> list[Array]:
    """Uneven parts along one axis that reduce to the value, alike for other axes.

    Which member holds an element's value, the others falling short of it, is drawn
    for each element, so that parts of two operands do not go together by chance.
    """
    shape = values[0].shape
    owners = rng.integers(0, axis.size, shape)
    noises = rng.integers(0, 3, (axis.size, *shape))
    result = []
    for p, value in enumerate(values):
        member = mesh.coordinate(p, axis)
        noise = noises[member]
        match reducer:
            case "sum":
                part = value - noises[1:].sum(0) if member == 0 else noise
            case "max":
                part = np.where(owners == member, value, value - noise)
            case "min":
                part = np.where(owners == member, value, value + noise)
            case "prod":
                part = np.where(owners == member, value, np.ones_like(value))
            case "or":
                part = np.where(owners == member, value, value & (noise > 1))
            case _:
                part = np.where(owners == member, value, value | (noise > 1))
        result.append(np.asarray(part).astype(value.dtype))
    return result


_JOIN = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def joined(tiles: Array, layout: Layout) -> Array:
    """Each device's tile with its partial groups reduced, [device, *tile]."""
    mesh = layout.mesh
    for axis, reducer in layout.partial:
        after = np.empty_like(tiles)
        for p in range(mesh.num_devices):
            base = p - mesh.coordinate(p, axis) * mesh.stride(axis)
            group = [tiles[base + k * mesh.stride(axis)] for k in range(axis.size)]
            after[p] = functools.reduce(_JOIN[reducer], group)
        tiles = after
    return tiles


# Running ------------------------------------------------------------------------


def run_strategies(
    found: Probe, mesh: Mesh, chosen: Sequence[Strategy]
) -> Iterator[tuple[Strategy, list[Array], list[Layout]]]:
    """Result tiles of every strategy, [device, *tile] each, with their layouts."""
    rng = np.random.default_rng(7)
    rule, call = found.rule, found.call
    inputs: list[Array] = []
    shapes: list[tuple[tuple[int, ...], str]] = []
    made: list[list[Layout]] = []
    for strategy in chosen:
        for j, value in enumerate(found.operands):
            layout = strategy.operand_layout(rule, mesh, j)
            inputs.append(tiles_of(value, layout, rng))
        layouts = [
            strategy.result_layout(rule, mesh, j) for j in range(len(call.results))
        ]
        made.append(layouts)
        for layout, type_ in zip(layouts, call.results, strict=True):
            shapes.append(((1, *layout.tile_shape(type_.shape)), type_.dtype))
    module = local_module(found, mesh, chosen, inputs, shapes)
    results = iter(run_module(module, mesh, inputs, shapes))
    for strategy, layouts in zip(chosen, made, strict=True):
        yield strategy, [next(results) for _ in layouts], layouts


def local_module(
    found: Probe,
    mesh: Mesh,
    chosen: Sequence[Strategy],
    inputs: Sequence[Array],
    shapes: Sequence[tuple[tuple[int, ...], str]],
) -> bytes:
    context = found.module.context
    operand_types = [t.dtype for t in found.call.operands] * len(chosen)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        emitter = Emitter(mesh, context)
        ins = [
            emitter.type((1, *x.shape[1:]), dtype)
            for x, dtype in zip(inputs, operand_types, strict=True)
        ]
        outs = [emitter.type(shape, dtype) for shape, dtype in shapes]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", (ins, outs))
        with ir.InsertionPoint(main.add_entry_block()):
            arguments = iter(zip(main.arguments, inputs, strict=True))
            results = []
            sizes = iter(shapes)
            for strategy in chosen:
                operands = [next(arguments) for _ in found.call.operands]
                tiles = tuple(emitter.reshape(a, x.shape[1:]) for a, x in operands)
                wanted = [next(sizes)[0] for _ in found.call.results]
                local = Local(
                    emitter,
                    found.source,
                    found.call,
                    found.rule,
                    strategy,
                    tiles,
                    tuple(shape[1:] for shape in wanted),
                )
                for value, shape in zip(localize(local), wanted, strict=True):
                    results.append(emitter.reshape(value, shape))
            func.ReturnOp(results)
    assert module.operation.verify()
    return module_bytes(module)


def run_module(
    module: bytes,
    mesh: Mesh,
    inputs: Sequence[Array],
    shapes: Sequence[tuple[tuple[int, ...], str]],
) -> list[Array]:
    devices = np.array(jax.devices()[: mesh.num_devices], dtype=object)
    flat = jax.sharding.Mesh(devices, ("all",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("all")
    specs = [spec] * len(inputs)
    run = sharded_call(module, flat, specs, [spec] * len(shapes), shapes)
    placed = jax.device_put(list(inputs), NamedSharding(flat, spec))
    return [np.asarray(r) for r in jax.jit(run)(*placed)]


def check(found: Probe, mesh: Mesh, chosen: Sequence[Strategy]) -> None:
    """Raise an AssertionError that names the strategy whose result is wrong."""
    for strategy, results, layouts in run_strategies(found, mesh, chosen):
        for tiles, layout, whole in zip(results, layouts, found.results, strict=True):
            reduced = layout.without_partial()
            expected = tiles_of(whole, reduced, np.random.default_rng())
            np.testing.assert_allclose(
                joined(tiles, layout),
                expected,
                rtol=2e-5,
                atol=1e-4,
                err_msg=f"{found.name} on {mesh}: {strategy} ({found.rule})",
            )
