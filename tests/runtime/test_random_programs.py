"""Random programs of the ops we have rules for, against one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import shardwright as sw

GRIDS = {"2x2x2": (2, 2, 2), "2x4": (2, 4), "8": (8,), "2x3": (2, 3), "1x1": (1, 1)}
N = 24  # even on every mesh


@st.composite
def specs(draw: st.DrawFn, mesh: Mesh, rank: int) -> PartitionSpec:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(mesh.axis_names)):
        place = draw(st.integers(-1, rank - 1))
        if place >= 0 and N % (mesh.shape[name] * _ways(mesh, dims[place])) == 0:
            dims[place].append(name)
    return PartitionSpec(*(tuple(names) or None for names in dims))


def _ways(mesh: Mesh, names: list[str]) -> int:
    return int(np.prod([mesh.shape[name] for name in names]))


Step = Callable[[list[jax.Array]], jax.Array]


@st.composite
def steps(draw: st.DrawFn, mesh: Mesh | None, count: int) -> Step:
    """One op on values of shape (N, N) that gives another such value."""
    pick = st.integers(0, count - 1)
    i, j = draw(pick), draw(pick)
    scale = draw(st.sampled_from([0.5, -1.0, 2.0]))
    axis = draw(st.integers(0, 1))
    kind = draw(st.sampled_from(sorted(OPS)))
    if kind == "constraint":
        assert mesh is not None
        sharding = NamedSharding(mesh, draw(specs(mesh, 2)))
        return lambda xs: jax.lax.with_sharding_constraint(xs[i], sharding)
    op = OPS[kind]
    return lambda xs: op(xs[i], xs[j], axis, scale)


OPS: dict[str, Any] = {
    "add": lambda a, b, axis, s: a + s * b,
    "constraint": None,
    "dot": lambda a, b, axis, s: a @ b / N,
    "dot_transposed": lambda a, b, axis, s: jnp.einsum("ij,kj->ki", a, b) / N,
    "tanh": lambda a, b, axis, s: jnp.tanh(a),
    "where": lambda a, b, axis, s: jnp.where(a > b, a, s),
    "transpose": lambda a, b, axis, s: a.T,
    "center": lambda a, b, axis, s: a - a.mean(axis, keepdims=True),
    "softmax": lambda a, b, axis, s: jax.nn.softmax(a, axis),
    "max": lambda a, b, axis, s: a.max(axis, keepdims=True) + b,
    "reverse": lambda a, b, axis, s: jnp.flip(a, axis),
    "reshape": lambda a, b, axis, s: (a.reshape(4, 6, N) * s).reshape(N, N),
    "flatten": lambda a, b, axis, s: (a.reshape(-1) + s).reshape(N, N).T,
    "halves": lambda a, b, axis, s: jnp.concatenate([a[: N // 2], b[N // 2 :]]),
    "iota": lambda a, b, axis, s: a + s * jnp.arange(N, dtype=a.dtype) / N,
    "pad": lambda a, b, axis, s: jnp.pad(a[:, 2:], ((0, 0), (1, 1))),
    "bf16": lambda a, b, axis, s: a.astype(jnp.bfloat16).astype(jnp.float32),
    "any": lambda a, b, axis, s: a * (b > 3).any(axis, keepdims=True),
}


@settings(max_examples=40)
@given(st.data())
def test_random_program(data: st.DataObject):
    sizes = GRIDS[data.draw(st.sampled_from(sorted(GRIDS)))]
    grid = np.array(jax.devices()[: int(np.prod(sizes))], dtype=object).reshape(sizes)
    names = tuple("abc"[: len(sizes)])
    mesh = Mesh(grid, names, axis_types=(AxisType.Auto,) * len(sizes))
    program = [
        data.draw(steps(mesh, 2 + k)) for k in range(data.draw(st.integers(1, 8)))
    ]
    inputs = [NamedSharding(mesh, data.draw(specs(mesh, 2))) for _ in range(2)]
    output = NamedSharding(mesh, data.draw(specs(mesh, 2)))

    def f(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = [x, y]
        for step in program:
            values.append(step(values))
        return values[-1], values[-1].sum()

    rng = np.random.default_rng(0)
    host = rng.standard_normal((2, N, N)).astype(np.float32)
    placed = jax.device_put(tuple(host), tuple(inputs))
    machine = data.draw(st.sampled_from(["h100-8", "cpu-8", "tpu-v5e-16x16"]))
    step = sw.jit(f, out_shardings=(output, None), topology=machine)
    got = step(*placed)
    whole = NamedSharding(mesh, PartitionSpec())
    want = jax.jit(f)(*jax.device_put(tuple(host), whole))
    # bf16 turns a last bit into much more, so equality is up to its rounding.
    np.testing.assert_allclose(got[0], want[0], rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(got[1], want[1], rtol=2e-2, atol=1.0)
    assert got[0].sharding.is_equivalent_to(output, 2)
    plan = step.plan(*placed)
    assert plan.seconds <= dict(plan.incumbents)["shardy"] * (1 + 1e-9)
