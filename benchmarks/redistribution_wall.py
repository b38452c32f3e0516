"""Seconds on the CPU: our moves of 64 MiB arrays beside JAX's own.

    python benchmarks/redistribution_wall.py                  # 40 moves, 8 devices

Seeded random changes of sharding on meshes 2x2x2, 2x4, 4x2 and 8 over eight virtual
devices, a third of them to a mesh in another device order. `jax.device_put` and a
compiled identity (`jax.jit(lambda x: x, out_shardings=...)`) move the same array in the
same process; each is timed in turn, several rounds, and the medians are compared.
Ours is timed as called by default, which on CPU devices copies through the host's
memory, and with the schedule's collectives as XLA runs them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shardwright as sw

GRIDS = ((2, 2, 2), (2, 4), (4, 2), (8,))
ARRAY_BYTES = 64 << 20
JAXS = ("device_put", "jit")


def random_spec(rng: random.Random, mesh: Mesh, rank: int) -> PartitionSpec:
    axes = list(mesh.axis_names)
    rng.shuffle(axes)
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis in axes:
        if rng.random() < 0.8:
            dims[rng.randrange(rank)].append(axis)
    return PartitionSpec(*(tuple(d) or None for d in dims))


def random_move(
    rng: random.Random,
) -> tuple[tuple[int, ...], NamedSharding, NamedSharding]:
    """A shape of 64 MiB in float32, and two shardings that differ."""
    sizes = rng.choice(GRIDS)
    names = tuple("abc"[: len(sizes)])
    devices = np.array(jax.devices()[:8], dtype=object)
    mesh = Mesh(devices.reshape(sizes), names)
    other = mesh
    if rng.random() < 1 / 3:
        order = list(range(8))
        rng.shuffle(order)
        other = Mesh(devices[order].reshape(sizes), names)
    rank = rng.randint(1, 3)
    bits = (ARRAY_BYTES // 4).bit_length() - 1  # elements, as a power of two
    cuts = sorted(rng.sample(range(1, bits), rank - 1))
    powers = [b - a for a, b in zip([0, *cuts], [*cuts, bits], strict=True)]
    if min(powers) < 3:
        return random_move(rng)
    source = NamedSharding(mesh, random_spec(rng, mesh, rank))
    target = NamedSharding(other, random_spec(rng, other, rank))
    shape = tuple(1 << p for p in powers)
    if source.is_equivalent_to(target, rank):
        return random_move(rng)
    return shape, source, target


Mover = Callable[[jax.Array], jax.Array]


def movers(source: NamedSharding, target: NamedSharding) -> dict[str, Mover]:
    """The ways to move an array; jax.jit takes arrays of one device order alone."""
    ways: dict[str, Mover] = {
        "ours": lambda x: sw.redistribute(x, target),
        "schedule": lambda x: sw.redistribute(x, target, topology="cpu-8"),
        "device_put": lambda x: jax.device_put(x, target),
    }
    if source.mesh.devices.tolist() == target.mesh.devices.tolist():
        ways["jit"] = jax.jit(lambda x: x, out_shardings=target)
    return ways


def fresh(x: jax.Array) -> jax.Array:
    """A copy that nobody has read on the host: JAX keeps what was, and moves that."""
    return jax.block_until_ready(jax.numpy.copy(x))


def seconds(move: Mover, x: jax.Array) -> float:
    start = time.perf_counter()
    jax.block_until_ready(move(x))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    rows = []
    for i in range(options.moves):
        shape, source, target = random_move(rng)
        whole = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        x = jax.device_put(whole, source)
        ways = movers(source, target)
        for move in ways.values():
            np.testing.assert_array_equal(move(fresh(x)), whole)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, move in ways.items():
                times[name].append(seconds(move, fresh(x)))
        medians = {name: statistics.median(t) for name, t in times.items()}
        best = min(t for name, t in medians.items() if name in JAXS)
        plan = sw.plan_redistribution(x, target)
        row = {
            "shape": shape,
            "source": str(source.spec),
            "target": str(target.spec),
            "mesh": dict(source.mesh.shape),
            "reordered": "jit" not in ways,
            "steps": [type(step).__name__ for step in plan.steps],
            **medians,
            "ratio": medians["ours"] / best,
        }
        rows.append(row)
        others = "  ".join(
            f"{name} {t * 1e3:7.1f} ms" for name, t in medians.items() if name != "ours"
        )
        print(
            f"{i:3} ours {medians['ours'] * 1e3:7.1f} ms  {others}  ratio "
            f"{row['ratio']:.3f}  {shape} {source.spec} -> {target.spec} "
            f"{'reordered ' * ('jit' not in ways)}{','.join(row['steps'])}",
            flush=True,
        )
    summary = {}
    for mine, name in itertools.product(("ours", "schedule"), JAXS):
        ratios = [r[mine] / r[name] for r in rows if name in r]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        summary[f"{mine} / {name}"] = {
            "moves": len(ratios),
            "geo": mean,
            "worst": max(ratios),
        }
        print(
            f"{mine} / {name}: {len(ratios)} moves, geometric mean {mean:.3f}, "
            f"worst {max(ratios):.3f}"
        )
    ratios = [r["ratio"] for r in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    summary["best of both"] = {"moves": len(ratios), "geo": mean, "worst": max(ratios)}
    print(
        f"ours / the faster of both: geometric mean {mean:.3f}, worst {max(ratios):.3f}"
    )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rows": rows, "summary": summary}, file, indent=2)


if __name__ == "__main__":
    main()
