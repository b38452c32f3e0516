"""Schedules: exact, at the bound where bytes decide, never below it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings

from shardwright.errors import PlanError
from shardwright.program import AllToAll, Layout, Mesh, ReduceScatter, Schedule
from shardwright.redistribution import (
    check_schedule,
    lower_bound,
    plan_schedule,
    simulate,
)
from shardwright.redistribution.bound import by_boxes, by_digits
from shardwright.redistribution.project import project
from shardwright.topology import Topology, preset
from tests.redistribution.problems import BYTES, Change, even_changes, uneven_changes

CUBE = Mesh((("a", 2), ("b", 2), ("c", 2)))
H100 = preset("h100x8x2")


def plan(change: Change, topology: Topology = H100, dtype: str = "f32") -> Schedule:
    shape, source, target = change
    return plan_schedule(shape, dtype, source, target, topology)


def layout(text: str, mesh: Mesh = CUBE) -> Layout:
    return Layout.parse(mesh, text)


def test_the_first_case_is_at_the_bound():
    change = ((8192, 8192), layout("a b, c"), layout("a, b c"))
    for topology in (BYTES, H100, preset("cpu-8"), preset("tpu-v5e-16x16")):
        schedule = plan(change, topology)
        assert schedule.bytes_received == schedule.lower_bound == 32 << 20
        assert schedule.peak_bytes <= 64 << 20
        check_schedule(schedule)


def test_axis_reorder_is_one_all_to_all():
    # Planners that keep chunks in order permute first: [x y], [] -> [], [y x].
    mesh = Mesh((("x", 2), ("y", 2)))
    change = ((64, 64), layout("x y, -", mesh), layout("-, y x", mesh))
    schedule = plan(change, BYTES)
    assert schedule.bytes_received == schedule.lower_bound == 64 * 64 * 4 * 3 // 16
    assert schedule.num_collectives == 1
    assert any(isinstance(step, AllToAll) for step in schedule.steps)


def test_partial_to_split_is_a_reduce_scatter():
    mesh = Mesh((("x", 8),))
    source, target = layout("-, - | sum x", mesh), layout("x, -", mesh)
    schedule = plan(((64, 32), source, target))
    (step,) = schedule.steps
    assert isinstance(step, ReduceScatter)
    assert schedule.bytes_received == schedule.lower_bound == 64 * 32 * 4 * 7 // 8


def test_partial_to_whole_is_twice_that():
    mesh = Mesh((("x", 8),))
    source, target = layout("-, - | sum x", mesh), layout("-, -", mesh)
    schedule = plan(((64, 32), source, target))
    assert schedule.bytes_received == schedule.lower_bound == 2 * 64 * 32 * 4 * 7 // 8


def test_replicated_to_split_receives_nothing():
    schedule = plan(((64, 32), layout("-, -"), layout("a b, c")))
    assert schedule.bytes_received == schedule.num_collectives == 0


def test_agreeing_axes_of_a_large_mesh_cost_nothing_to_plan():
    mesh = Mesh((("big", 4096), ("x", 2), ("y", 2)))
    change = (
        (1 << 16, 1 << 10, 64),
        layout("big, x, y", mesh),
        layout("big, y, x", mesh),
    )
    schedule = plan(change, preset("h100x8x2048"))
    check_schedule(schedule)
    assert schedule.bytes_received == schedule.lower_bound


def test_latency_decides_where_bytes_are_few():
    # 36 rounds of an exchange lose to one gather when each round costs a launch.
    mesh = Mesh((("x", 2), ("y", 3)))
    source, target = layout("x, y", mesh), layout("y, x", mesh)
    small = plan(((6, 6), source, target), preset("h100-8"))
    large = plan(((6 << 10, 6 << 10), source, target), BYTES)
    assert small.num_collectives <= large.num_collectives
    assert large.bytes_received == large.lower_bound


@given(even_changes())
def test_even_changes_are_exact_and_at_the_bound(change: Change):
    schedule = plan(change, BYTES)
    check_schedule(schedule)
    assert schedule.bytes_received == schedule.lower_bound


@given(even_changes("sum"))
def test_partial_changes_are_exact(change: Change):
    schedule = plan(change)
    check_schedule(schedule)
    assert schedule.bytes_received >= schedule.lower_bound
    for other in schedule.alternatives:
        check_schedule(dataclasses.replace(schedule, steps=other.steps))


@settings(max_examples=200)
@given(even_changes("sum"))
def test_the_bound_is_the_same_by_digits_and_by_boxes(change: Change):
    problem = project(*change)
    assume(problem is not None)
    assert problem is not None
    assert by_digits(problem, *change) == by_boxes(*change)


@settings(max_examples=100)
@given(even_changes("sum"))
def test_partial_changes_come_close_to_the_bound(change: Change):
    schedule = plan(change, BYTES)
    assert schedule.lower_bound >= lower_bound(change[0], "f32", *change[1:])
    least = min(c.bytes_received for c in (schedule, *schedule.alternatives))
    # Elements are indivisible, and there are few here.
    assert schedule.lower_bound <= least <= schedule.lower_bound + 4 * 4


@given(uneven_changes())
def test_uneven_changes_are_exact(change: Change):
    schedule = plan(change)
    check_schedule(schedule)
    assert schedule.bytes_received >= lower_bound(change[0], "f32", *change[1:])


@given(even_changes())
def test_every_alternative_is_exact_and_no_cheaper(change: Change):
    schedule = plan(change)
    for other in schedule.alternatives:
        check_schedule(dataclasses.replace(schedule, steps=other.steps))
        assert other.seconds >= schedule.seconds * (1 - 1e-9)


@settings(max_examples=40)
@given(even_changes("max"))
def test_simulated_numbers(change: Change):
    """Numbers through the steps, where the check above moved index sets."""
    shape, source, target = change
    schedule = plan(change)
    mesh = source.mesh
    whole = np.random.default_rng(0).integers(0, 1000, shape)
    held = [axis for axis, _ in source.partial]
    tiles = []
    for p in range(mesh.num_devices):
        box = tuple(slice(a, b) for a, b in source.tile_box(shape, p))
        tiles.append(whole[box] if mesh.index(p, held) == 0 else whole[box] - 1 - p)
    moved = simulate(mesh, schedule, np.stack(tiles))
    for p in range(mesh.num_devices):
        box = tuple(slice(a, b) for a, b in target.tile_box(shape, p))
        np.testing.assert_array_equal(moved[p], whole[box])


def test_the_check_finds_a_wrong_schedule():
    schedule = plan(((8, 8), layout("a b, c"), layout("a, b c")))
    wrong = dataclasses.replace(schedule, steps=schedule.steps[:-1])
    with pytest.raises(PlanError):
        check_schedule(wrong)
    swapped = dataclasses.replace(schedule, target=layout("b, a c"))
    with pytest.raises(PlanError, match="wrong schedule"):
        check_schedule(swapped)


def test_the_check_finds_a_part_that_is_added_twice():
    mesh = Mesh((("x", 2),))
    source, target = layout("- | sum x", mesh), layout("-", mesh)
    schedule = plan(((4,), source, target))
    wrong = dataclasses.replace(schedule, steps=schedule.steps * 2)
    with pytest.raises(PlanError, match="with parts"):
        check_schedule(wrong)


def test_two_meshes_are_refused():
    other = Mesh((("x", 8),))
    with pytest.raises(PlanError, match="one mesh"):
        plan(((8, 8), layout("a, b"), layout("x, -", other)))


def test_empty_tensors_move_for_nothing():
    schedule = plan(((0, 8), layout("-, a"), layout("-, b")))
    assert schedule.bytes_received == schedule.lower_bound == 0
