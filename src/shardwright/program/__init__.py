"""The data that flows: types, meshes, layouts, schedules, rules, programs."""

from shardwright.program.graph import CONSTRAINT_OPS, Constraint, Location, Op, Program
from shardwright.program.layout import REDUCERS, Box, Layout, Piece
from shardwright.program.mesh import (
    Mesh,
    SubAxis,
    merge_neighbours,
    positions_by_group,
    ways,
)
from shardwright.program.rule import Dims, PartialRow, Rule, Strategy
from shardwright.program.schedule import (
    AllGather,
    AllReduce,
    AllToAll,
    Alternative,
    Exchange,
    Permute,
    ReduceScatter,
    Round,
    Schedule,
    Shuffle,
    Slice,
    Step,
    Unreduce,
    count_collectives,
    step_result_shape,
)
from shardwright.program.types import TensorType, dtype_bits, tile_bytes

__all__ = [
    "CONSTRAINT_OPS",
    "REDUCERS",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Alternative",
    "Box",
    "Constraint",
    "Dims",
    "Exchange",
    "Layout",
    "Location",
    "Mesh",
    "Op",
    "PartialRow",
    "Permute",
    "Piece",
    "Program",
    "ReduceScatter",
    "Round",
    "Rule",
    "Schedule",
    "Shuffle",
    "Slice",
    "Step",
    "Strategy",
    "SubAxis",
    "TensorType",
    "Unreduce",
    "count_collectives",
    "dtype_bits",
    "merge_neighbours",
    "positions_by_group",
    "step_result_shape",
    "tile_bytes",
    "ways",
]
