"""The counter of received bytes, on lines as XLA prints them."""

from __future__ import annotations

import pytest

from shardwright.insight.counter import count_traffic
from shardwright.insight.hlo_text import device_groups

LINES = {
    "all-gather, list": (
        "  %ag = f32[8,4]{1,0} all-gather(%x), channel_id=1, "
        "replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}",
        8 * 4 * 4 * 3 / 4,
    ),
    "all-gather, iota": (
        "  %ag = bf16[8,4]{1,0} all-gather(%x), "
        "replica_groups=[4,2]<=[8], dimensions={0}",
        8 * 4 * 2 / 2,
    ),
    "async all-gather": (
        "  %s = (f32[2]{0}, f32[16]{0}) all-gather-start(%x), "
        "replica_groups=[1,8]<=[8]",
        16 * 4 * 7 / 8,
    ),
    "all-reduce": (
        "  %ar = f32[16]{0} all-reduce(%x), replica_groups=[2,4]<=[8], to_apply=%add",
        2 * 64 * 3 / 4,
    ),
    "reduce-scatter": (
        "  %rs = f32[4]{0} reduce-scatter(%x), "
        "replica_groups=[2,4]<=[8], dimensions={0}",
        16 * 3,
    ),
    "all-to-all": (
        "  %a = s8[64]{0} all-to-all(%x), replica_groups=[1,8]<=[8], dimensions={0}",
        64 * 7 / 8,
    ),
    "all-gather, mesh": (
        "  %ag = f32[8,4]{1,0} all-gather(%x), channel_id=1, replica_groups="
        "mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, dimensions={0}",
        8 * 4 * 4 * 3 / 4,
    ),
    "all-to-all, mesh with a device order and a sub-axis": (
        "  %a = (f32[16]{0}, f32[16]{0}) all-to-all(%x, %y), replica_groups="
        "mesh['axis_0'=2,'axis_1'=4], device_ids=([2,2,2]T(0,2,1)) {'axis_1':(2)2}",
        2 * 64 / 2,
    ),
    "async permute": (
        "  %s = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%x), "
        "source_target_pairs={{0,1}}",
        16,
    ),
    "permute": (
        "  %cp = pred[64]{0} collective-permute(%x), source_target_pairs={{0,1},{2,2}}",
        64,
    ),
    "permute to oneself": (
        "  %cp = f32[64]{0} collective-permute(%x), source_target_pairs={{0,0},{2,2}}",
        0,
    ),
    "no collective": ("  %add = f32[64]{0} add(%x, %y)", 0),
}


@pytest.mark.parametrize("name", LINES)
def test_bytes(name: str):
    line, received = LINES[name]
    assert count_traffic(line, 8).bytes_received == received


def test_groups_are_read_in_every_form():
    forms = {
        "replica_groups={{0,1},{2,3}}": [[0, 1], [2, 3]],
        "replica_groups={}": [[0, 1, 2, 3]],
        "replica_groups=[2,2]<=[2,2]T(1,0)": [[0, 2], [1, 3]],
        "replica_groups=mesh['x'=2,'y'=2] {'x'}": [[0, 2], [1, 3]],
        "replica_groups=mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}": [
            [3, 2],
            [1, 0],
        ],
        "replica_groups=mesh['x'=4] {'x':(1)2}": [[0, 2], [1, 3]],
    }
    for text, groups in forms.items():
        assert device_groups(text, 4).tolist() == groups


def test_dots():
    text = (
        "  %x = f32[4,8]{1,0} parameter(0)\n  %y = f32[8,2]{1,0} parameter(1)\n"
        "  ROOT %d = f32[4,2]{1,0} dot(%x, %y), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}"
    )
    traffic = count_traffic(text, 8)
    assert traffic.dots == ("f32[4,8] x f32[8,2]",)
    assert traffic.dot_flops == 2 * 4 * 8 * 2
