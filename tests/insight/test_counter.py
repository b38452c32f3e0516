"""The counter of received bytes, on lines as XLA prints them."""

from __future__ import annotations

import pytest

from shardwright.insight.counter import count_traffic

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


def test_dots():
    text = (
        "  %x = f32[4,8]{1,0} parameter(0)\n  %y = f32[8,2]{1,0} parameter(1)\n"
        "  ROOT %d = f32[4,2]{1,0} dot(%x, %y), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}"
    )
    traffic = count_traffic(text, 8)
    assert traffic.dots == ("f32[4,8] x f32[8,2]",)
    assert traffic.dot_flops == 2 * 4 * 8 * 2
