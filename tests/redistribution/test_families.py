"""Each family where it wins, other meshes, limits of memory, and what they promise."""

from __future__ import annotations

import cProfile
import dataclasses
import math
import pstats
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardwright.errors import PlanError
from shardwright.program import (
    AllGather,
    AllReduce,
    Exchange,
    Layout,
    Mesh,
    Permute,
    Resize,
    Round,
    Schedule,
    Shuffle,
    Slice,
    Step,
    Unreduce,
)
from shardwright.redistribution import (
    check,
    check_schedule,
    plan_redistribution,
    plan_schedule,
    simulate,
)
from shardwright.redistribution.ordered import ROOM_BYTES
from shardwright.topology import Topology, preset
from tests.redistribution.problems import (
    BYTES,
    GRIDS,
    LARGER,
    Change,
    even_changes,
    layouts,
    meshes,
    uneven_changes,
)

H100 = preset("h100-8")
MACHINES = (BYTES, preset("h100x8x2"), preset("tpu-v5e-16x16"), preset("cpu"))


def plan(shape, mesh: Mesh, old: str, new: str, topology: Topology = BYTES) -> Schedule:
    source, target = Layout.parse(mesh, old), Layout.parse(mesh, new)
    schedule = plan_schedule(shape, "f32", source, target, topology)
    check_schedule(schedule)
    return schedule


def test_uneven_cuts_go_through_one_padded_all_to_all():
    mesh = Mesh((("x", 4),))
    schedule = plan((1000, 7), mesh, "x, -", "-, x", H100)
    assert schedule.num_collectives == 1
    assert any(isinstance(step, Resize) for step in schedule.steps)
    least = plan((1000, 7), mesh, "x, -", "-, x")
    assert least.bytes_received == least.lower_bound


def test_few_bytes_go_in_one_launch():
    # 2 x 3 to 3 x 2 tiles: no collective fits, so an exchange takes several rounds.
    mesh = Mesh((("x", 2), ("y", 3)))
    small = plan((60, 60), mesh, "x, y", "y, x", H100)
    assert small.num_collectives == 1
    large = plan((6000, 6000), mesh, "x, y", "y, x", H100)
    (step,) = large.steps
    assert isinstance(step, Exchange)
    assert not step.joined
    assert large.bytes_received == large.lower_bound


def test_a_lone_element_is_masked_and_reduced():
    mesh = Mesh((("x", 8),))
    schedule = plan((1, 4096), mesh, "x, -", "-, -", H100)
    kinds = [type(step) for step in schedule.steps]
    assert kinds == [Unreduce, AllReduce]


def test_a_relay_where_the_device_order_differs():
    source = Mesh((("a", 2), ("b", 2), ("c", 2)))
    target = Mesh(source.axes, (5, 2, 7, 0, 1, 6, 3, 4))
    old, new = Layout.parse(source, "a b, c"), Layout.parse(target, "a, -")
    schedule = plan_redistribution((1 << 10, 1 << 10), "f32", old, new, H100)
    check_schedule(schedule)
    assert any(isinstance(step, AllGather) for step in schedule.steps)
    alone = plan_redistribution((1 << 10, 1 << 10), "f32", old, new, BYTES)
    check_schedule(alone)
    assert alone.bytes_received == alone.lower_bound


def test_axes_that_fit_together_are_planned_on_one_mesh():
    source = Mesh((("a", 2), ("b", 4)))
    target = Mesh((("x", 4), ("y", 2)), (0, 4, 1, 5, 2, 6, 3, 7))  # b, a
    old, new = Layout.parse(source, "a, b"), Layout.parse(target, "y, x")
    schedule = plan_redistribution((64, 64), "f32", old, new, BYTES)
    assert schedule.steps == ()  # the same tiles, by other names
    check_schedule(schedule)


@settings(max_examples=60)
@given(st.data())
def test_any_order_of_devices(data: st.DataObject):
    mesh = data.draw(meshes())
    rank = data.draw(st.integers(1, 3))
    order = data.draw(st.permutations(range(mesh.num_devices)))
    source = data.draw(layouts(mesh, rank, None))
    target = data.draw(layouts(Mesh(mesh.axes, tuple(order)), rank, None))
    shape = tuple(data.draw(st.sampled_from((1, 5, 8, 12))) for _ in range(rank))
    for machine in MACHINES:
        schedule = plan_redistribution(shape, "f32", source, target, machine)
        check_schedule(schedule)
        for other in schedule.alternatives:
            check_schedule(dataclasses.replace(schedule, steps=other.steps))


