"""Every schedule as emitted runs on devices as the simulation says it should."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shardwright.lowering import schedules_module
from shardwright.program import Fold, Layout, Mesh, Schedule
from shardwright.redistribution import plan_schedule, simulate
from shardwright.runtime.call import sharded_call
from shardwright.runtime.dtypes import jax_dtype
from shardwright.topology import preset
from tests.redistribution.problems import BYTES, Change, even_changes, uneven_changes

FLAT = PartitionSpec("all")


def run(schedule: Schedule, tiles: np.ndarray, dtype: str) -> np.ndarray:
    """Every device's tile after the schedule, [device, *tile]."""
    mesh = schedule.source.mesh
    devices = np.array(jax.devices()[: mesh.num_devices], dtype=object)
    flat = jax.sharding.Mesh(devices, ("all",), axis_types=(AxisType.Auto,))
    tile = schedule.target.tile_shape(schedule.shape)
    module = schedules_module([schedule])
    call = sharded_call(module, flat, [FLAT], [FLAT], [(tile, dtype)])
    # Tiles of one device lie one after the other along their first dim.
    joined = tiles.reshape(-1, *tiles.shape[2:])
    placed = jax.device_put(joined, NamedSharding(flat, FLAT))
    result = np.asarray(jax.jit(call)(placed)[0])
    return result.reshape(mesh.num_devices, *tile)


def random_tiles(layout: Layout, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    count = layout.mesh.num_devices
    rng = np.random.default_rng(1)
    high = 2 if dtype == "i1" else 9
    values = rng.integers(0, high, (count, *layout.tile_shape(shape)))
    return values.astype(jax_dtype(dtype))


def compare(change: Change, dtype: str = "i32", *, topology: str = "h100x8x2") -> None:
    shape, source, target = change
    run_and_compare(plan_schedule(shape, dtype, source, target, preset(topology)))


def run_and_compare(schedule: Schedule) -> None:
    shape, source, target = schedule.shape, schedule.source, schedule.target
    dtype = schedule.dtype
    tiles = random_tiles(source, shape, dtype)
    seen = tiles.reshape(len(tiles), *source.view_tile_shape(shape))
    expected = simulate(source.mesh, schedule, seen)
    got = run(schedule, tiles, dtype)
    inside = np.zeros(got.shape, bool)
    for p in range(len(tiles)):  # padding may hold anything
        box = target.tile_box(shape, p)
        inside[(p, *(slice(0, b - a) for a, b in box))] = True
    np.testing.assert_array_equal(got[inside], expected.reshape(got.shape)[inside])


@settings(max_examples=40)
@given(even_changes())
def test_even_changes(change: Change):
    compare(change)


@settings(max_examples=25)
@given(even_changes())
def test_even_changes_where_only_bytes_matter(change: Change):
    compare(change, topology="gb200-nvl72")


@settings(max_examples=25)
@given(even_changes("sum"))
def test_partial_changes(change: Change):
    compare(change)


@settings(max_examples=25)
@given(uneven_changes())
def test_uneven_changes(change: Change):
    compare(change)


@pytest.mark.parametrize(
    ("reducer", "dtype"),
    [
        ("sum", "f32"),
        ("sum", "bf16"),
        ("sum", "ui8"),
        ("max", "f32"),
        ("min", "i32"),
        ("prod", "i32"),
        ("or", "i1"),
        ("and", "i1"),
    ],
)
@pytest.mark.parametrize("target", ["-, -", "x, -", "-, y"])
def test_reductions(reducer: str, dtype: str, target: str):
    mesh = Mesh((("x", 2), ("y", 4)))
    source = Layout.parse(mesh, f"-, - | {reducer} x y")
    compare(((8, 4), source, Layout.parse(mesh, target)), dtype)


REDUCTIONS = [
    ("sum", "f32"),
    ("sum", "bf16"),
    ("sum", "ui8"),
    ("sum", "complex<f32>"),
    ("max", "f32"),
    ("max", "bf16"),
    ("min", "i32"),
    ("prod", "i32"),
    ("or", "i1"),
    ("and", "i1"),
    ("or", "ui32"),
]


@pytest.mark.parametrize(("reducer", "dtype"), REDUCTIONS)
def test_folds(reducer: str, dtype: str):
    """Parts laid side by side, and those that are dealt out, are reduced alike."""
    mesh = Mesh((("a", 2), ("b", 2), ("c", 2)))
    source = Layout.parse(mesh, f"b a, - | {reducer} c")
    plan = plan_schedule((24, 4), dtype, source, Layout.parse(mesh, "a b, c"), BYTES)
    ways = [c.steps for c in (plan, *plan.alternatives)]
    folds = [steps for steps in ways if any(isinstance(s, Fold) for s in steps)]
    assert len(folds) > 1
    for steps in folds:
        run_and_compare(dataclasses.replace(plan, steps=steps))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i1", "i8", "ui32", "complex<f32>"])
def test_moves_of_every_dtype(dtype: str):
    mesh = Mesh((("a", 2), ("b", 2), ("c", 2)))
    source, target = Layout.parse(mesh, "a b, c"), Layout.parse(mesh, "a, b c")
    compare(((16, 16), source, target), dtype)
    compare(((16, 16), source, target), dtype, topology="gb200-nvl72")


def test_own_device_order():
    mesh = Mesh((("x", 4), ("y", 2)), (4, 6, 0, 2, 7, 3, 1, 5))
    shape = (8, 8)
    source, target = Layout.parse(mesh, "x, y"), Layout.parse(mesh, "y, x")
    schedule = plan_schedule(shape, "i32", source, target, preset("h100-8"))
    tiles = random_tiles(source, shape, "i32")
    expected = simulate(mesh, schedule, tiles)
    by_device = np.empty_like(tiles)
    by_device[list(mesh.device_ids or ())] = tiles
    got = run(schedule, by_device, "i32")[list(mesh.device_ids or ())]
    np.testing.assert_array_equal(got, expected)
