"""Every entry's samples, cut every legal way, against the whole op."""

from __future__ import annotations

import pytest

from shardwright.rules import Entry, entries
from tests.rules.conformance import check, mesh_of, probe, strategies

MESHES = ("2x2x2", "2x4", "8", "2x3", "1x1")

# They hand values on: tests of lowering run them.
WITHOUT_SAMPLES = {
    "mhlo.copy",
    "sdy.reshard",
    "sdy.sharding_constraint",
    "stablehlo.custom_call@Sharding",
}

SAMPLES = [
    pytest.param(entry, i, id=f"{entry.name}-{i}")
    for entry in entries()
    for i in range(len(entry.samples))
]


def test_every_entry_has_a_sample():
    without = {entry.name for entry in entries() if not entry.samples}
    assert without == WITHOUT_SAMPLES


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(("entry", "index"), SAMPLES)
def test_cut_op_equals_whole(entry: Entry, index: int, mesh: str):
    found = probe(entry, index)
    grid = mesh_of(mesh)
    chosen = strategies(found.rule, grid)
    assert chosen, "the uncut strategy is always legal"
    check(found, grid, chosen)
