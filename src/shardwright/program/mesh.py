"""The device grid: named axes, sub-axes, and where each device stands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import LayoutError


@dataclasses.dataclass(frozen=True, slots=True)
class SubAxis:
    """A factor of a mesh axis: `size` ways after `pre` more major ways.

    The axis itself is the sub-axis with `pre` 1 and the axis's size. Shardy
    writes the same thing as `"x":(pre)size`.
    """

    name: str
    size: int
    pre: int = 1

    @property
    def end(self) -> int:
        """Ways of the axis up to and including this factor."""
        return self.pre * self.size

    def overlaps(self, other: SubAxis) -> bool:
        """Whether both address a common factor of one axis."""
        return self.name == other.name and self.pre < other.end and other.pre < self.end

    def contains(self, other: SubAxis) -> bool:
        """Whether the other is a factor of this one."""
        inside = other.pre % self.pre == 0 and self.end % other.end == 0
        return self.name == other.name and inside

    def __str__(self) -> str:
        return f"{self.name}:({self.pre}){self.size}"


@dataclasses.dataclass(frozen=True, slots=True)
class Mesh:
    """Named axes, major to minor, over devices in row-major order.

    `device_ids[p]` is the logical device at row-major position p; None stands
    for 0, 1, 2, ... so that large meshes carry no table. Two meshes may number
    devices of which each has some.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        if len(set(names)) != len(names):
            raise LayoutError(f"mesh {self}: an axis name appears twice")
        for name, size in self.axes:
            if size < 1:
                raise LayoutError(f"mesh axis {name!r} has size {size}; it must be > 0")
        ids = self.device_ids
        if ids is None:
            return
        if len(set(ids)) != self.num_devices or min(ids) < 0:
            raise LayoutError(
                f"mesh {self}: {len(ids)} device ids are given for {self.num_devices} "
                "devices; each must be named once"
            )
        if ids == tuple(range(len(ids))):
            object.__setattr__(self, "device_ids", None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    @property
    def num_devices(self) -> int:
        return math.prod(self.sizes)

    def size(self, name: str) -> int:
        """Ways of the named axis; an unknown name is a LayoutError."""
        for axis, size in self.axes:
            if axis == name:
                return size
        known = ", ".join(self.names) or "none"
        raise LayoutError(f"no mesh axis {name!r}; the axes are: {known}")

    def axis(self, name: str) -> SubAxis:
        """The whole named axis as a sub-axis."""
        return SubAxis(name, self.size(name))

    def whole_axes(self) -> tuple[SubAxis, ...]:
        """Every axis of more than one way."""
        return tuple(SubAxis(n, s) for n, s in self.axes if s > 1)

    def is_whole(self, axis: SubAxis) -> bool:
        return axis.size == self.size(axis.name)

    def stride(self, axis: SubAxis) -> int:
        """Row-major distance between neighbours along the sub-axis."""
        position = self.names.index(axis.name)
        minor = math.prod(self.sizes[position + 1 :])
        return minor * (self.sizes[position] // axis.end)

    def coordinate(self, position: int, axis: SubAxis) -> int:
        """Where the device at row-major `position` stands along the sub-axis."""
        return position // self.stride(axis) % axis.size

    def index(self, position: int, axes: Sequence[SubAxis]) -> int:
        """Row-major index of `position` over several sub-axes, major to minor."""
        result = 0
        for axis in axes:
            result = result * axis.size + self.coordinate(position, axis)
        return result

    def device_id(self, position: int) -> int:
        """Logical device at a row-major position."""
        return position if self.device_ids is None else self.device_ids[position]

    def position_of(self, device: int) -> int:
        """Row-major position of a logical device."""
        return device if self.device_ids is None else self.device_ids.index(device)

    def axis_str(self, axis: SubAxis) -> str:
        """`x` for a whole axis, `x:(1)2` for a factor of it."""
        return axis.name if self.is_whole(axis) else str(axis)

    def __str__(self) -> str:
        body = ",".join(f"{name}={size}" for name, size in self.axes)
        order = "" if self.device_ids is None else " with its own device order"
        return f"({body}){order}"


def ways(axes: Sequence[SubAxis]) -> int:
    """Number of pieces that the sub-axes cut together."""
    return math.prod(axis.size for axis in axes)


def positions_by_group(mesh: Mesh, axes: Sequence[SubAxis]) -> NDArray[np.int64]:
    """Row-major positions by [group, member]; members row-major over `axes`."""
    positions = np.arange(mesh.num_devices)
    member = np.zeros_like(positions)
    base = positions.copy()
    for axis in axes:
        stride = mesh.stride(axis)
        coordinate = positions // stride % axis.size
        member = member * axis.size + coordinate
        base -= coordinate * stride
    return np.lexsort((member, base)).reshape(-1, ways(axes))


def merge_neighbours(axes: Sequence[SubAxis]) -> tuple[SubAxis, ...]:
    """Join a factor with the next more minor factor of its axis; drop ways of 1.

    >>> [str(a) for a in merge_neighbours([SubAxis("x", 2), SubAxis("x", 3, 2)])]
    ['x:(1)6']
    """
    merged: list[SubAxis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        last = merged[-1] if merged else None
        if last is not None and last.name == axis.name and last.end == axis.pre:
            merged[-1] = SubAxis(axis.name, last.size * axis.size, last.pre)
        else:
            merged.append(axis)
    return tuple(merged)
