"""Layouts to go by, on meshes whose axes are cut in more than one way."""

from __future__ import annotations

import pytest

from shardwright.program import Layout, Mesh, ways
from shardwright.redistribution.relays import alike

MESH = Mesh((("a", 6), ("b", 2)))
TWELVE = Mesh((("a", 12),))


@pytest.mark.parametrize(
    ("mesh", "end", "cuts"),
    [
        (MESH, "[a:(1)3, a:(3)2]", (3, 2)),
        (MESH, "[a:(2)3, a:(1)2]", (2, 6)),
        (TWELVE, "[a:(1)3, a:(3)2]", (2, 2)),
        (TWELVE, "[a:(1)2, a:(2)6]", (4, 3)),
    ],
    ids=lambda value: str(value),
)
def test_relays_cut_as_wanted_where_an_axis_is_taken_apart_otherwise(
    mesh: Mesh, end: str, cuts: tuple[int, int]
):
    relays = alike(mesh, cuts, Layout.parse(mesh, end), 8)
    assert relays
    for relay in relays:
        assert tuple(map(ways, relay.dims)) == cuts


def test_no_relay_cuts_in_more_ways_than_the_mesh_has():
    # Atoms of 2 x 3 lie across the end's parts of 3 x 2, and are none of them.
    assert alike(MESH, (3, 12), Layout.parse(MESH, "[a:(1)3, a:(3)2]"), 8) == []
