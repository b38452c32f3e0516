"""Costs against the published formulas, and presets against their tables."""

from __future__ import annotations

import pytest

from shardwright.errors import InputError
from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Mesh,
    Permute,
    ReduceScatter,
    Shuffle,
    Slice,
)
from shardwright.topology import (
    check_fits,
    for_platform,
    op_seconds,
    preset,
    presets,
    schedule_seconds,
    step_bytes,
    step_seconds,
)

EIGHT = Mesh((("x", 8),))
X = EIGHT.whole_axes()
MIB = 1 << 20


@pytest.mark.parametrize(
    ("step", "received"),
    [
        (AllGather(0, X), 7 * 4 * MIB),
        (AllToAll(0, 0, X), 4 * MIB * 7 // 8),
        (ReduceScatter(0, X, "sum"), 4 * MIB * 7 // 8),
        (AllReduce(X, "sum"), 2 * 4 * MIB * 7 // 8),
        (Permute(X, ((0, 1), (1, 0))), 4 * MIB),
        (Permute(X, ((0, 0),)), 0),
        (Slice(0, X), 0),
    ],
)
def test_bytes_received(step, received: int):
    assert step_bytes(step, (MIB,), "f32") == received


def test_all_gather_on_one_h100_node():
    # B (n-1) / (n W): 8 GPUs at 450 GB/s each, a whole of 32 MiB.
    seconds = step_seconds(preset("h100-8"), EIGHT, AllGather(0, X), (MIB,), "f32")
    assert seconds == pytest.approx(5e-6 + 32 * MIB * 7 / 8 / 450e9)


def test_all_gather_over_nodes_is_bound_by_what_leaves_a_node():
    mesh = Mesh((("node", 4), ("gpu", 8)))
    whole = 32 * 4 * MIB
    seconds = step_seconds(
        preset("h100x8x4"), mesh, AllGather(0, mesh.whole_axes()), (MIB,), "f32"
    )
    assert seconds == pytest.approx(5e-6 + whole * max(31 / 32 / 450e9, 3 / 4 / 400e9))


def test_all_gather_on_a_ring_of_tpus():
    # A ring moves B (n-1)/n at twice its one-way link bandwidth.
    mesh = Mesh((("y", 16), ("x", 16)))
    step = AllGather(0, (mesh.axis("x"),))
    seconds = step_seconds(preset("tpu-v5e-16x16"), mesh, step, (MIB,), "f32")
    assert seconds == pytest.approx(8e-6 + 64 * MIB * 15 / 16 / (2 * 4.5e10), rel=0.01)


def test_larger_groups_and_tiles_never_take_less():
    for topology in presets():
        small = step_seconds(topology, EIGHT, AllReduce(X, "sum"), (MIB,), "f32")
        large = step_seconds(topology, EIGHT, AllReduce(X, "sum"), (2 * MIB,), "f32")
        assert 0 < small < large


def test_local_steps_in_a_row_are_one_copy():
    topology = preset("h100-8")
    tile = (1024, 1024)
    transpose = Shuffle((1024, 1024), (1, 0), (1024, 1024))
    one = schedule_seconds(topology, EIGHT, [transpose], tile, "f32")
    two = schedule_seconds(topology, EIGHT, [transpose, Slice(0, X)], tile, "f32")
    assert one == pytest.approx(2 * 4 * MIB / topology.memory_bandwidth)
    assert two == pytest.approx(one / 8)
    reshape = Shuffle((MIB,), (0,), (MIB,))
    assert schedule_seconds(topology, EIGHT, [reshape], tile, "f32") == 0


def test_op_is_bound_by_arithmetic_or_memory():
    topology = preset("h100-8")
    assert op_seconds(topology, 1e12, 1, "bf16") == pytest.approx(1e12 / 9.9e14)
    assert op_seconds(topology, 1, 3.35e9, "bf16") == pytest.approx(1e-3)
    assert op_seconds(topology, 1e12, 1, "f8E4M3FN") == op_seconds(
        topology, 1e12, 1, "f32"
    )


def test_every_preset_names_its_source():
    names = [topology.name for topology in presets()]
    assert len(names) == len(set(names)) == 11
    for topology in presets():
        assert topology.source
        assert preset(topology.name) == topology


def test_unknown_and_too_small():
    with pytest.raises(InputError, match="unknown topology 'abacus'"):
        preset("abacus")
    with pytest.raises(InputError, match="has 8"):
        check_fits(preset("h100-8"), 16)


@pytest.mark.parametrize(
    ("platform", "kind", "count", "name"),
    [
        ("cpu", "cpu", 8, "cpu-8"),
        ("gpu", "NVIDIA H100 80GB HBM3", 16, "h100x8x2"),
        ("tpu", "TPU v5 lite", 16, "tpu-v5e-4x4"),
        ("tpu", "TPU v4", 8, "tpu-v4-2x2x2"),
    ],
)
def test_machine_of_jax_devices(platform: str, kind: str, count: int, name: str):
    assert for_platform(platform, kind, count).name == name
