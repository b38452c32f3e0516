"""Pictures of layouts."""

from __future__ import annotations

from shardwright.insight.pictures import layout_picture
from shardwright.program import Layout, Mesh

CUBE = Mesh((("a", 2), ("b", 2), ("c", 2)))


def test_rows_and_columns():
    assert layout_picture(Layout.parse(CUBE, "a b, -"), (8, 8)).splitlines() == [
        "+-----+",
        "| 0,1 |",
        "+-----+",
        "| 2,3 |",
        "+-----+",
        "| 4,5 |",
        "+-----+",
        "| 6,7 |",
        "+-----+",
    ]
    assert layout_picture(Layout.parse(CUBE, "b a c"), (8,)).splitlines() == [
        "+---+---+---+---+---+---+---+---+",
        "| 0 | 1 | 4 | 5 | 2 | 3 | 6 | 7 |",
        "+---+---+---+---+---+---+---+---+",
    ]


def test_three_dims_are_slices():
    text = layout_picture(Layout.parse(CUBE, "a, b, c"), (4, 4, 6))
    assert text.splitlines() == [
        "dim 2 from 0",
        "+---+---+",
        "| 0 | 2 |",
        "+---+---+",
        "| 4 | 6 |",
        "+---+---+",
        "dim 2 from 3",
        "+---+---+",
        "| 1 | 3 |",
        "+---+---+",
        "| 5 | 7 |",
        "+---+---+",
    ]


def test_scalars_and_large_meshes():
    assert layout_picture(Layout.replicated(Mesh(()), 0), ()) == "+---+\n| 0 |\n+---+"
    big = Mesh((("x", 128),))
    assert "not drawn" in layout_picture(Layout.parse(big, "x"), (128,))
