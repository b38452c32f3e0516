"""PositionalSharding as JAX once had it: shardings written by reshaping devices.

    sharding = PositionalSharding(jax.devices())
    y = jax.device_put(y, sharding.reshape(4, 2).replicate(1))
    z = jax.device_put(z, sharding.reshape(4, 2).replicate(0))

Each is a NamedSharding. All that derive from one list of devices lie on one mesh,
whose axes are the prime factors of the number of devices, so that they meet in one
jit; only where a shape does not fit those is a mesh made for that shape.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from shardwright.errors import LayoutError

_Grid = tuple[tuple[str, ...], ...]
"""For each dim the mesh axes that split it; none for a dim of one."""


class PositionalSharding(NamedSharding):
    """A grid of devices; an array put on it is split in as many parts, dim by dim.

    `devices` is a list or an array of JAX devices, whose shape is the first grid. The
    array's rank must be the grid's. Raises LayoutError for a shape that does not hold
    all devices.
    """

    def __init__(self, devices: Any, *, memory_kind: str | None = None) -> None:
        array = np.asarray(devices, dtype=object)
        mesh = _prime_mesh(list(array.flat), _primes(array.size))
        flat = (tuple(mesh.axis_names),)
        mesh, grid = _reshaped(mesh, flat, array.shape)
        self._become(mesh, grid, memory_kind)

    def _become(self, mesh: Mesh, grid: _Grid, memory_kind: str | None) -> None:
        spec = PartitionSpec(*(axes or None for axes in grid))
        super().__init__(mesh, spec, memory_kind=memory_kind)
        self._grid = grid
        self._devices = mesh

    def _with(self, mesh: Mesh, grid: _Grid) -> PositionalSharding:
        made = PositionalSharding.__new__(PositionalSharding)
        made._become(mesh, grid, self.memory_kind)
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """The grid's shape, 1 where an array is not split."""
        sizes = self.mesh.shape
        return tuple(math.prod(sizes[a] for a in axes) for axes in self._grid)

    @property
    def ndim(self) -> int:
        """Number of dims of the grid."""
        return len(self._grid)

    @property
    def T(self) -> PositionalSharding:  # noqa: N802 - numpy's name
        """The grid with its dims reversed."""
        return self.transpose()

    def reshape(self, *shape: Any) -> PositionalSharding:
        """The same devices in row-major order, in a grid of another shape."""
        wanted = (
            shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        )
        return self._with(*_reshaped(self._devices, self._grid, tuple(wanted)))

    def transpose(self, *axes: int) -> PositionalSharding:
        """The grid with its dims in another order."""
        order = axes or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise LayoutError(f"axes {order} are no order of {self.ndim} dims")
        return self._with(self._devices, tuple(self._grid[d] for d in order))

    def replicate(self, axis: int | None = None, keepdims: bool = True) -> Any:
        """Hold whole what `axis` of the grid would split; by default all of it."""
        dims = range(self.ndim) if axis is None else [_checked(axis, self.ndim)]
        if keepdims:
            grid = tuple(() if d in dims else a for d, a in enumerate(self._grid))
        else:
            grid = tuple(a for d, a in enumerate(self._grid) if d not in dims)
        return self._with(self._devices, grid)

    def __repr__(self) -> str:
        return f"PositionalSharding(shape={self.shape}, mesh={self.mesh})"


def _checked(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise LayoutError(f"axis {axis} is out of range for a grid of {ndim} dims")
    return axis % ndim


def _reshaped(mesh: Mesh, grid: _Grid, shape: tuple[int, ...]) -> tuple[Mesh, _Grid]:
    """The grid's axes dealt out over the dims of another shape, in order."""
    names = [name for axes in grid for name in axes]
    count = math.prod(mesh.shape[name] for name in names)
    shape = _without_unknown(shape, count)
    if math.prod(shape) != count:
        raise LayoutError(
            f"cannot reshape a sharding over {count} devices to {shape}, which is "
            f"{math.prod(shape)}"
        )
    dealt = _deal(mesh, names, shape)
    if dealt is None:
        if count != mesh.size:
            raise LayoutError(
                f"cannot reshape to {shape}: some devices hold replicas; reshape "
                "first, then replicate"
            )
        order = mesh.devices.transpose([mesh.axis_names.index(n) for n in names])
        primes = [p for n in shape for p in _primes(n)]
        mesh = _prime_mesh(list(order.flat), primes)
        dealt = _deal(mesh, list(mesh.axis_names), shape)
        assert dealt is not None, "the mesh was made for this shape"
    return mesh, dealt


def _deal(mesh: Mesh, names: Sequence[str], shape: Sequence[int]) -> _Grid | None:
    left = list(names)
    grid: list[tuple[str, ...]] = []
    for n in shape:
        axes: list[str] = []
        while n > 1:
            size = mesh.shape[left[0]]
            if n % size:
                return None
            axes.append(left.pop(0))
            n //= size
        grid.append(tuple(axes))
    return tuple(grid)


def _without_unknown(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape with a dim of -1 worked out, as numpy does."""
    if shape.count(-1) != 1:
        return shape
    known = -math.prod(shape)
    return tuple(count // max(1, known) if n == -1 else n for n in shape)


def _prime_mesh(devices: Sequence[Any], sizes: Sequence[int]) -> Mesh:
    names = tuple(string.ascii_lowercase[: len(sizes)])
    grid = np.array(devices, dtype=object).reshape(sizes)
    return Mesh(grid, names, axis_types=(AxisType.Auto,) * len(sizes))


def _primes(n: int) -> list[int]:
    found, factor = [], 2
    while n > 1:
        while n % factor == 0:
            found.append(factor)
            n //= factor
        factor += 1
    return found