@settings(max_examples=60)
@given(st.data())
def test_other_devices(data: st.DataObject):
    """From a mesh of some devices to one of others, which may have some in common."""
    rank = data.draw(st.integers(1, 2))
    ends = []
    for _ in range(2):
        mesh = data.draw(meshes())
        ids = data.draw(st.permutations(range(12)))[: mesh.num_devices]
        ends.append(data.draw(layouts(Mesh(mesh.axes, tuple(ids)), rank, None)))
    shape = tuple(data.draw(st.sampled_from((1, 6, 8))) for _ in range(rank))
    schedule = plan_redistribution(shape, "f32", *ends, preset("h100x8x2"))
    check_schedule(schedule)
    assert schedule.bytes_received >= schedule.lower_bound


@given(st.one_of(uneven_changes(), uneven_changes("min", GRIDS + LARGER)))
def test_every_uneven_alternative_is_exact(change: Change):
    for machine in MACHINES[1:3]:
        schedule = plan_schedule(change[0], "f32", *change[1:], machine)
        for other in schedule.alternatives:
            check_schedule(dataclasses.replace(schedule, steps=other.steps))


def test_dims_cut_alike_by_a_part_of_an_axis_that_moves():
    # Dim 2 is cut alike, by the rest of the axis that leaves dim 0.
    mesh = Mesh((("a", 4), ("b", 4)))
    old, new = "a:(1)2, -, a:(2)2 b, -", "-, -, a:(2)2 b, a:(1)2"
    for machine in MACHINES:
        schedule = plan((19, 11, 7, 12), mesh, old, new, machine)
        for other in schedule.alternatives:
            check_schedule(dataclasses.replace(schedule, steps=other.steps))
    wrong = Exchange(  # crosses the rest of the axis, where other tiles lie
        (mesh.axis("a"),),
        (2, 1, 1, 1),
        (
            Round((1, 1, 1, 1), ((0, 0), (1, 1)), ((0,) * 4,) * 4, ((0,) * 4,) * 4),
            Round((1, 1, 1, 1), ((2, 1), (3, 0)), ((0,) * 4,) * 4, ((1, 0, 0, 0),) * 4),
        ),
    )
    source, target = (Layout.parse(mesh, x) for x in (old, "-, -, a:(2)2 b, -"))
    right = plan_schedule((2, 1, 8, 1), "f32", source, target, BYTES)
    check_schedule(right)
    with pytest.raises(PlanError, match="wrong schedule"):
        check_schedule(dataclasses.replace(right, steps=(wrong,)))


def test_parts_that_stay_partial_are_not_exchanged():
    mesh = Mesh((("a", 4), ("b", 2)))
    source = Layout.parse(mesh, "a:(2)2 b | sum a:(1)2")
    target = Layout.parse(mesh, "b | sum a:(1)2")
    for machine in MACHINES:
        schedule = plan_schedule((3,), "f32", source, target, machine)
        check_schedule(schedule)
        for other in schedule.alternatives:
            check_schedule(dataclasses.replace(schedule, steps=other.steps))


def test_ways_round_are_looked_for_where_all_links_are_alike():
    # Half of each tile comes by a permute, the other half by a gather.
    mesh = Mesh((("a", 4), ("b", 2)))
    shape, h100 = (76, 52, 2232), preset("h100-8")
    schedule = plan(shape, mesh, "-, -, a", "a:(2)2, -, b", h100)
    assert [type(step) for step in schedule.steps] == [Slice, Permute, AllGather]
    exchanges = [c for c in schedule.alternatives if c.family == "exchange"]
    assert exchanges
    assert all(schedule.seconds < c.seconds for c in exchanges)


def test_cuts_across_runs_are_shortened_for_the_check():
    # The slice by 3 after the all-to-all cuts across the halves that it joined.
    mesh = Mesh((("a", 2), ("b", 3), ("c", 4)))
    source = Layout.parse(mesh, "c, -, - | sum a")
    target = Layout.parse(mesh, "a b, -, c")
    for machine in MACHINES:
        schedule = plan_schedule((5076, 20, 248), "f32", source, target, machine)
        check_schedule(schedule)
        for other in schedule.alternatives:
            check_schedule(dataclasses.replace(schedule, steps=other.steps))


