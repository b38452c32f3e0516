"""Write StableHLO at an insertion point: what rules and steps need to be local."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwright.jaxlib_bindings import (
    channel,
    integer_elements,
    ir,
    mlir_type,
    stablehlo,
    tensor_type,
)
from shardwright.mlir import (
    captured_values,
    replace_operands,
)
from shardwright.program import Mesh, SubAxis, TensorType, positions_by_group

Value = ir.Value

SHARDING_ATTRIBUTES = ("sdy.sharding", "mhlo.sharding")
"""Speak of whole arrays, so they do not belong on an op on tiles."""


class Emitter:
    """Builds a per-device function body over one mesh.

    Use inside `with ir.InsertionPoint(...), ir.Location...`. The partition id and
    coordinates are made once; a block inside takes an emitter of its own, `inner()`.
    """

    def __init__(self, mesh: Mesh, context: ir.Context) -> None:
        self.mesh = mesh
        self.context = context
        self._coordinates: dict[tuple[SubAxis, ...], Value] = {}
        self._position: Value | None = None
        self._channels = itertools.count(1)

    def type(self, shape: Sequence[int], dtype: str) -> ir.Type:
        return mlir_type(TensorType(tuple(shape), dtype), self.context)

    def retype(self, value: Value, shape: Sequence[int]) -> ir.Type:
        """The type of `value` with another shape."""
        return self.type(shape, tensor_type(value.type).dtype)

    def channel(self) -> ir.Attribute:
        """A channel handle no other collective of the module has."""
        return channel(next(self._channels))

    def inner(self) -> Emitter:
        """An emitter for a block inside this one; no channel is given out twice."""
        emitter = Emitter(self.mesh, self.context)
        emitter._channels = self._channels
        return emitter

    # Constants and indices --------------------------------------------------

    def splat(self, text: str, shape: Sequence[int], dtype: str) -> Value:
        """A constant of one value, written as MLIR writes it: "0.0", "true", "-1"."""
        if dtype.startswith("complex"):  # no attribute class for them in the bindings
            real, imaginary = text.strip("()").split(", ")
            parts = (self.splat(t, shape, dtype[8:-1]) for t in (real, imaginary))
            return stablehlo.complex(*parts)
        type_ = self.type(shape, dtype)
        attr = ir.Attribute.parse(f"dense<{text}> : {type_}", self.context)
        return stablehlo.constant(attr)

    def integers(self, values: Any) -> Value:
        """A constant i32 tensor from nested integers."""
        return stablehlo.constant(integer_elements(values, 32))

    def position(self) -> Value:
        """This device's row-major position on the mesh, i32[]."""
        if self._position is None:
            device = stablehlo.convert(self.type((), "i32"), stablehlo.partition_id())
            self._position = device
            ids = self.mesh.device_ids
            if ids is not None:
                table = np.empty(len(ids), np.int32)
                table[list(ids)] = np.arange(len(ids))
                self._position = self.lookup(self.integers(table), device)
        return self._position

    def index(self, axes: Sequence[SubAxis]) -> Value:
        """This device's row-major index over the sub-axes, i32[]."""
        key = tuple(axes)
        if key not in self._coordinates:
            self._coordinates[key] = self._make_index(key)
        return self._coordinates[key]

    def _make_index(self, axes: tuple[SubAxis, ...]) -> Value:
        result: Value | None = None
        for axis in axes:
            stride = self.mesh.stride(axis)
            coordinate = self.position()
            if stride > 1:
                coordinate = stablehlo.divide(coordinate, self.scalar(stride))
            if stride * axis.size < self.mesh.num_devices:
                coordinate = stablehlo.remainder(coordinate, self.scalar(axis.size))
            if result is not None:
                scaled = stablehlo.multiply(result, self.scalar(axis.size))
                coordinate = stablehlo.add(scaled, coordinate)
            result = coordinate
        return self.scalar(0) if result is None else result

    def scalar(self, value: int) -> Value:
        """An i32[] constant."""
        return self.splat(str(value), (), "i32")

    def scaled_index(self, axes: Sequence[SubAxis], size: int) -> Value:
        """Start of this device's chunk of `size` along a dim cut by `axes`."""
        return stablehlo.multiply(self.index(axes), self.scalar(size))

    def lookup(self, table: Value, index: Value) -> Value:
        """table[index] for a one-dim i32 table."""
        one = stablehlo.dynamic_slice(table, [index], [1])
        return stablehlo.reshape(self.type((), "i32"), one)

    # Moving elements --------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        if tensor_type(value.type).shape == tuple(shape):
            return value
        return stablehlo.reshape(self.retype(value, shape), value)

    def dynamic_slice(
        self, value: Value, starts: Sequence[Value], sizes: Sequence[int]
    ) -> Value:
        return stablehlo.dynamic_slice(value, list(starts), list(sizes))

    def groups(self, axes: Sequence[SubAxis]) -> list[list[int]]:
        """Logical devices of each group over `axes`, in member order."""
        groups = positions_by_group(self.mesh, axes)
        ids = self.mesh.device_ids
        found: list[list[int]] = (
            groups if ids is None else np.asarray(ids)[groups]
        ).tolist()
        return found

    def retyped_clone(
        self,
        op: ir.Operation,
        operands: Sequence[Value],
        result_shapes: Sequence[Sequence[int]],
    ) -> list[Value]:
        """Clone an op on other operands, its results with other shapes.

        Operands past the op's own replace the values its regions capture.
        """
        own = len(op.operands)
        clone = op.clone()
        for name in SHARDING_ATTRIBUTES:
            if name in clone.attributes:
                del clone.attributes[name]
        for i, operand in enumerate(operands[:own]):
            clone.operands[i] = operand
        if len(operands) > own:
            captured = captured_values(op)
            replace_operands(clone, dict(zip(captured, operands[own:], strict=True)))
        for result, shape in zip(clone.results, result_shapes, strict=True):
            if tensor_type(result.type).shape != tuple(shape):
                result.set_type(self.retype(result, shape))
        return list(clone.results)
