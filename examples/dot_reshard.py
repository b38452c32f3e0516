"""The first case from Python: a matmul whose result is asked for in another layout.

python examples/dot_reshard.py            # f32[8192,8192]
python examples/dot_reshard.py --size 1024
"""

import argparse
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np

import shardwright as sw


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=8192)
    n = parser.parse_args().size

    sharding = sw.PositionalSharding(jax.devices()[:8])
    grid = sharding.reshape(4, 2)
    rng = np.random.default_rng(0)
    y_host, z_host = rng.standard_normal((2, n, n), np.float32)
    y = jax.device_put(y_host, grid.replicate(1))
    z = jax.device_put(z_host, grid.replicate(0))
    wanted = sharding.reshape(2, 4)

    def f(y: jax.Array, z: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(jnp.dot(y, z), wanted)

    step = sw.jit(f)
    result = step(y, z)

    for name, array in (("y", y), ("z", z), ("result", result)):
        print(f"{name}: tile {array.addressable_shards[0].data.shape} on each device")
        jax.debug.visualize_array_sharding(array, use_color=False)
    print(sw.plan(step, y, z).explain())

    want = y_host @ z_host
    error = np.abs(np.asarray(result) - want).max() / np.abs(want).max()
    print(f"largest difference from numpy: {error:.2g} of the largest entry")
    if error > 1e-5:
        raise SystemExit("the result is wrong")


if __name__ == "__main__":
    main()
