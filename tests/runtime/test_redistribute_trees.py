"""Sets of arrays, other devices, limits of memory: what redistribute does beside."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw
from shardwright.redistribution import check_schedule
from shardwright.runtime.movers import _program
from shardwright.runtime.redistribute import _buckets, _planned

TOPOLOGIES = pytest.mark.parametrize("topology", [None, "cpu"])
"""Copies through the host's memory, and the schedule for a named machine."""


def mesh_over(devices, shape, names) -> Mesh:
    grid = np.empty(len(devices), dtype=object)
    grid[:] = devices
    return Mesh(grid.reshape(shape), names)


def placed(x, mesh, *spec) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


@TOPOLOGIES
def test_from_and_to_one_device(make_mesh, topology):
    mesh = make_mesh(x=4, y=2)
    x = np.arange(16.0 * 24).reshape(16, 24)
    for device in (jax.devices()[0], jax.devices()[5]):
        alone = jax.device_put(0, device).sharding
        for spec in (P("x", "y"), P("y"), P(None, ("x", "y")), P()):
            wanted = NamedSharding(mesh, spec)
            spread = sw.redistribute(
                jax.device_put(x, alone), wanted, topology=topology
            )
            assert spread.sharding == wanted
            np.testing.assert_array_equal(spread, x)
            back = sw.redistribute(spread, alone, topology=topology)
            assert back.devices() == {device}
            np.testing.assert_array_equal(back, x)
            for a, b in ((alone, wanted), (wanted, alone)):
                given = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=a)
                check_schedule(sw.plan_redistribution(given, b))


@TOPOLOGIES
def test_to_other_devices(topology):
    devices = jax.devices()
    train = mesh_over(devices[:6], (2, 3), ("a", "b"))
    serve = mesh_over([devices[i] for i in (7, 2, 6, 0)], (4,), ("c",))
    x = np.arange(12 * 12, dtype=np.int32).reshape(12, 12)
    for old in (P("a", "b"), P(None, "b"), P()):
        for new in (P("c"), P(None, "c"), P()):
            wanted = NamedSharding(serve, new)
            moved = sw.redistribute(placed(x, train, *old), wanted, topology=topology)
            assert moved.sharding == wanted
            np.testing.assert_array_equal(moved, x)


def many(mesh) -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)
    tree = {}
    for i in range(12):
        shape = (8 * (i % 3 + 1), 16)
        bits = rng.integers(0, 2**32, shape, dtype=np.uint32)
        tree[f"w{i}"] = placed(bits.view(np.float32), mesh, "x", "y")
        tree[f"b{i}"] = placed(rng.integers(-9, 9, shape[:1]), mesh, ("x", "y"))
    return tree


@pytest.mark.parametrize("spec", [P("y"), P(), P("y", "x"), P(("y", "x"))])
def test_small_arrays_move_together(make_mesh, spec):
    mesh = make_mesh(x=2, y=4)
    tree = many(mesh)
    wanted = {
        name: NamedSharding(mesh, spec if x.ndim == 2 else P("y"))
        for name, x in tree.items()
    }
    moved = sw.redistribute(tree, wanted, topology="h100-8")
    for name, x in tree.items():
        assert moved[name].sharding == wanted[name]
        np.testing.assert_array_equal(
            np.asarray(moved[name]).view(np.int32), np.asarray(x).view(np.int32)
        )
    moves = [
        _planned(
            x.shape,
            {"f": "f32", "i": f"i{8 * x.dtype.itemsize}"}[x.dtype.kind],
            x.sharding,
            wanted[name],
            "h100-8",
            None,
        )
        for name, x in tree.items()
    ]
    buckets = list(_buckets(moves, "h100-8", None))
    assert len(buckets) <= 4 < len(tree)  # a few kinds of steps, 24 arrays
    biggest = [moves[i] for i in max(buckets, key=len)]
    hlo = (
        _program(tuple(biggest), False, None)
        .lower(
            *(
                jax.ShapeDtypeStruct(
                    m.schedule.shape,
                    {"f32": np.float32, "i32": np.int32, "i64": np.int64}[
                        m.schedule.dtype
                    ],
                    sharding=m.source,
                )
                for m in biggest
            )
        )
        .as_text()
    )
    launches = sum(
        hlo.count(f'"stablehlo.{k}"')
        for k in ("all_gather", "all_to_all", "collective_permute", "all_reduce")
    )
    assert launches == biggest[0].schedule.num_collectives