@given(even_changes("sum"), st.data())
def test_a_shortened_check_finds_what_the_whole_one_finds(
    change: Change, data: st.DataObject
):
    shape = tuple(4 * n for n in change[0])
    schedule = plan_schedule(shape, "f32", *change[1:], MACHINES[2])
    steps = list(data.draw(st.sampled_from([schedule, *schedule.alternatives])).steps)
    assume(steps)
    at = data.draw(st.integers(0, len(steps) - 1))
    if data.draw(st.booleans()):
        del steps[at]
    else:
        steps[at] = _spoiled(steps[at], data)
    wrong = dataclasses.replace(schedule, steps=tuple(steps))
    verdicts = []
    for shrunk in (check._shrunk, lambda whole: None):
        with mock.patch.object(check, "_shrunk", shrunk):
            try:
                check_schedule(wrong)
                verdicts.append("right")
            except Exception:  # tiles that no step fits, too
                verdicts.append("wrong")
    assert verdicts[0] == verdicts[1]


def _spoiled(step: Step, data: st.DataObject) -> Step:
    """The step with axes in another order, or receivers that change places."""
    match step:
        case Permute():
            new = data.draw(st.permutations([t for _, t in step.pairs]))
            pairs = zip([s for s, _ in step.pairs], new, strict=True)
            return dataclasses.replace(step, pairs=tuple(sorted(pairs)))
        case Exchange() if step.rounds:
            rounds = (dataclasses.replace(step.rounds[0], pairs=()), *step.rounds[1:])
            return dataclasses.replace(step, rounds=rounds)
        case Shuffle():
            perm = data.draw(st.permutations(step.perm))
            return dataclasses.replace(step, perm=tuple(perm))
        case Exchange() | Resize():
            return step
        case _:
            return dataclasses.replace(step, axes=step.axes[::-1])


@given(even_changes("max"))
def test_no_more_room_than_a_round_or_a_small_tensor(change: Change):
    for machine in MACHINES:
        schedule = plan_schedule(change[0], "f32", *change[1:], machine)
        ends = max(4 * int(np.prod(x.tile_shape(change[0]))) for x in change[1:])
        assert schedule.peak_bytes <= max(2 * ends, ROOM_BYTES)


@settings(max_examples=50)
@given(even_changes(), st.integers(0, 6))
def test_slabs_move_what_the_whole_moves(change: Change, halvings: int):
    shape, source, target = change
    shape = tuple(4 * n for n in shape)
    whole = plan_schedule(shape, "f32", source, target, H100)
    limit = whole.room_bytes >> halvings
    try:
        schedule = plan_redistribution(shape, "f32", source, target, H100, limit)
    except PlanError:
        return
    assert schedule.room_bytes <= limit
    data = np.arange(np.prod(shape)).reshape(shape)
    count = source.mesh.num_devices
    tiles = np.stack([data[window(source, shape, p)] for p in range(count)])
    moved = by_slabs(schedule, tiles)
    for p in range(count):
        np.testing.assert_array_equal(moved[p], data[window(target, shape, p)])


def window(layout: Layout, shape, position: int) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in layout.tile_box(shape, position))


def by_slabs(schedule: Schedule, tiles: np.ndarray) -> np.ndarray:
    """What the emitted loop does, in numpy."""
    slabs, mesh = schedule.slabs, schedule.mesh
    if slabs is None:
        return simulate(mesh, schedule, tiles)
    count = len(tiles)
    source = tiles.reshape(count, *slabs.source_view)
    made = np.zeros((count, *slabs.target_view), tiles.dtype)
    tile = schedule.source.tile_shape(slabs.shape)
    for k in range(slabs.count):
        piece = source.take(k, slabs.source_dim + 1).reshape(count, *tile)
        moved = simulate(mesh, schedule.steps, piece)
        index = [slice(None)] * made.ndim
        index[slabs.target_dim + 1] = k
        made[tuple(index)] = moved.reshape(made[tuple(index)].shape)
    return made.reshape(count, *schedule.target.tile_shape(schedule.shape))


@pytest.mark.parametrize("sides", [(8, 8), (32, 16)])
def test_a_mesh_of_16384_devices(sides: tuple[int, int]):
    """The work, in calls of functions, follows the axes that move."""
    calls = []
    for rest in (1, 16384 // math.prod(sides)):
        mesh = Mesh((("rest", rest), *zip("xy", sides, strict=True)))
        old, new = Layout.parse(mesh, "rest, x, y"), Layout.parse(mesh, "rest, y, x")
        shape = (16384, 1 << 12, 1 << 12)
        with cProfile.Profile() as profile:
            schedule = plan_schedule(shape, "bf16", old, new, preset("h100x8x2048"))
        calls.append(pstats.Stats(profile).total_calls)
        assert schedule.bytes_received == schedule.lower_bound
        check_schedule(schedule)
    assert calls[1] < 2 * calls[0]
