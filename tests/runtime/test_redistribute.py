"""redistribute and plan_redistribution: device_put's result by the best schedule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw
from shardwright.redistribution import check_schedule
from tests.redistribution.problems import BYTES

TOPOLOGIES = pytest.mark.parametrize("topology", [None, "cpu"])
"""Copies through the host's memory, and the schedule for a named machine."""


@TOPOLOGIES
def test_like_device_put(make_mesh, topology):
    mesh = make_mesh(a=2, b=2, c=2)
    x = np.arange(256, dtype=np.float32).reshape(16, 16)
    specs = [P(), P("a"), P(("a", "b"), "c"), P("a", ("b", "c")), P(None, ("c", "a"))]
    for source in specs:
        placed = jax.device_put(x, NamedSharding(mesh, source))
        for target in specs:
            wanted = NamedSharding(mesh, target)
            moved = sw.redistribute(placed, wanted, topology=topology)
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
    with pytest.raises(sw.LayoutError, match="moves jax arrays, not ndarray"):
        sw.redistribute(np.zeros(8), NamedSharding(mesh, P("x")))
    with pytest.raises(sw.PlanError, match="room a device at least"):
        sw.redistribute(x, NamedSharding(mesh, P()), max_bytes=-1)
    odd = jax.device_put(np.zeros((4, 6)), NamedSharding(mesh, P("x")))
    with pytest.raises(sw.LayoutError, match="does not divide shape"):
        sw.redistribute(odd, NamedSharding(mesh, P(None, "x")))


def own_order(sizes, names, order):
    devices = np.array([jax.devices()[i] for i in order], dtype=object)
    kinds = (AxisType.Auto,) * len(sizes)
    return Mesh(devices.reshape(sizes), tuple(names), axis_types=kinds)


MESHES = {
    "2x2x2": ((2, 2, 2), "abc", range(8)),
    "4x2": ((4, 2), "xy", range(8)),
    "8": ((8,), "z", range(8)),
    "transposed": ((2, 4), "uv", (0, 4, 1, 5, 2, 6, 3, 7)),
    "scattered": ((4, 2), "xy", (4, 6, 0, 2, 7, 3, 1, 5)),
}


@pytest.mark.parametrize("target", MESHES)
@pytest.mark.parametrize("source", MESHES)
@TOPOLOGIES
def test_between_meshes(source: str, target: str, topology):
    x = np.arange(32 * 16, dtype=np.float32).reshape(32, 16)
    one, other = (own_order(*MESHES[name]) for name in (source, target))
    first, last = one.axis_names[0], one.axis_names[-1]
    start, stop = other.axis_names[0], other.axis_names[-1]
    for old in (P(first), P(None, last), P(one.axis_names), P()):
        placed = jax.device_put(x, NamedSharding(one, old))
        for new in (P(stop), P(None, start), P(None, other.axis_names), P()):
            wanted = NamedSharding(other, new)
            moved = sw.redistribute(placed, wanted, topology=topology)
            assert moved.sharding == wanted
            np.testing.assert_array_equal(moved, x)
            for shard in moved.addressable_shards:
                np.testing.assert_array_equal(shard.data, x[shard.index])
            schedule = sw.plan_redistribution(placed, wanted)
            check_schedule(schedule)
            assert schedule.bytes_received >= schedule.lower_bound


@TOPOLOGIES
def test_meshes_whose_sizes_do_not_nest(topology):
    one = own_order((2, 3), "ab", range(6))
    other = own_order((3, 2), "cd", range(6))
    x = np.arange(36.0).reshape(6, 6)
    placed = jax.device_put(x, NamedSharding(one, P("a", "b")))
    moved = sw.redistribute(
        placed, NamedSharding(other, P("c", "d")), topology=topology
    )
    np.testing.assert_array_equal(moved, x)
    # One launch moves more than is missing; where launches cost nothing, no byte is.
    few = sw.plan_redistribution(placed, moved.sharding)
    least = sw.plan_redistribution(placed, moved.sharding, topology=BYTES)
    assert few.num_collectives == 1
    assert least.bytes_received == least.lower_bound < few.bytes_received


@TOPOLOGIES
def test_trees(make_mesh, topology):
    mesh, other = make_mesh(x=4, y=2), make_mesh(z=8)
    tree = {
        "w": jax.device_put(np.ones((8, 8)), NamedSharding(mesh, P("x", "y"))),
        "b": [jax.device_put(np.arange(8), NamedSharding(mesh, P("x")))] * 2,
    }
    wanted = {
        "w": NamedSharding(other, P(None, "z")),
        "b": NamedSharding(other, P()),
    }
    moved = sw.redistribute(tree, wanted, topology=topology)
    assert moved["w"].sharding == wanted["w"]
    assert [b.sharding for b in moved["b"]] == [wanted["b"]] * 2
    jax.tree.map(np.testing.assert_array_equal, moved, tree)