@TOPOLOGIES
def test_a_merged_exchange_between_meshes(topology):
    devices = jax.devices()
    one = mesh_over(devices[:6], (2, 3), ("a", "b"))
    other = mesh_over(devices[:6], (3, 2), ("c", "d"))
    arrays = (np.arange(36.0 * k).reshape(6, 6 * k) for k in (1, 2))
    tree = [placed(x, one, "a", "b") for x in arrays]
    wanted = NamedSharding(other, P("c", "d"))
    moved = sw.redistribute(tree, wanted, topology=topology)
    for x, y in zip(tree, moved, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_limit_of_memory(make_mesh):
    mesh = make_mesh(x=4, y=2)
    x = np.arange(256 * 512, dtype=np.float32).reshape(256, 512)
    given, wanted = placed(x, mesh, "x", "y"), NamedSharding(mesh, P("y", "x"))
    free = sw.plan_redistribution(given, wanted, topology="h100-8")
    tile = x.nbytes // 8
    assert free.slabs is None
    for limit in (tile, tile // 4, tile // 16):
        plan = sw.plan_redistribution(given, wanted, topology="h100-8", max_bytes=limit)
        check_schedule(plan)
        assert plan.room_bytes <= limit
        assert plan.seconds >= free.seconds
        moved = sw.redistribute(given, wanted, topology="h100-8", max_bytes=limit)
        np.testing.assert_array_equal(moved, x)
    assert plan.slabs is not None


def test_slabs_hold_less(make_mesh):
    mesh = make_mesh(x=2, y=2, z=2)
    given = jax.ShapeDtypeStruct(
        (1024, 2048), np.float32, sharding=NamedSharding(mesh, P("x", "y"))
    )
    wanted = NamedSharding(mesh, P("z", ("y", "x")))
    room = []
    for limit in (None, 1 << 16):
        m = _planned(given.shape, "f32", given.sharding, wanted, "h100-8", limit)
        compiled = _program((m,), False, None).lower(given).compile()
        room.append(compiled.memory_analysis().temp_size_in_bytes)
    assert room[1] < room[0] / 4


@TOPOLOGIES
def test_donated_arrays_are_freed(make_mesh, topology):
    mesh = make_mesh(x=8)
    other = mesh_over(jax.devices()[7::-1], (8,), ("z",))
    for target in (NamedSharding(mesh, P(None, "x")), NamedSharding(other, P("z"))):
        x = placed(jnp.ones((64, 64)), mesh, "x")
        moved = sw.redistribute({"w": x}, target, donate=True, topology=topology)
        np.testing.assert_array_equal(moved["w"], np.ones((64, 64)))
        assert x.is_deleted()


@TOPOLOGIES
def test_keys_and_what_lies_right_already(make_mesh, topology):
    mesh = make_mesh(x=8)
    keys = jax.device_put(
        jax.random.split(jax.random.key(3), 16), NamedSharding(mesh, P("x"))
    )
    moved = sw.redistribute(keys, NamedSharding(mesh, P()), topology=topology)
    assert moved.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(moved), jax.random.key_data(keys))
    same = sw.redistribute(moved, NamedSharding(mesh, P()))
    np.testing.assert_array_equal(jax.random.key_data(same), jax.random.key_data(keys))


def test_a_bar_for_long_moves(make_mesh, capsys):
    mesh = make_mesh(x=8)
    x = placed(jnp.ones((64, 64)), mesh, "x")
    sw.redistribute([x, x], NamedSharding(mesh, P(None, "x")), progress=True)
    assert "redistribute" in capsys.readouterr().err


def unreduced(mesh, parts) -> jax.Array:
    """An array whose sum over axis y is still to be made; `parts` by place along y."""
    sharding = NamedSharding(mesh, P("x", unreduced={"y"}))
    rows = parts.shape[1] // mesh.shape["x"]
    tiles = [
        jax.device_put(parts[j, i * rows : (i + 1) * rows], mesh.devices[i, j])
        for i in range(mesh.shape["x"])
        for j in range(mesh.shape["y"])
    ]
    return jax.make_array_from_single_device_arrays(parts.shape[1:], sharding, tiles)


def test_sums_still_to_be_made():
    mesh = Mesh(
        np.array(jax.devices()[:8]).reshape(2, 4),
        ("x", "y"),
        axis_types=(jax.sharding.AxisType.Explicit,) * 2,
    )
    parts = np.ones((4, 8, 16), jnp.bfloat16)
    parts[0] = 256  # 256 + 1 is 256 in bfloat16, 256 + 3 is 260
    x = unreduced(mesh, parts)
    for spec in (P("x"), P("x", "y"), P(None, "y"), P()):
        wanted = NamedSharding(mesh, spec)
        wide = sw.redistribute(x, wanted, accumulate=jnp.float32)
        assert wide.sharding == wanted
        np.testing.assert_array_equal(np.asarray(wide, np.float32), 260.0)
    whole = unreduced(mesh, np.arange(512.0).reshape(4, 8, 16))
    moved = sw.redistribute(whole, NamedSharding(mesh, P(None, ("y", "x"))))
    np.testing.assert_array_equal(moved, np.arange(512.0).reshape(4, 8, 16).sum(0))


@TOPOLOGIES
def test_a_scalar_sum_still_to_be_made(make_mesh, topology):
    devices = jax.devices()[:8]
    mesh = Mesh(np.array(devices), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    loss = jax.make_array_from_single_device_arrays(
        (),
        NamedSharding(mesh, P(unreduced={"x"})),
        [jax.device_put(np.float32(i), device) for i, device in enumerate(devices)],
    )
    other = mesh_over(devices[::-1], (8,), ("z",))
    for target in (NamedSharding(mesh, P()), NamedSharding(other, P())):
        with jax.set_mesh(make_mesh(y=8)):
            moved = sw.redistribute(loss, target, topology=topology)
        assert moved.sharding == target
        assert float(moved) == 28


@TOPOLOGIES
@pytest.mark.parametrize("shape", [(), (1,), (0, 8), (8, 8)])
def test_what_moved_outlives_what_was_donated(make_mesh, shape, topology):
    some = mesh_over(jax.devices()[:4], (4,), ("x",))
    others = mesh_over(jax.devices()[4:8], (4,), ("x",))
    ends = (make_mesh(x=8), mesh_over(jax.devices()[:6], (6,), ("z",)), some, others)
    data = np.full(shape, 3, np.float32)
    for source, target in itertools.permutations(ends, 2):
        x = placed(data, source)
        moved = sw.redistribute(
            x, NamedSharding(target, P()), donate=True, topology=topology
        )
        np.testing.assert_array_equal(np.asarray(moved), data)


def test_inside_another_mesh_context(make_mesh):
    mesh = make_mesh(x=8)
    other = mesh_over(jax.devices()[7::-1], (4, 2), ("p", "q"))
    x = placed(np.arange(64.0).reshape(8, 8), mesh, "x")
    with jax.set_mesh(other):
        for topology in (None, "cpu"):
            moved = sw.redistribute(
                x, NamedSharding(other, P("q", "p")), topology=topology
            )
            np.testing.assert_array_equal(np.asarray(moved), np.asarray(x))


@TOPOLOGIES
def test_scalars_and_empty_arrays(make_mesh, topology):
    mesh = make_mesh(x=8)
    other = mesh_over(jax.devices()[:6], (6,), ("z",))
    tree = {"step": placed(np.float32(3), mesh), "none": placed(np.zeros((0, 8)), mesh)}
    moved = sw.redistribute(tree, NamedSharding(other, P()), topology=topology)
    assert float(moved["step"]) == 3
    assert moved["none"].shape == (0, 8)


@pytest.mark.parametrize(
    "dtype", ["int4", "uint4", "float4_e2m1fn", "float8_e5m2", "bool", "complex64"]
)
@TOPOLOGIES
def test_types_keep_their_bits(make_mesh, dtype, topology):
    mesh = make_mesh(x=2, y=4)
    bits = np.random.default_rng(0).integers(0, 2, (16, 32))
    x = bits.astype(jnp.dtype(dtype))
    for spec in (P("y", "x"), P(None, ("x", "y")), P()):
        moved = sw.redistribute(
            placed(x, mesh, "x", "y"), NamedSharding(mesh, spec), topology=topology
        )
        assert np.asarray(moved).tobytes() == x.tobytes()
