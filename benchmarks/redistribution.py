"""Random reshards: our schedules beside Shardy's own collectives and the bound.

    python benchmarks/redistribution.py                 # 500 problems
    python benchmarks/redistribution.py --problems 50 --json out.json

Each problem is an even reshard between two random layouts on a random mesh, ranks 1
to 4. Shardy's steps come from its pass `sdy-reshard-to-collectives`, in the same
process, counted and priced by the same functions as ours. Every schedule of ours is
checked exactly by index sets. Two machines: `bytes`, on which only bytes cost, and
H100 nodes. On the CPU, `--run N` also runs N of them on virtual devices.
"""

import argparse
import dataclasses
import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=16")

import numpy as np

from shardwright.capture import from_sdy, meshes_of_module
from shardwright.jaxlib_bindings import find_main, operations, parse_module, run_passes
from shardwright.program import (
    AllGather,
    AllToAll,
    Layout,
    Mesh,
    Permute,
    Schedule,
    Shuffle,
    Slice,
    Step,
    SubAxis,
    step_result_shape,
    ways,
)
from shardwright.redistribution import check_schedule, plan_schedule
from shardwright.topology import (
    Switched,
    Topology,
    preset,
    schedule_seconds,
    step_bytes,
)

SMALL = ((2, 2, 2), (2, 4), (4, 2), (2, 3), (2, 2, 3))
ON_PAPER = ((4, 2, 2), (4, 4), (2, 2, 2, 2), (4, 4, 4), (8, 8), (2, 4, 8), (16, 4))
TILE_ELEMENTS = 1 << 22


@dataclasses.dataclass(frozen=True)
class Case:
    shape: tuple[int, ...]
    source: Layout
    target: Layout

    @property
    def mesh(self) -> Mesh:
        return self.source.mesh


def random_case(rng: random.Random, grids: Sequence[tuple[int, ...]]) -> Case:
    """Two layouts on a mesh, and a shape whose dims all cuts divide."""
    sizes = rng.choice(grids)
    mesh = Mesh(tuple(zip("abcd", sizes, strict=False)))
    rank = rng.randint(1, 4)
    source, target = (random_layout(rng, mesh, rank) for _ in range(2))
    unit = [
        math.lcm(ways(a), ways(b))
        for a, b in zip(source.dims, target.dims, strict=True)
    ]
    tile = math.prod(unit) // mesh.num_devices or 1
    grow = max(1, round((TILE_ELEMENTS / tile) ** (1 / rank)))
    return Case(tuple(n * grow for n in unit), source, target)


def random_layout(rng: random.Random, mesh: Mesh, rank: int) -> Layout:
    axes = list(mesh.whole_axes())
    rng.shuffle(axes)
    dims: list[list[SubAxis]] = [[] for _ in range(rank)]
    for axis in axes:
        if rng.random() < 0.75:
            dims[rng.randrange(rank)].append(axis)
    return Layout(mesh, tuple(map(tuple, dims)))


# Shardy ----------------------------------------------------------------------


def received(steps: Sequence[Step], tile: tuple[int, ...]) -> int:
    """Bytes that the busiest device receives."""
    total = 0
    for step in steps:
        total += step_bytes(step, tile, "f32")
        tile = step_result_shape(step, tile)
    return total


def shardy_steps(case: Case) -> list[Step]:
    """The collectives of Shardy's own pass."""
    axes = ", ".join(f'"{n}"={s}' for n, s in case.mesh.axes)
    tensor = f"tensor<{'x'.join(map(str, case.shape))}xf32>"
    source, target = sdy_text(case.source), sdy_text(case.target)
    module = parse_module(
        f"sdy.mesh @m = <[{axes}]>\n"
        f"func.func @main(%x: {tensor} {{sdy.sharding = #sdy.sharding<@m, {source}>}}) "
        f"-> {tensor} {{\n  %0 = sdy.reshard %x <@m, {target}> : {tensor}\n"
        f"  return %0 : {tensor}\n}}"
    )
    run_passes(module, "func.func(sdy-reshard-to-collectives)")
    meshes = meshes_of_module(module)
    before = case.source
    steps: list[Step] = []
    for op in operations(find_main(module).regions[0].blocks[0]):
        if op.name == "func.return":
            break
        after = from_sdy(op.attributes["out_sharding"], meshes).layout
        steps += to_steps(op.name, before, after, case.shape)
        before = after
    return steps


def sdy_text(layout: Layout) -> str:
    dims = ("{" + ", ".join(f'"{a.name}"' for a in axes) + "}" for axes in layout.dims)
    return f"[{', '.join(dims)}]"


