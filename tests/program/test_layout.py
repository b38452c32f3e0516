"""Layouts: tiles cover the tensor exactly once, canonical forms, clear errors."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import LayoutError
from shardwright.program import Layout, Mesh, SubAxis

CUBE = Mesh((("a", 2), ("b", 2), ("c", 2)))


def test_tile_of_the_first_case():
    layout = Layout.parse(CUBE, "a b, -")
    assert layout.tile_shape((8192, 8192)) == (2048, 8192)
    assert layout.tile_box((8192, 8192), 5) == ((4096, 6144), (0, 8192))


def test_order_of_axes_is_major_to_minor():
    assert Layout.parse(CUBE, "a c").tile_box((8,), 1) == ((2, 4),)
    assert Layout.parse(CUBE, "c a").tile_box((8,), 1) == ((4, 6),)


def test_uneven_dims_are_padded_to_the_ceiling():
    mesh = Mesh((("x", 4),))
    layout = Layout.parse(mesh, "x")
    boxes = [layout.tile_box((5,), p)[0] for p in range(4)]
    assert layout.tile_shape((5,)) == (2,)
    assert boxes == [(0, 2), (2, 4), (4, 5), (5, 5)]
    assert not layout.is_even((5,))
    assert layout.is_even((8,))


def test_sub_axes_merge_and_print():
    mesh = Mesh((("x", 8), ("y", 3)))
    split = Layout(mesh, ((SubAxis("x", 2), SubAxis("x", 4, 2)), ()))
    assert split == Layout.parse(mesh, "x, -")
    assert str(split) == "[x, -]"
    assert str(Layout.parse(mesh, "x:(2)4 y, -")) == "[x:(2)4 y, -]"


def test_partial_axes_print_and_parse():
    layout = Layout.parse(CUBE, "a, - | sum c b")
    assert [(a.name, r) for a, r in layout.partial] == [("b", "sum"), ("c", "sum")]
    assert str(layout) == "[a, - | sum b | sum c]"
    assert layout.without_partial() == Layout.parse(CUBE, "a, -")


def test_several_reducers_are_refused():
    with pytest.raises(LayoutError, match="do not commute"):
        Layout.parse(CUBE, "a, - | sum b, max c")


def test_strided_view_of_a_flattened_tensor():
    mesh = Mesh((("x", 2), ("y", 2)))
    x, y = mesh.axis("x"), mesh.axis("y")
    layout = Layout.from_pieces(mesh, [[(4, (x,)), (4, (y,))], [(3, ())]])
    assert layout.view == (4, 4, 3)
    assert layout.tile_shape((16, 3)) == (4, 3)
    assert layout.view_tile_shape((16, 3)) == (2, 2, 3)


def test_pieces_join_where_the_cut_is_contiguous():
    mesh = Mesh((("x", 4), ("y", 2)))
    x, y = mesh.axis("x"), mesh.axis("y")
    full = Layout.from_pieces(mesh, [[(4, (x,)), (4, (y,))]])
    assert full == Layout.parse(mesh, "x y")
    uncut = Layout.from_pieces(mesh, [[(8, (x,)), (4, ())]])
    assert uncut == Layout.parse(mesh, "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a a, -", "used twice"),
        ("a, - | sum a", "used twice"),
        ("q, -", "no mesh axis 'q'; the axes are: a, b, c"),
        ("a:(1)3, -", "does not divide axis 'a' of size 2"),
        ("a, - | mean b", "unknown reducer 'mean'"),
    ],
)
def test_a_layout_that_does_not_fit_says_why(text: str, words: str):
    with pytest.raises(LayoutError, match=".*".join(map(str, [words]))):
        Layout.parse(CUBE, text)


def test_rank_mismatch_names_both():
    with pytest.raises(LayoutError, match="has 2 dims but the tensor has shape"):
        Layout.parse(CUBE, "a, b").tile_shape((8,))


@pytest.mark.parametrize(
    ("axes", "ids", "words"),
    [
        ((("a", 2), ("a", 2)), None, "appears twice"),
        ((("a", 0),), None, "must be > 0"),
        ((("a", 2),), (0, 0), "named once"),
    ],
)
def test_a_mesh_that_cannot_be_says_why(axes, ids, words):
    with pytest.raises(LayoutError, match=words):
        Mesh(axes, ids)


def test_own_device_order():
    mesh = Mesh((("x", 2), ("y", 2)), (0, 2, 1, 3))
    assert [mesh.device_id(p) for p in range(4)] == [0, 2, 1, 3]
    assert Mesh((("x", 4),), (0, 1, 2, 3)) == Mesh((("x", 4),))


MESHES = [
    CUBE,
    Mesh((("a", 2), ("b", 4))),
    Mesh((("a", 8),)),
    Mesh((("a", 2), ("b", 3))),
    Mesh((("a", 1), ("b", 1))),
]


@st.composite
def layouts(draw):
    mesh = draw(st.sampled_from(MESHES))
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(0, 13)) for _ in range(rank))
    dims = [[] for _ in range(rank)]
    for axis in draw(st.permutations(mesh.whole_axes())):
        where = draw(st.integers(-1, rank - 1))
        if where >= 0:
            dims[where].append(axis)
    return shape, Layout(mesh, tuple(map(tuple, dims)))


@given(layouts())
def test_tiles_cover_every_element_once_per_replica(case):
    shape, layout = case
    count = np.zeros(shape, int)
    for position in range(layout.mesh.num_devices):
        box = layout.tile_box(shape, position)
        count[tuple(itertools.starmap(slice, box))] += 1
        tile = layout.tile_shape(shape)
        assert all(
            stop - start <= n for (start, stop), n in zip(box, tile, strict=True)
        )
    cut = math.prod(axis.size for axes in layout.dims for axis in axes)
    assert np.all(count == layout.mesh.num_devices // cut)


@given(layouts())
def test_layouts_print_and_parse_back(case):
    _, layout = case
    assert Layout.parse(layout.mesh, str(layout)) == layout
