"""Planning time of the MLP training step, cold and warm.

    python benchmarks/planning.py

Cold is the first plan of the process; warm repeats it, with schedules and rules cached.
"""

import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import jax
import mlp_train
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw


def main() -> None:
    mesh = mlp_train.make_mesh()
    state, batches = mlp_train.start(mesh)
    out = (mlp_train.shardings(mesh)[0], NamedSharding(mesh, P()))
    for topology in ("cpu-8", "h100-8", "tpu-v5e-2x4"):
        step = sw.jit(mlp_train.train_step, out_shardings=out)
        times = []
        for _ in range(4):
            start = time.perf_counter()
            planned = sw.plan(step, state, *batches[0], topology=topology)
            times.append(time.perf_counter() - start)
        plan = planned.plan
        warm = statistics.median(times[1:])
        shardy = dict(plan.incumbents)["shardy"]
        print(
            f"{topology}: {len(plan.program.ops)} ops, planned in {times[0]:.2f} s "
            f"cold, {warm:.2f} s warm\n"
            f"  receives {plan.bytes_received} B in {plan.num_collectives} "
            f"collectives; modelled {plan.seconds * 1e6:.1f} us, as Shardy propagates "
            f"{shardy * 1e6:.1f} us"
        )
    start = time.perf_counter()
    jax.jit(mlp_train.train_step, out_shardings=out).lower(state, *batches[0]).compile()
    seconds = time.perf_counter() - start
    print(f"jax.jit lowers and compiles the same step in {seconds:.2f} s")


if __name__ == "__main__":
    main()