def senders(
    before: Layout, after: Layout, shape: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Each device is sent its new tile by a holder, by itself where it has it."""
    everyone = range(before.mesh.num_devices)
    held = [before.tile_box(shape, p) for p in everyone]
    wanted = [after.tile_box(shape, p) for p in everyone]
    spare: dict[Any, list[int]] = {}
    for p in everyone:
        if held[p] != wanted[p]:
            spare.setdefault(held[p], []).append(p)
    return tuple(
        (p if held[p] == box else spare[box].pop(0), p) for p, box in enumerate(wanted)
    )


def to_steps(
    name: str, before: Layout, after: Layout, shape: tuple[int, ...]
) -> Iterator[Step]:
    """One of Shardy's collectives in our terms, for counting and pricing alone."""
    lost = [difference(b, a) for b, a in zip(before.dims, after.dims, strict=True)]
    won = [difference(a, b) for b, a in zip(before.dims, after.dims, strict=True)]
    match name:
        case "sdy.all_slice":
            for dim, axes in enumerate(won):
                if axes:
                    yield Slice(dim, axes)
        case "sdy.all_gather":
            dims = [d for d, axes in enumerate(lost) if axes]
            yield AllGather(dims[0], sum(lost, ()))
            if len(dims) > 1:  # chunks of one gather over several dims are put in place
                yield joined(after.tile_shape(shape))
        case "sdy.all_to_all":
            source = next(d for d, axes in enumerate(lost) if axes)
            target = next(d for d, axes in enumerate(won) if axes)
            yield AllToAll(target, source, sum(lost, ()))
        case "sdy.collective_permute":
            yield Permute(before.mesh.whole_axes(), senders(before, after, shape))
        case _:
            raise ValueError(f"unknown collective {name}")


def joined(tile: tuple[int, ...]) -> Step:
    """A transpose of the tile, for its price alone."""
    return Shuffle((tile[0], math.prod(tile[1:])), (1, 0), tile)


def difference(
    one: tuple[SubAxis, ...], other: tuple[SubAxis, ...]
) -> tuple[SubAxis, ...]:
    """Axes past what the shorter, common prefix holds."""
    total, common = ways(one), ways(other)
    if total <= common:
        return ()
    left, found = common, []
    for axis in one:
        if left >= axis.size:
            left //= axis.size
            continue
        found.append(SubAxis(axis.name, axis.size // left, axis.pre * left))
        left = 1
    return tuple(found)


# Figures ----------------------------------------------------------------------


def bytes_only(num_devices: int) -> Topology:
    """A machine on which nothing but received bytes takes time."""
    network = Switched(num_devices, 1e9, 1e9, 0.0)
    flops = (("f32", 1e30),)
    return Topology(
        "bytes", num_devices, flops, 1e30, 1e12, network, "made up: bytes alone cost"
    )


def h100(num_devices: int) -> Topology:
    return preset(f"h100x8x{max(1, math.ceil(num_devices / 8))}")


def summary(ratios: Sequence[float]) -> dict[str, float]:
    return {
        "geometric_mean": math.exp(sum(map(math.log, ratios)) / len(ratios)),
        "worst": max(ratios),
        "above": sum(r > 1 + 1e-9 for r in ratios) / len(ratios),
    }


def run_on_devices(case: Case, topology: Topology) -> None:
    """Move a small array of the same layouts and compare every element."""
    import jax
    from jax.sharding import NamedSharding

    import shardwright as sw
    from shardwright.capture import to_partition_spec

    grow = max(1, TILE_ELEMENTS >> 18)
    shape = tuple(
        math.lcm(ways(a), ways(b)) * min(grow, 2)
        for a, b in zip(case.source.dims, case.target.dims, strict=True)
    )
    grid = np.array(jax.devices()[: case.mesh.num_devices], dtype=object)
    mesh = jax.sharding.Mesh(grid.reshape(case.mesh.sizes), case.mesh.names)
    source, target = (
        NamedSharding(mesh, to_partition_spec(layout))
        for layout in (case.source, case.target)
    )
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    y = sw.redistribute(jax.device_put(x, source), target, topology=topology)
    if not np.array_equal(np.asarray(y), x) or not y.sharding.is_equivalent_to(
        target, x.ndim
    ):
        raise SystemExit(f"wrong on devices: {case}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--run", type=int, default=50, help="run these many on devices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    figures: dict[str, Any] = {}
    found: dict[str, dict[str, list[float]]] = {
        name: {"ours": [], "shardy": [], "time": []} for name in ("bytes", "h100")
    }
    moving, ran, planning = 0, 0, []
    while moving < options.problems:
        case = random_case(rng, SMALL + ON_PAPER)
        start = time.perf_counter()
        schedules = {
            "bytes": plan(case, bytes_only(case.mesh.num_devices)),
            "h100": plan(case, h100(case.mesh.num_devices)),
        }
        planning.append(time.perf_counter() - start)
        for schedule in schedules.values():
            check_schedule(schedule)
        if not schedules["bytes"].lower_bound:
            continue
        moving += 1
        steps, begin = shardy_steps(case), case.source.tile_shape(case.shape)
        theirs = received(steps, begin)
        for name, schedule in schedules.items():
            machine = {"bytes": bytes_only, "h100": h100}[name](case.mesh.num_devices)
            seconds = schedule_seconds(machine, case.mesh, steps, begin, "f32")
            bound = schedule.lower_bound
            found[name]["ours"].append(schedule.bytes_received / bound)
            found[name]["shardy"].append(theirs / bound)
            found[name]["time"].append(schedule.seconds / seconds)
            if schedule.seconds > seconds * (1 + 1e-9):
                print(f"slower than Shardy on {name}: {case}")
        if ran < options.run and case.mesh.num_devices <= 12:
            run_on_devices(case, h100(case.mesh.num_devices))
            ran += 1
    print(f"{moving} problems, {ran} run on devices, every schedule checked exactly")
    print(
        f"planning: median {sorted(planning)[len(planning) // 2] * 1e3:.1f} ms for two"
    )
    for name, columns in found.items():
        print(f"machine {name}")
        for column, label in (
            ("ours", "our bytes / bound"),
            ("shardy", "Shardy's bytes / bound"),
            ("time", "our time / Shardy's"),
        ):
            row = summary(columns[column])
            figures[f"{name} {column}"] = row
            print(
                f"  {label:24} geometric mean {row['geometric_mean']:.4f}  "
                f"worst {row['worst']:.3f}  above 1 in {row['above']:.1%}"
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=2)


def plan(case: Case, topology: Topology) -> Schedule:
    return plan_schedule(case.shape, "f32", case.source, case.target, topology)


if __name__ == "__main__":
    main()
