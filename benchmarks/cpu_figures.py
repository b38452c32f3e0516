"""Measure what virtual CPU devices do: the figures of the `cpu` topology.

    python benchmarks/cpu_figures.py

Eight devices share this machine's cores. Prints, per size of tile, the time of each
collective, of a local copy and of a transpose, less that of an empty program, and the
arithmetic rate of a matmul on all devices at once.
"""

import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

N = 8


def median_seconds(f: Callable[[jax.Array], jax.Array], x: jax.Array) -> float:
    f(x).block_until_ready()
    times = []
    for _ in range(15):
        start = time.perf_counter()
        f(x).block_until_ready()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    mesh = Mesh(np.array(jax.devices()[:N]), ("x",))
    split = NamedSharding(mesh, P("x"))

    def on_tiles(f: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
        return jax.jit(
            jax.shard_map(
                f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False
            )
        )

    ring = [(i, (i + 1) % N) for i in range(N)]
    for kib in (1, 64, 1024, 8192):
        n = kib * 256
        x = jax.device_put(np.zeros((N, n), np.float32), split)
        programs = {
            "all-to-all": lambda y: jax.lax.all_to_all(
                y.reshape(N, -1), "x", 0, 0
            ).reshape(1, -1),
            "all-gather": lambda y: jax.lax.all_gather(y, "x", tiled=True)[:1],
            "all-reduce": lambda y: jax.lax.psum(y, "x"),
            "permute": lambda y: jax.lax.ppermute(y, "x", ring),
            "transpose": lambda y: (
                y.reshape(-1, 16, 16).transpose(1, 0, 2).reshape(1, -1)
            ),
            "copy": lambda y: y * 2,
        }
        empty = median_seconds(on_tiles(lambda y: y[:, :1] + 0), x)
        print(f"tile of {kib} KiB")
        for name, f in programs.items():
            seconds = median_seconds(on_tiles(f), x) - empty
            print(f"  {name:12} {seconds * 1e6:10.0f} us")
    square = jax.device_put(np.ones((N, 512, 512), np.float32), split)
    seconds = median_seconds(on_tiles(lambda a: (a[0] @ a[0])[None]), square)
    print(f"matmul: {2 * 512**3 / seconds / 1e9:.1f} Gflop/s a device")


if __name__ == "__main__":
    main()
