"""A training step: a 4-layer MLP with Adam on a (data, fsdp, tensor) mesh.

Runs 20 steps under jax.jit and under shardwright.jit from the same start and
compares the losses.

    python examples/mlp_train.py
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw

BATCH, WIDTH, HIDDEN, LAYERS = 256, 256, 1024, 4


def make_mesh() -> Mesh:
    return Mesh(
        np.array(jax.devices()[:8]).reshape(2, 2, 2), ("data", "fsdp", "tensor")
    )


def init_params() -> list[dict[str, jax.Array]]:
    sizes = [WIDTH, HIDDEN, WIDTH, HIDDEN, WIDTH]
    keys = jax.random.split(jax.random.key(0), LAYERS)
    return [
        {
            "w": jax.random.normal(key, (m, n)) / np.sqrt(m),
            "b": jnp.zeros((n,)),
        }
        for key, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def param_specs() -> list[dict[str, P]]:
    up = {"w": P("fsdp", "tensor"), "b": P("tensor")}
    down = {"w": P("tensor", "fsdp"), "b": P("fsdp")}
    return [up, down, up, down]


def forward(params: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for i, layer in enumerate(params):
        x = x @ layer["w"] + layer["b"]
        if i + 1 < len(params):
            x = jax.nn.relu(x)
    return x


def loss_fn(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((forward(params, x) - y) ** 2)


def train_step(state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, jax.Array]:
    """One step of Adam."""
    params, m, v, count = state
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    count = count + 1
    b1, b2, rate, eps = 0.9, 0.999, 1e-4, 1e-8
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    t = count.astype(jnp.float32)
    fix1, fix2 = 1 - b1**t, 1 - b2**t

    def update(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - rate * (m / fix1) / (jnp.sqrt(v / fix2) + eps)

    return (jax.tree.map(update, params, m, v), m, v, count), loss


def shardings(mesh: Mesh) -> tuple[Any, NamedSharding]:
    def place(spec: P) -> NamedSharding:
        return NamedSharding(mesh, spec)

    specs = jax.tree.map(place, param_specs(), is_leaf=lambda s: isinstance(s, P))
    return (specs, specs, specs, place(P())), place(P(("data", "fsdp"), None))


def start(mesh: Mesh) -> tuple[Any, list[tuple[jax.Array, jax.Array]]]:
    state_shardings, batch_sharding = shardings(mesh)
    params = init_params()
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (params, zeros, zeros, jnp.zeros((), jnp.int32))
    rng = np.random.default_rng(1)
    target = rng.standard_normal((WIDTH, WIDTH), np.float32) / np.sqrt(WIDTH)
    batches = []
    for _ in range(4):
        x = rng.standard_normal((BATCH, WIDTH), np.float32)
        pair = jax.device_put((x, np.tanh(x @ target)), batch_sharding)
        batches.append(pair)
    return jax.device_put(state, state_shardings), batches


def run(jit: Callable[..., Any], mesh: Mesh, steps: int) -> list[float]:
    """Losses of `steps` steps with `train_step` jitted by `jit`."""
    state, batches = start(mesh)
    out = (shardings(mesh)[0], NamedSharding(mesh, P()))
    step = jit(train_step, out_shardings=out, donate_argnums=0)
    losses = []
    for i in range(steps):
        state, loss = step(state, *batches[i % len(batches)])
        losses.append(float(loss))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    mesh = make_mesh()
    state, batches = start(mesh)
    out = (shardings(mesh)[0], NamedSharding(mesh, P()))
    planned = sw.plan(sw.jit(train_step, out_shardings=out), state, *batches[0])
    print(planned.explain())
    ours, theirs = run(sw.jit, mesh, steps), run(jax.jit, mesh, steps)
    print("step  loss under shardwright.jit  under jax.jit")
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        print(f"{i:4d}  {a:.8f}                  {b:.8f}")
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    print(f"largest relative difference: {worst:.2g}")
    if worst > 1e-4:
        raise SystemExit("the losses differ by more than round-off")


if __name__ == "__main__":
    main()
