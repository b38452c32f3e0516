"""redistribute and plan_redistribution: device_put's result by the best schedule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw


def test_like_device_put(make_mesh):
    mesh = make_mesh(a=2, b=2, c=2)
    x = np.arange(256, dtype=np.float32).reshape(16, 16)
    specs = [P(), P("a"), P(("a", "b"), "c"), P("a", ("b", "c")), P(None, ("c", "a"))]
    for source in specs:
        placed = jax.device_put(x, NamedSharding(mesh, source))
        for target in specs:
            wanted = NamedSharding(mesh, target)
            moved = sw.redistribute(placed, wanted)
            np.testing.assert_array_equal(moved, x)
            assert moved.sharding.is_equivalent_to(wanted, 2)


def test_under_jit(make_mesh):
    mesh = make_mesh(a=2, b=2)
    x = jax.device_put(np.arange(16.0), NamedSharding(mesh, P(("a", "b"))))
    wanted = NamedSharding(mesh, P("b"))
    with pytest.raises(sw.LayoutError, match="NamedSharding"):
        jax.jit(lambda x: sw.redistribute(x, wanted))(x)


def test_plan_without_devices():
    mesh = AbstractMesh((64, 64), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    x = jax.ShapeDtypeStruct(
        (1 << 14, 1 << 14), jnp.bfloat16, sharding=NamedSharding(mesh, P("x", "y"))
    )
    schedule = sw.plan_redistribution(
        x, NamedSharding(mesh, P("y", "x")), topology="tpu-v5e-64x64"
    )
    assert schedule.bytes_received == schedule.lower_bound == (1 << 16) * 2
    assert schedule.steps
    assert schedule.seconds > 0


def test_errors_name_what_does_not_fit(make_mesh):
    mesh = make_mesh(x=4)
    x = jax.device_put(np.zeros(8), NamedSharding(mesh, P("x")))
    with pytest.raises(sw.LayoutError, match="no NamedSharding"):
        sw.redistribute(jnp.zeros(8), NamedSharding(mesh, P("x")))
    with pytest.raises(sw.LayoutError, match="same axes"):
        sw.redistribute(x, NamedSharding(make_mesh(y=4), P("y")))
    odd = jax.device_put(np.zeros((4, 6)), NamedSharding(mesh, P("x")))
    with pytest.raises(sw.LayoutError, match="does not divide shape"):
        sw.redistribute(odd, NamedSharding(mesh, P(None, "x")))
