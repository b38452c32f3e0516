"""Every sharding syntax that XLA reads, as a layout and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.capture import from_hlo, to_hlo
from shardwright.capture.hlo_shardings import layouts_from_hlo
from shardwright.errors import InputError, LayoutError
from shardwright.jaxlib_bindings import HloSharding
from shardwright.program import Layout, Mesh
from tests.redistribution.problems import Change, even_changes


@pytest.mark.parametrize(
    ("text", "rank", "mesh", "layout"),
    [
        ("{replicated}", 2, "()", "[-, -]"),
        ("{devices=[8]<=[8]}", 1, "(a=8)", "[a]"),
        ("{devices=[4,2]<=[8]}", 2, "(a=4,b=2)", "[a, b]"),
        ("{devices=[4,2]<=[2,4]T(1,0)}", 2, "(a=2,b=4)", "[b, a]"),
        ("{devices=[2,4]0,1,2,3,4,5,6,7}", 2, "(a=2,b=4)", "[a, b]"),
        (
            "{devices=[1,2,4]0,2,4,6,1,3,5,7 last_tile_dim_replicate}",
            2,
            "(a=4,b=2)",
            "[-, b]",
        ),
        (
            "{devices=[2,2,2]<=[8] last_tile_dims={replicated}}",
            2,
            "(a=2,b=2,c=2)",
            "[a, b]",
        ),
        (
            "{devices=[2,2,2]<=[8] last_tile_dims={unreduced}}",
            2,
            "(a=2,b=2,c=2)",
            "[a, b | sum c]",
        ),
        ("{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}", 2, "(x=2,y=4)", "[x, y]"),
        ("{mesh['x'=2,'y'=4], [{'y', 'x'}, {}]}", 2, "(x=2,y=4)", "[y x, -]"),
        ("{devices=[3,4]<=[12]}", 2, "(a=3,b=4)", "[a, b]"),
        ("{devices=[6,2]<=[2,6]T(1,0)}", 2, "(a=2,b=6)", "[b, a]"),
        (
            "{devices=[2,2]3,1,0,2}",
            2,
            "(a=2,b=2) with its own device order",
            "[a, b]",
        ),
    ],
)
def test_syntax(text: str, rank: int, mesh: str, layout: str):
    found, constraint = from_hlo(text, rank)
    assert constraint is not None
    assert (str(found), str(constraint.layout)) == (mesh, layout)


def test_unknown_says_nothing_and_open_dims_are_kept():
    assert from_hlo("{unknown}", 1)[1] is None
    _, constraint = from_hlo("{mesh['x'=2,'y'=4], [{'x'}, {?}]}", 2)
    assert constraint is not None
    assert constraint.open_dims == (False, True)


@given(even_changes())
def test_round_trip_names_the_same_tiles(change: Change):
    """The devices that XLA says hold each tile are those that the layout says."""
    shape, layout, _ = change
    text = to_hlo(layout, shape)
    mesh = layout.mesh
    if layout.is_replicated:
        assert text == "{replicated}"
        return
    sharding = HloSharding.from_string(text)
    dims = list(sharding.tile_assignment_dimensions())
    devices = np.array(sharding.tile_assignment_devices()).reshape(dims)
    tile = layout.tile_shape(shape)
    for index in np.ndindex(*dims):
        box = layout.tile_box(shape, int(devices[index]))
        assert tuple(a for a, _ in box) == tuple(
            i * n for i, n in zip(index, tile, strict=False)
        )
    _, constraint = from_hlo(text, len(shape), mesh.num_devices)
    assert constraint is not None
    for position in range(mesh.num_devices):
        assert constraint.layout.tile_box(shape, position) == layout.tile_box(
            shape, position
        )


@given(st.permutations(range(8)))
def test_any_device_order(order: list[int]):
    mesh = Mesh((("a", 4), ("b", 2)), tuple(order))
    text = to_hlo(Layout.parse(mesh, "a, b"), (8, 8))
    found, constraint = from_hlo(text, 2)
    assert constraint is not None
    for position in range(8):
        device = found.device_id(position)
        same = next(p for p in range(8) if mesh.device_id(p) == device)
        want = Layout.parse(mesh, "a, b").tile_box((8, 8), same)
        assert constraint.layout.tile_box((8, 8), position) == want


def test_all_shardings_of_a_program_meet_on_one_mesh():
    mesh, (y, z) = layouts_from_hlo(
        [
            "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
            "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
        ],
        [2, 2],
        None,
    )
    assert y is not None
    assert z is not None
    assert y.layout.mesh == z.layout.mesh == mesh
    assert (str(y.layout), str(z.layout)) == ("[a, -]", "[-, b]")


@pytest.mark.parametrize(
    ("text", "rank", "error", "words"),
    [
        ("{devices=[2,", 1, InputError, "cannot be read"),
        ("{devices=[2,2]<=[4]}", 1, LayoutError, "has 2 dims, the value 1"),
        ("{devices=[4]<=[4]}", 1, LayoutError, "for 4 devices, the program for 8"),
        ("{devices=[8]0,1,2,3,4,5,6,6}", 1, LayoutError, "once"),
        ("{devices=[2]0,-1}", 1, LayoutError, "once"),
        ("{manual}", 1, InputError, "manual"),
        ("{maximal device=0}", 1, InputError, "single-device"),
        ("{{replicated}, {replicated}}", 1, InputError, "tuple"),
    ],
)
def test_faults_are_named(text: str, rank: int, error: type, words: str):
    with pytest.raises(error, match=words):
        from_hlo(text, rank, 8, "parameter 0")


def test_sizes_that_share_no_mesh():
    with pytest.raises(LayoutError, match="no one mesh has both"):
        layouts_from_hlo(
            [
                "{devices=[6,2]<=[12] last_tile_dim_replicate}",
                "{devices=[4,3]<=[12] last_tile_dim_replicate}",
            ],
            [1, 1],
            12,
        )
