"""Wall clock of the first case on 8 CPU devices: shardwright.jit against jax.jit.

    python benchmarks/dot_reshard.py            # f32 2048 and 4096
    python benchmarks/dot_reshard.py --json out.json

Both run in one process on the same arrays, in turn; prints medians, the ratio, and
what XLA's memory_analysis says of each program.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np

import shardwright as sw


def program(n: int) -> tuple[Callable[..., Any], tuple[jax.Array, jax.Array]]:
    """The function and its arguments: a 4x2 product constrained to 2x4."""
    sharding = sw.PositionalSharding(jax.devices()[:8])
    grid, wanted = sharding.reshape(4, 2), sharding.reshape(2, 4)
    y, z = np.random.default_rng(0).standard_normal((2, n, n), np.float32)
    arrays = jax.device_put((y, z), (grid.replicate(1), grid.replicate(0)))
    return lambda y, z: jax.lax.with_sharding_constraint(jnp.dot(y, z), wanted), arrays


def measure(steps: dict[str, Any], arrays: Any, runs: int) -> dict[str, float]:
    """Median seconds of each step, run in turn so that noise falls on all alike."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        jax.block_until_ready(step(*arrays))
    for _ in range(runs):
        for name, step in steps.items():
            start = time.perf_counter()
            jax.block_until_ready(step(*arrays))
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    figures = []
    for n in options.sizes:
        f, arrays = program(n)
        steps = {"shardwright.jit": sw.jit(f), "jax.jit": jax.jit(f)}
        medians = measure(steps, arrays, options.runs)
        print(f"f32[{n},{n}], {options.runs} runs in turn, {jax.__version__=}")
        for name, step in steps.items():
            memory = step.lower(*arrays).compile().memory_analysis()
            row = {
                "size": n,
                "name": name,
                "median_seconds": medians[name],
                "temp_bytes": memory.temp_size_in_bytes,
                "output_bytes": memory.output_size_in_bytes,
            }
            figures.append(row)
            print(
                f"  {name:16} median {row['median_seconds'] * 1e3:9.2f} ms   "
                f"temp {row['temp_bytes'] / 1e6:8.2f} MB"
            )
        print(f"  ratio {medians['shardwright.jit'] / medians['jax.jit']:.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
